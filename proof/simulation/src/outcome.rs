//! Outcomes, invariants and violations.

use std::fmt;

use crate::fault::Faults;

/// What the oracles check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Invariant {
    /// `RES-02`
    NeverAboveCapacity,
    /// `RES-02`, `RES-03`
    HeldAsPromised,
    /// `RES-01`, `RES-04`, `COM-01`, `COM-02`, `WAIT-04`
    CountedOnce,
    /// `RES-05`
    DeniedStaysDenied,
    /// `RES-09`
    EndedStaysEnded,
    /// `RES-04`
    SameLeaseSameAnswer,
    /// `RES-06`, `RES-08`, `COM-06`
    AnswersHaveReasons,
    /// `DEF-06`, `DEF-07`
    CapacityAsAsked,
    /// `DEF-07`, `SHD-02`
    AdmitsWhatFits,
    /// `SHD-01`
    ShadowNeverDenies,
    /// `SHD-01`
    ShadowDenialsNamed,
    /// `CAL-01`, `CAL-02`
    ResetsOnSchedule,
    /// `CAL-03`
    HintsReachTheReset,
    /// `TPL-07`
    InstancesBounded,
    /// `TPL-05`
    IdleInstancesGo,
    /// `WAIT-01`, `WAIT-04`
    AnsweredInTime,
    /// `WAIT-06`
    WokenAtOnce,
    /// `WAIT-02`
    FirstComeFirstServed,
    /// `DEF-08`
    DefinitionsKept,
    /// `COM-03`
    DebtAsUsed,
    /// `COM-05`
    FirstCompleteStands,
    /// `RES-02`, `RES-03`
    BackToZero,
    /// `TB-10`
    EveryRequestAnswered,
    /// `TB-08`
    ProgressResumes,
    /// No rule at all is broken so visibly.
    NoPanic,
    /// `PRIM-GEN-C`
    HeldByOne,
    /// `PRIM-GEN-C`, `PRIM-GEN-E`
    NeverLost,
    /// `PRIM-GEN-B`
    OnlyTheOwnerActs,
    /// `PRIM-GEN-A`
    NotBeforeItsTime,
    /// `PRIM-GEN-E`: inbox deduplication, a run's identity, a repeated enqueue
    DeliveredAsOne,
    /// Leases: a resource's fencing token grows for ever
    FencingGrows,
    /// Scheduler: a smaller token than the one recorded changes nothing
    StaleFenceChangesNothing,
    /// `CRD-02`
    NoUnhandledDeath,
    /// `CRD-03`
    GivenUpInTheEnd,
    /// `CRD-04`
    NothingStartsAfterStop,
    /// Jobs: the result that is kept is one that the handler gave
    OutcomeKept,
}

/// A violated invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// What was seen, and what was expected.
    pub detail: String,
}

/// What came of playing a plan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The first violated invariant.
    pub violation: Option<Violation>,
    /// Faults injected.
    pub faults: Faults,
    /// Requests made by clients and workers.
    pub requests: u64,
    /// Comparisons with the oracle.
    pub checks: u64,
    /// What happened, line by line; empty unless it was asked for.
    pub trace: String,
}

impl Invariant {
    /// In words, as reports and traces have it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NeverAboveCapacity => "live reservations are never above the capacity",
            Self::HeldAsPromised => "what was allowed is held for as long as it was allowed",
            Self::CountedOnce => "a lease is counted once, a denied or ended one not at all",
            Self::DeniedStaysDenied => "a denied lease stays denied",
            Self::EndedStaysEnded => "a lease that has ended is never allowed again",
            Self::SameLeaseSameAnswer => "the same lease has the same answer",
            Self::AnswersHaveReasons => "every refusal has its reason",
            Self::CapacityAsAsked => "the capacity is one that was asked for",
            Self::AdmitsWhatFits => "a limit over the capacity that it is to have admits nothing",
            Self::ShadowNeverDenies => "a limit in shadow mode never denies",
            Self::ShadowDenialsNamed => "an answer names the shadow limits that would have denied",
            Self::ResetsOnSchedule => {
                "a period ends when it must, a new schedule begins with the next"
            }
            Self::HintsReachTheReset => "the hint of a calendar limit is the time to its reset",
            Self::InstancesBounded => "there are only as many instances as there may be",
            Self::IdleInstancesGo => "an instance goes when it holds and owes nothing",
            Self::AnsweredInTime => "nobody waits longer than it wants, or at a server that stops",
            Self::WokenAtOnce => "a waiter does not wait for room that it has",
            Self::FirstComeFirstServed => {
                "those that need the same are admitted in the order of their arrival"
            }
            Self::DefinitionsKept => "the limits file has what was answered",
            Self::DebtAsUsed => "debt is what was used without room, once",
            Self::FirstCompleteStands => "the first complete of a lease stands, for all its limits",
            Self::BackToZero => "after everything expired all accounts are back to zero",
            Self::EveryRequestAnswered => "every request is answered or reported unknown",
            Self::ProgressResumes => "progress resumes after the last fault",
            Self::NoPanic => "nothing panics",
            Self::HeldByOne => "an item is never held by two",
            Self::NeverLost => "no item is ever lost",
            Self::OnlyTheOwnerActs => "only the owner of a claim acts on it",
            Self::NotBeforeItsTime => "nothing is handed out before it is due",
            Self::DeliveredAsOne => "what was sent twice is delivered as one",
            Self::FencingGrows => "a resource's fencing token grows for ever",
            Self::StaleFenceChangesNothing => "work under an old fencing token changes nothing",
            Self::NoUnhandledDeath => "no message dies before its attempts are used up",
            Self::GivenUpInTheEnd => "a message that fails or kills its process is given up",
            Self::NothingStartsAfterStop => "a worker that is told to stop starts nothing",
            Self::OutcomeKept => "the result of a job is one that its handler gave",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BROKEN: {}: {}", self.invariant, self.detail)
    }
}

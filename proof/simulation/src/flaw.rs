//! Deliberate bugs around the real code, to show that the checks can fail.

use crate::outcome::Invariant;

macro_rules! flaws {
    ($($name:ident in $world:ident within $within:literal breaks $($invariant:ident)|+: $text:literal,)*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Flaw {
            $(#[doc = $text] $name,)*
        }

        impl Flaw {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// In words.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Where it is played.
            pub const fn place(self) -> Place {
                match self {
                    $(Self::$name => Place::$world,)*
                }
            }

            /// Within how many seeds, from 0 on, it is found.
            pub const fn found_within(self) -> u64 {
                match self {
                    $(Self::$name => $within,)*
                }
            }

            /// The invariants of which one is violated first.
            pub const fn breaks(self) -> &'static [Invariant] {
                match self {
                    $(Self::$name => &[$(Invariant::$invariant),+],)*
                }
            }
        }
    };
}

/// The world that a bug is played in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The limiter on a ledger.
    TigerBeetle,
    /// The limiter in memory.
    Memory,
    /// The coordination workers.
    Coordination,
}

impl Place {
    /// What the command calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TigerBeetle => "tigerbeetle",
            Self::Memory => "memory",
            Self::Coordination => "coordination",
        }
    }
}

flaws! {
    SkipsOneLimit in TigerBeetle within 20 breaks HeldAsPromised:
        "the last limit of a reserve is not checked",
    NeverExpires in TigerBeetle within 20 breaks CountedOnce | AnswersHaveReasons:
        "reservations are not released when they expire",
    SplitsChains in TigerBeetle within 20 breaks CountedOnce | AnswersHaveReasons:
        "the chain of a lease is split",
    ReusesReserveIds in TigerBeetle within 20 breaks AnswersHaveReasons:
        "two leases share the ID of a reservation",
    ReusesVoidIds in TigerBeetle within 20 breaks CountedOnce | ProgressResumes:
        "two leases share the ID of a release",
    IgnoresExists in TigerBeetle within 20 breaks EndedStaysEnded | SameLeaseSameAnswer:
        "`exists` is taken for `created`",
    DecreasesTwice in TigerBeetle within 20 breaks CapacityAsAsked:
        "a decrease is applied twice",
    ForgetsDebt in TigerBeetle within 50 breaks DebtAsUsed:
        "debt is forgotten",
    CountsDebtAgain in TigerBeetle within 50 breaks DebtAsUsed:
        "debt is recorded twice",
    IgnoresMarkers in TigerBeetle within 50 breaks HeldAsPromised | CountedOnce | DebtAsUsed | FirstCompleteStands:
        "a server completes a lease that another one has completed",
    TakesVoidedForExpired in TigerBeetle within 100 breaks HeldAsPromised | CountedOnce | DebtAsUsed | FirstCompleteStands:
        "a hold that was released is taken for one that has expired",
    RecordsNoRenews in TigerBeetle within 200 breaks CountedOnce | SameLeaseSameAnswer | EndedStaysEnded | HeldAsPromised:
        "the records of renews do not exclude each other",
    CountsNoGrowthOnLedger in TigerBeetle within 50 breaks HeldAsPromised:
        "what a renew adds is answered and not counted",
    DenialLeavesHold in TigerBeetle within 20 breaks CountedOnce | AnswersHaveReasons:
        "a denial leaves a hold behind",
    NewLeaseAfterSilence in TigerBeetle within 50 breaks CountedOnce | SameLeaseSameAnswer | DeniedStaysDenied:
        "a reserve without an answer is repeated under a new lease ID",
    ReleasesEarly in TigerBeetle within 50 breaks HeldAsPromised:
        "a reconciled reservation is released a second after",
    VoidsNothing in TigerBeetle within 20 breaks CountedOnce | ProgressResumes:
        "a complete is answered and releases nothing",
    NeverReopens in TigerBeetle within 20 breaks ProgressResumes:
        "a limit that was closed for a decrease is not opened again",
    LocksNothing in TigerBeetle within 20 breaks DefinitionsKept | AdmitsWhatFits:
        "two servers change the limits file at once",
    HidesStagedFiles in TigerBeetle within 20 breaks ProgressResumes:
        "a change that a dead server has begun is not looked for",
    SkipsOneLimitInMemory in Memory within 20 breaks HeldAsPromised | NeverAboveCapacity | AdmitsWhatFits:
        "the last limit of a reserve is not checked",
    ForgetsCompletes in Memory within 20 breaks CountedOnce | EndedStaysEnded:
        "a complete is answered and not carried out",
    CompletesAgain in Memory within 20 breaks CountedOnce:
        "completing twice counts twice",
    DenialLeavesHoldInMemory in Memory within 20 breaks CountedOnce | AnswersHaveReasons:
        "a denial leaves a hold behind",
    ForgetsLeases in Memory within 20 breaks SameLeaseSameAnswer | CountedOnce:
        "a lease that comes back is taken for a new one",
    FlushesNothing in Memory within 20 breaks DefinitionsKept:
        "the limits file is not flushed before it is replaced",
    EndsPeriodsEarly in Memory within 20 breaks HeldAsPromised | AnswersHaveReasons:
        "the period of a calendar limit ends a second early",
    OutlivesResets in Memory within 20 breaks CountedOnce | AnswersHaveReasons:
        "what was reserved of a calendar limit outlives the reset",
    AppliesSchedulesAtOnce in Memory within 20 breaks ResetsOnSchedule:
        "a changed schedule applies at once",
    ReturnsToNextPeriod in Memory within 100 breaks HeldAsPromised | AnswersHaveReasons:
        "a complete after the reset returns units of the new period",
    HintsBeyondReset in Memory within 20 breaks HintsReachTheReset:
        "the hint of a denial is an hour too long",
    DeniesInShadow in Memory within 20 breaks ShadowNeverDenies:
        "a limit in shadow mode denies",
    NamesNoShadow in Memory within 20 breaks ShadowDenialsNamed:
        "no limit in shadow mode is named",
    NamesEveryShadow in Memory within 20 breaks ShadowDenialsNamed:
        "every limit in shadow mode is named",
    EnforcesLate in Memory within 20 breaks AdmitsWhatFits:
        "a limit that is to enforce admits while it is over its capacity",
    ForgetsUseWhenDefined in Memory within 20 breaks HeldAsPromised | NeverAboveCapacity:
        "an instance forgets its use when a definition takes over",
    KeepsInstancesLarge in Memory within 50 breaks AdmitsWhatFits | ShadowDenialsNamed | ProgressResumes:
        "a decrease of a template does not reach its instances",
    DropsInstancesWithTemplate in Memory within 50 breaks HeldAsPromised | NeverAboveCapacity:
        "an instance of a deleted template forgets its use when another template governs it",
    NeverDropsInstances in Memory within 20 breaks IdleInstancesGo:
        "an idle instance is never dropped",
    IgnoresInstanceBounds in Memory within 50 breaks InstancesBounded:
        "there are more instances than there may be",
    DeniesInstancesEarly in Memory within 50 breaks AnswersHaveReasons:
        "an instance is denied before the bound is reached",
    RenewsTwice in Memory within 50 breaks CountedOnce | NeverAboveCapacity:
        "a renew that is repeated counts twice",
    ForgetsRenews in Memory within 100 breaks HeldAsPromised | NeverAboveCapacity | EndedStaysEnded | AnswersHaveReasons | SameLeaseSameAnswer:
        "a renew is answered and not carried out",
    CountsNoGrowth in Memory within 50 breaks HeldAsPromised:
        "what a renew adds is answered and not counted",
    DeniesShrinking in Memory within 50 breaks AnswersHaveReasons:
        "a renew that gives back units is denied",
    DeniesGrowing in Memory within 50 breaks AnswersHaveReasons:
        "a renew that asks for more is denied, whatever room there is",
    RestartsWindows in Memory within 100 breaks CountedOnce:
        "a renew begins the windows of a lease again",
    KeepsRenewedHolds in Memory within 300 breaks CountedOnce:
        "a complete leaves a hold that was renewed to its timeout",
    ForgetsLapsed in Memory within 300 breaks DebtAsUsed:
        "what has lapsed of a renewed lease does not cover its use",
    RenewsUnknownLeases in Memory within 50 breaks HeldAsPromised | NeverAboveCapacity | DeniedStaysDenied:
        "a renew of a lease that was never admitted is answered as done",
    RenewsWakeNobody in Memory within 200 breaks WokenAtOnce:
        "a renew that gives back units wakes nobody who waits",
    AdmitsTheGone in Memory within 50 breaks CountedOnce:
        "a waiter is admitted after it left, and its lease stays held",
    LosesWakeUps in Memory within 50 breaks WokenAtOnce:
        "a complete wakes nobody who waits",
    AnswersNoDenials in Memory within 50 breaks AnsweredInTime:
        "a waiter whose time is over gets no answer",
    AdmitsJoinersApart in Memory within 50 breaks CountedOnce | SameLeaseSameAnswer | DeniedStaysDenied:
        "whoever repeats a lease that waits is admitted apart, and it is counted twice",
    OvertakesWaiters in Memory within 50 breaks FirstComeFirstServed:
        "a reserve overtakes those that wait for the same",
    HandsOutTwice in Coordination within 20 breaks HeldByOne | DeliveredAsOne:
        "a claimed item is handed out again",
    LosesReaped in Coordination within 20 breaks NeverLost | OnlyTheOwnerActs:
        "what a crashed worker held is not made ready again",
    AcksForAnyone in Coordination within 20 breaks OnlyTheOwnerActs:
        "anyone may acknowledge a claim",
    DeliversDuplicates in Coordination within 20 breaks DeliveredAsOne:
        "a message that was sent twice is delivered twice",
    IgnoresDueTimes in Coordination within 20 breaks NotBeforeItsTime:
        "messages are handed out before they are due",
    ResetsFencing in Coordination within 50 breaks FencingGrows:
        "the fencing token starts again when a lease is released",
    LeasesTwice in Coordination within 20 breaks HeldByOne:
        "a lease that is held is given to another",
    IgnoresFences in Coordination within 50 breaks StaleFenceChangesNothing:
        "runs are made under an old fencing token",
    NeverBegins in Coordination within 20 breaks GivenUpInTheEnd:
        "the dispatcher of the outbox does not say that work begins",
    CountsLostTwice in Coordination within 50 breaks NoUnhandledDeath:
        "an attempt that never ended is counted twice",
    NeverExtends in Coordination within 50 breaks HeldByOne:
        "the job runner does not extend its claims",
    StopsLate in Coordination within 50 breaks NothingStartsAfterStop:
        "a worker hears a second late that it should stop",
    MixesUpResults in Coordination within 20 breaks OutcomeKept:
        "a job is finished with the result of the one before",
    SkipsSlots in Coordination within 20 breaks NeverAboveCapacity:
        "the job runner reserves no slot of the model",
    KeepsDeadSlots in Coordination within 20 breaks BackToZero:
        "the slot of a job that was killed is not released when it times out",
    SkipsHandlers in Coordination within 20 breaks NeverLost:
        "a message is finished without a call of its handler",
    FailsUnhandled in Coordination within 20 breaks NoUnhandledDeath:
        "a message fails without a call of its handler",
    PanicsInClaim in Coordination within 20 breaks NoPanic:
        "the dispatcher of the inbox panics when it claims",
}

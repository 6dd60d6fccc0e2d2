//! Injected faults and their counts.

use std::collections::BTreeMap;
use std::fmt;

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal,)*) => {
        /// What can go wrong.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Fault {
            $(#[doc = $text] $name,)*
        }

        impl Fault {
            /// All of them, in the order of the reports.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// In words.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

faults! {
    RequestLost = "request to a server lost",
    ReplyLost = "reply of a server lost",
    RequestTwice = "request to a server delivered twice",
    ServerDown = "request to a server that is down",
    LedgerRequestLost = "request to the ledger lost",
    LedgerReplyLost = "reply of the ledger lost",
    LedgerLate = "request to the ledger carried out after its caller gave up",
    LedgerSlow = "request to the ledger overtaken by others",
    LedgerTwice = "request to the ledger carried out twice",
    Evicted = "session evicted, request sent again",
    LedgerRefused = "queue to the ledger full",
    LedgerRestart = "ledger restarted",
    Crash = "server crashed at any moment",
    CrashBeforeCall = "server crashed when it called the ledger",
    CrashAfterCall = "server crashed when the ledger had done what it asked",
    ClockSet = "server started with its clock set wrong",
    DiskSlow = "slow disk under the limits file",
    DiskFull = "full disk under the limits file",
    DiskFlushFails = "limits file written or replaced, and that not flushed",
    DiskReadOnly = "read-only disk under the limits file",
    CrashAtDisk = "server crashed when it read or replaced the limits file",
    PowerLoss = "all servers lost power",
    Stopped = "server told to stop",
    Left = "client gone while its reserve waited",
    NeverCompleted = "lease never completed",
    CompletedTwice = "lease completed again",
    CompletedOtherwise = "lease completed again with other actuals",
    CompletedApart = "lease completed with other actuals at another server at once",
    CompletedLate = "lease completed after it expired",
    Retried = "lease reserved again",
    Reused = "lease ID used for other requirements",
    WorkerCrash = "worker process killed",
    WorkerStop = "worker process told to stop",
    WorkerPaused = "worker process paused",
    Poison = "message that kills its process",
    AnswerLost = "answer of the provider lost",
    CallHeld = "call to the provider, or its answer, held back",
    CalledAgain = "call to the provider repeated",
    TooLate = "worker came after its claim had run out",
    StaleFence = "work under an old fencing token",
}

/// How often each fault was injected.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Faults(BTreeMap<Fault, u64>);

impl Faults {
    pub(crate) fn note(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        for (fault, count) in &other.0 {
            *self.0.entry(*fault).or_default() += count;
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// How often one was injected.
    pub fn count(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }

    /// Those that were injected, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> {
        self.0.iter().map(|(fault, count)| (*fault, *count))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

//! What a process does to measure its memory or processor time.

/// The models of the leases.
pub(crate) const MODELS: usize = 1_000;

/// Most print bytes per item; those of idle limits print a percentage of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Unused limits.
    Definitions,
    /// Keys of the `governor` crate.
    GovernorKeys,
    LiveLeases,
    /// The same leases as plain entries of a hash map.
    PlainLeases,
    /// Denied leases, which are remembered.
    DeniedLeases,
    /// Leases that have ended and were swept.
    EndedLeases,
    /// The peak of a burst of leases.
    FirstBurst,
    /// The peak of a second burst, after the first one has ended.
    SecondBurst,
    /// Calls on limits with a window of a day, spread over a day.
    DayWindow,
    /// The same calls on limits with a window of a second.
    SecondWindow,
    /// The background sweep of unused limits.
    IdleLimits,
    /// The background sweep of limits that were used once.
    UsedLimits,
}

impl Probe {
    pub(crate) const ALL: [Self; 12] = [
        Self::Definitions,
        Self::GovernorKeys,
        Self::LiveLeases,
        Self::PlainLeases,
        Self::DeniedLeases,
        Self::EndedLeases,
        Self::FirstBurst,
        Self::SecondBurst,
        Self::DayWindow,
        Self::SecondWindow,
        Self::IdleLimits,
        Self::UsedLimits,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Definitions => "a definition",
            Self::GovernorKeys => "a key of `governor`",
            Self::LiveLeases => "a live lease of four limits",
            Self::PlainLeases => "the same as an entry of a std `HashMap`",
            Self::DeniedLeases => "a denied lease that is remembered",
            Self::EndedLeases => "a lease of a burst that has ended and is forgotten",
            Self::FirstBurst => "a lease at the peak of a burst",
            Self::SecondBurst => "a lease at the peak of a second burst",
            Self::DayWindow => "a call on windows of a day",
            Self::SecondWindow => "a call on windows of a second",
            Self::IdleLimits => "idle limits",
            Self::UsedLimits => "idle limits that were used once",
        }
    }
}

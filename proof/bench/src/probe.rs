//! What a process allocates to measure its memory.

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
}

impl Probe {
    pub(crate) const ALL: [Self; 6] = [
        Self::Definitions,
        Self::GovernorKeys,
        Self::LiveLeases,
        Self::PlainLeases,
        Self::DeniedLeases,
        Self::EndedLeases,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Definitions => "a definition",
            Self::GovernorKeys => "a key of `governor`",
            Self::LiveLeases => "a live lease of four limits",
            Self::PlainLeases => "the same as an entry of a std `HashMap`",
            Self::DeniedLeases => "a denied lease that is remembered",
            Self::EndedLeases => "a lease of a burst that has ended and is forgotten",
        }
    }
}

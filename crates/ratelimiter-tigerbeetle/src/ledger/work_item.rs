//! The events of one caller, sent in one request.

use super::Transfer;

/// One caller's transfers: chains that succeed or fail as a whole, and single transfers.
///
/// All of them are sent in one request, in this order. A chain is closed by construction: its last
/// event is never linked, so it cannot affect the item behind it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WorkItem {
    /// The last event of a non-empty item is not linked.
    events: Vec<Event>,
}

/// One transfer of a work item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What to create.
    pub transfer: Transfer,
    /// Whether it succeeds or fails together with the event after it.
    pub linked: bool,
}

impl WorkItem {
    /// An item without events, which is answered without a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds transfers that succeed or fail as a whole.
    #[must_use]
    pub fn with_chain(mut self, chain: impl IntoIterator<Item = Transfer>) -> Self {
        self.push_chain(chain);
        self
    }

    /// Adds one transfer that succeeds or fails on its own.
    #[must_use]
    pub fn with(self, transfer: Transfer) -> Self {
        self.with_chain([transfer])
    }

    /// Adds transfers that succeed or fail as a whole; an empty chain adds nothing.
    pub fn push_chain(&mut self, chain: impl IntoIterator<Item = Transfer>) {
        let start = self.events.len();
        let linked = |transfer| Event { transfer, linked: true };
        self.events.extend(chain.into_iter().map(linked));
        if let Some(last) = self.events[start..].last_mut() {
            last.linked = false;
        }
    }

    /// Adds one transfer that succeeds or fails on its own.
    pub fn push(&mut self, transfer: Transfer) {
        self.push_chain([transfer]);
    }

    /// The events in the order in which they are applied and answered.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The number of events, and of results.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether it has no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Action, TransferId, UserData};

    fn void(id: u128) -> Transfer {
        let pending = TransferId::new(99).unwrap();
        let id = TransferId::new(id).unwrap();
        Transfer { id, action: Action::VoidPending { pending }, user_data: UserData::default() }
    }

    #[test]
    fn only_the_inner_events_of_a_chain_are_linked() {
        let item = WorkItem::new()
            .with_chain([void(1), void(2), void(3)])
            .with(void(4))
            .with_chain([])
            .with_chain([void(5), void(6)]);
        let linked: Vec<bool> = item.events().iter().map(|event| event.linked).collect();
        assert_eq!(linked, [true, true, false, false, true, false]);
    }
}

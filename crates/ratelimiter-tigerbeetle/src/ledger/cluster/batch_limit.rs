//! The largest request, learned from the client's refusals (`TB-13`).

/// A binary search between the largest accepted and the smallest refused request: the client
/// returns `TooMuchData` without saying what would fit. A refused batch is not sent, so a step
/// costs next to nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimit {
    /// The configured limit.
    max: usize,
    /// The most events that were accepted, below `refused`.
    accepted: usize,
    /// The fewest events that were refused.
    refused: Option<usize>,
}

impl BatchLimit {
    pub(super) fn new(max: usize) -> Self {
        assert!(max > 0, "a batch has at least one event");
        Self { max, accepted: 0, refused: None }
    }

    /// The number of events to send next.
    pub(super) fn next(&self) -> usize {
        match self.refused {
            None => self.max,
            Some(refused) => usize::midpoint(self.accepted, refused).clamp(1, self.max),
        }
    }

    pub(super) fn accept(&mut self, events: usize) {
        self.accepted = self.accepted.max(events);
        // A server that was restarted with a larger limit ends the search.
        self.refused = self.refused.filter(|&refused| refused > self.accepted);
    }

    pub(super) fn refuse(&mut self, events: usize) {
        assert!(events > 0, "an empty batch is never sent");
        self.refused = Some(self.refused.map_or(events, |refused| refused.min(events)));
        self.accepted = self.accepted.min(events - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as much as possible to a server that accepts `server_max`, until nothing changes.
    fn learn(max: usize, server_max: usize) -> (usize, usize) {
        let mut limit = BatchLimit::new(max);
        let mut refusals = 0;
        for _ in 0..40 {
            let events = limit.next();
            if events <= server_max {
                limit.accept(events);
            } else {
                limit.refuse(events);
                refusals += 1;
            }
        }
        (limit.next(), refusals)
    }

    /// TB-13
    #[test]
    fn tb_13_the_exact_limit_is_found_in_few_steps() {
        for server_max in [1, 2, 252, 253, 254, 4000, 7999] {
            let (found, refusals) = learn(8000, server_max);
            assert_eq!(found, server_max);
            assert!(refusals <= 13, "{refusals} refusals for {server_max}");
        }
    }

    /// TB-13
    #[test]
    fn tb_13_a_configured_limit_that_fits_is_never_searched() {
        assert_eq!(learn(8000, 8189), (8000, 0));
        assert_eq!(learn(1, 8189), (1, 0));
    }
}

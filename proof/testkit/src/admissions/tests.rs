//! The checks can fail.

use ratelimiter::{
    Actuals, Capacity, Denial, DenialReason, HoldTimeout, LimitKey, LimitKind, Requirements,
    Unanswered, Window,
};

use super::*;

/// Two limits with room for 10 units, and a moment in seconds.
struct Clients(Admissions);

fn key(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_unix_ms(1_000_000).after(Duration::from_secs_f64(seconds))
}

fn lease(number: u128) -> LeaseId {
    LeaseId::from_u128(number)
}

impl Clients {
    fn new() -> Self {
        let capacity = Capacity::new(10).unwrap();
        let rolling = LimitKind::Rolling { window: Window::from_seconds(2).unwrap() };
        let slots = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(60).unwrap() };
        Self(Admissions::new(vec![
            Limit::new(key("rate"), rolling, capacity),
            Limit::new(key("slots"), slots, capacity),
        ]))
    }

    /// A reserve that is sent and answered at these times.
    fn reserve(&mut self, number: u128, need: (&str, u64), [sent, answered]: [f64; 2]) {
        let allowed = Decision::Allowed { reserved_at: at(sent), shadow_denied: Vec::new() };
        self.ask(number, need, [sent, answered], &Ok(allowed));
    }

    fn ask(
        &mut self,
        number: u128,
        (name, units): (&str, u64),
        [sent, answered]: [f64; 2],
        answer: &Result<Decision, ReserveError>,
    ) {
        let needs = Requirements::of([(key(name), units)]).unwrap();
        self.0.reserve_sent(&ReserveRequest::new(lease(number), needs), at(sent));
        self.0.reserve_answered(lease(number), answer, at(answered));
    }

    fn complete(&mut self, number: u128, actuals: &[(&str, u64)], sent: f64) {
        let actuals = actuals.iter().map(|(name, units)| (key(name), *units));
        let actuals = Actuals::of(actuals).unwrap();
        self.0.complete_sent(&CompleteRequest::new(lease(number), actuals), at(sent));
        self.0.complete_answered(lease(number));
    }

    #[track_caller]
    fn expect(&self, over_admissions: u64, changed: usize) {
        let violations = self.0.violations();
        let counts = (violations.over_admissions, violations.changed.len());
        assert_eq!(counts, (over_admissions, changed), "{violations:?}");
        assert_eq!(violations.is_empty(), counts == (0, 0));
    }
}

fn denied() -> Decision {
    let reason = DenialReason::NoRoom { keys: vec![key("rate")] };
    Decision::Denied(Denial { reason, retry_after: Duration::ZERO })
}

#[test]
fn what_fits_is_no_violation() {
    let mut clients = Clients::new();
    clients.reserve(1, ("rate", 10), [0.0, 0.1]);
    clients.reserve(2, ("rate", 10), [2.0, 2.1]);
    clients.reserve(3, ("slots", 6), [0.0, 0.1]);
    clients.complete(3, &[], 0.5);
    clients.reserve(4, ("slots", 10), [0.4, 0.5]);
    clients.expect(0, 0);
}

#[test]
fn more_than_the_capacity_in_a_window_is_found_by_both_clocks() {
    let mut clients = Clients::new();
    clients.reserve(1, ("rate", 6), [0.0, 0.1]);
    clients.reserve(2, ("rate", 6), [1.0, 1.1]);
    clients.expect(2, 0);
    assert_eq!(clients.0.violations().worst, Some(("rate".to_owned(), 2)));
}

#[test]
fn a_late_answer_is_found_by_the_backends_clock_alone() {
    let mut clients = Clients::new();
    clients.reserve(1, ("rate", 6), [0.0, 1.5]);
    clients.reserve(2, ("rate", 6), [0.1, 2.5]);
    clients.expect(1, 0);
}

#[test]
fn a_hold_beside_another_is_found_until_its_complete_is_sent() {
    for (completed_at, count) in [(0.2, 0), (0.9, 1)] {
        let mut clients = Clients::new();
        clients.reserve(1, ("slots", 6), [0.0, 0.1]);
        clients.reserve(2, ("slots", 6), [0.1, 0.5]);
        clients.complete(1, &[], completed_at);
        clients.expect(count, 0);
    }
}

#[test]
fn an_actual_is_left_of_a_reservation() {
    for (actual, count) in [(4, 0), (5, 2)] {
        let mut clients = Clients::new();
        clients.reserve(1, ("rate", 10), [0.0, 0.1]);
        clients.complete(1, &[("rate", actual)], 0.2);
        clients.reserve(2, ("rate", 6), [0.3, 0.4]);
        clients.expect(count, 0);
    }
}

#[test]
fn a_lost_lease_is_left_out_of_what_is_kept() {
    let mut clients = Clients::new();
    clients.reserve(1, ("rate", 6), [0.0, 0.1]);
    clients.reserve(2, ("rate", 6), [1.0, 1.1]);
    assert_eq!(clients.0.allowed_since(at(1.0)), [lease(2)]);
    clients.0.note_lost(lease(1));
    clients.expect(2, 0);
    assert!(clients.0.violations_of_kept().is_empty());
}

#[test]
fn an_answer_that_is_repeated_is_the_same() {
    let mut clients = Clients::new();
    let unanswered = Unanswered { reason: String::new(), retry_after: Duration::ZERO };
    clients.ask(1, ("rate", 1), [0.0, 0.1], &Err(unanswered.into()));
    let allowed = Decision::Allowed { reserved_at: at(0.0), shadow_denied: Vec::new() };
    for second in [0.2, 0.3] {
        clients.ask(1, ("rate", 1), [second, second], &Ok(allowed.clone()));
    }
    // It has lapsed.
    clients.ask(1, ("rate", 1), [2.0, 2.0], &Err(ReserveError::LeaseEnded));
    for second in [0.2, 0.3] {
        clients.ask(2, ("rate", 1), [second, second], &Ok(denied()));
    }
    clients.reserve(3, ("slots", 1), [0.0, 0.1]);
    clients.complete(3, &[], 0.2);
    clients.ask(3, ("slots", 1), [0.3, 0.4], &Err(ReserveError::LeaseEnded));
    clients.expect(0, 0);
    assert_eq!(clients.0.last_told(2).len(), 2);
}

/// As it would be after each of these was forgotten.
#[test]
fn another_answer_to_the_same_lease_is_found() {
    let allowed =
        |second| Ok(Decision::Allowed { reserved_at: at(second), shadow_denied: Vec::new() });
    let ended = || Err(ReserveError::LeaseEnded);
    for (before, after) in [
        (allowed(0.0), allowed(0.5)),
        (allowed(0.0), Ok(denied())),
        (allowed(0.0), ended()),
        (Ok(denied()), allowed(0.5)),
        (Ok(denied()), ended()),
        (allowed(0.0), Err(ReserveError::LeaseConflict)),
    ] {
        let mut clients = Clients::new();
        clients.ask(1, ("slots", 1), [0.0, 0.1], &before);
        clients.expect(0, 0);
        clients.ask(1, ("slots", 1), [0.5, 0.6], &after);
        clients.expect(0, 1);
    }
}

#[test]
fn a_lost_complete_is_found() {
    let mut clients = Clients::new();
    clients.reserve(1, ("slots", 1), [0.0, 0.1]);
    clients.complete(1, &[], 0.2);
    let allowed = Decision::Allowed { reserved_at: at(0.0), shadow_denied: Vec::new() };
    clients.ask(1, ("slots", 1), [0.5, 0.6], &Ok(allowed));
    clients.expect(0, 1);
}

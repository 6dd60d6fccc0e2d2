//! Gates without an `Admission`, as durable jobs use them.

use std::time::Duration;

use super::super::{Denials, FIRST_LASTS_MAX, GateId, Gates, Owner};
use super::START;
use crate::LimitKey;

const SECOND: Duration = Duration::from_secs(1);

fn key() -> LimitKey {
    LimitKey::new("rpm").unwrap()
}

/// Gates with one gate, which one waiter needs.
fn one_gate() -> (Gates<u32>, GateId) {
    let mut gates = Gates::default();
    let gate = gates.enter(&key());
    (gates, gate)
}

#[test]
fn after_a_denial_a_gate_opens_for_1_2_4_8_and_then_for_all() {
    let (mut gates, gate) = one_gate();
    assert_eq!(gates.width(gate), usize::MAX);
    gates.widen(gate, 8);
    assert_eq!(gates.width(gate), usize::MAX, "it is open already");
    gates.close(START, gate, 5, START.after(SECOND), 0);
    for width in [1, 2, 4, 8] {
        for _ in 0..width {
            assert_eq!(gates.width(gate), width);
            gates.widen(gate, 8);
        }
    }
    assert_eq!(gates.width(gate), usize::MAX);
}

#[test]
fn a_denial_resets_the_count_of_allows() {
    let (mut gates, gate) = one_gate();
    for _ in 0..8 {
        gates.ask(gate);
    }
    gates.close(START, gate, 5, START.after(SECOND), 0);
    gates.widen(gate, 8);
    assert_eq!(gates.width(gate), 4, "one of four was allowed");
    gates.close(START, gate, 5, START.after(SECOND), 0);
    gates.widen(gate, 8);
    assert_eq!(gates.width(gate), 2, "one of two was allowed, and not two");
}

#[test]
fn a_denial_of_amount_1_closes_the_gate_for_all() {
    let (mut gates, gate) = one_gate();
    let until = START.after(SECOND);
    gates.close(START, gate, 2, until, gates.releases());
    assert_eq!(gates.closed_until(START, gate, 1), None, "half of what was denied may pass");
    assert_eq!(gates.closed_until(START, gate, 2), Some(until));
    gates.close(START, gate, 1, until, gates.releases());
    assert_eq!(gates.closed_until(START, gate, 1), Some(until));
    assert_eq!(gates.closed_until(until, gate, 1), None, "its time is over");
    gates.close(START, gate, 1, until, gates.releases());
    assert_eq!(gates.release(&key()), Some(gate));
    assert_eq!(gates.closed_until(START, gate, 1), None, "room came back");
}

/// SCH-05
#[test]
fn sch_05_going_first_ends_at_its_time() {
    let (mut gates, gate) = one_gate();
    let (until, later) = (START.after(SECOND), START.after(SECOND * 2));
    assert!(gates.put_first(START, gate, 7, Some(until)));
    gates.release(&key());
    assert_eq!(gates.kept_until(START, gate), Some(until), "room that comes back is for it");
    assert!(!gates.put_first(START, gate, 3, Some(later)), "there is one already");
    assert!(gates.put_first(START, gate, 7, Some(until)), "it is the one");
    assert_eq!(gates.kept_until(until, gate), None);
    assert!(gates.put_first(until, gate, 3, Some(later)), "its time is over");
    assert_eq!(gates.kept_until(until, gate), Some(later));
    gates.leave(gate);
    assert!(gates.is_empty(), "{gates:?}");
}

/// SCH-05
#[test]
fn sch_05_who_was_denied_too_often_goes_first_for_two_minutes() {
    let mut denials = Denials::default();
    let mut counts = |now| denials.count(now, Owner::Shared, 3);
    assert_eq!([START; 4].map(&mut counts), [false, false, true, true]);
    assert!(counts(START.after(FIRST_LASTS_MAX)), "at the end of its time");
    assert!(!counts(START.after(FIRST_LASTS_MAX + SECOND)), "and after it");
}

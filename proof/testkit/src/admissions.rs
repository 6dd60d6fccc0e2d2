//! What clients know of their leases, from their own requests and the answers alone, and what of it cannot be true.
//!
//! Neither of two sums is ever more than what a backend really holds, so one above a capacity is an over-admission:
//!
//! - By the clients' clock a reservation certainly counts from the arrival of its answer until a window, or timeout, after its request
//!   was first sent. A hold ends at the latest when its complete is first sent; of a reservation the actual may be left from then on.
//! - By the backend's clock a reservation of a rolling limit counts for a window from `reserved_at`, with what its complete left of it.
//!
//! Besides, the same lease has the same answer: whoever was told that it is allowed is never told otherwise, unless it was
//! completed or part of it may have lapsed. A backend that has lost a lease gives another answer.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{CompleteRequest, Decision, LeaseId, Limit, ReserveError, ReserveRequest};

/// The clients' clock and that of a backend may drift apart by so much within a window.
const DRIFT: Duration = Duration::from_millis(20);
/// `reserved_at` is cut to milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// The leases of all clients of a test.
#[derive(Debug)]
pub struct Admissions {
    limits: Vec<Limit>,
    leases: HashMap<LeaseId, KnownLease>,
    /// In the order of their first requests.
    order: Vec<LeaseId>,
    changed: Vec<String>,
}

/// What cannot be true.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations {
    /// How often a reservation was admitted above a capacity.
    pub over_admissions: u64,
    /// The most units of a limit that were certainly held above its capacity, with its key.
    pub worst: Option<(String, u64)>,
    /// Answers that contradict earlier ones.
    pub changed: Vec<String>,
}

#[derive(Debug)]
struct KnownLease {
    request: ReserveRequest,
    /// When it was first asked for.
    sent_at: Timestamp,
    told: Told,
    complete: Option<KnownComplete>,
    is_lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Allowed { answered_at: Timestamp, reserved_at: Timestamp },
    Denied,
    Ended,
}

#[derive(Debug)]
struct KnownComplete {
    request: CompleteRequest,
    /// When it was first sent.
    sent_at: Timestamp,
    is_answered: bool,
}

/// Units that are certainly held for a while.
#[derive(Debug, Clone, Copy)]
struct Held {
    from: Timestamp,
    to: Timestamp,
    units: u64,
}

impl Admissions {
    /// Knows these limits, which do not change, and no lease.
    pub fn new(limits: Vec<Limit>) -> Self {
        Self { limits, leases: HashMap::new(), order: Vec::new(), changed: Vec::new() }
    }

    /// A reserve is sent, for the first time or again.
    pub fn reserve_sent(&mut self, request: &ReserveRequest, now: Timestamp) {
        self.leases.entry(request.lease).or_insert_with(|| {
            self.order.push(request.lease);
            KnownLease {
                request: request.clone(),
                sent_at: now,
                told: Told::Nothing,
                complete: None,
                is_lost: false,
            }
        });
    }

    /// A reserve is answered. One without an answer tells nothing.
    ///
    /// # Panics
    /// It was not sent.
    pub fn reserve_answered(
        &mut self,
        lease: LeaseId,
        answer: &Result<Decision, ReserveError>,
        now: Timestamp,
    ) {
        let told = match answer {
            Err(ReserveError::Unanswered(_)) => return,
            Ok(Decision::Allowed { reserved_at, .. }) => {
                Told::Allowed { answered_at: now, reserved_at: *reserved_at }
            }
            Ok(Decision::Denied(_)) => Told::Denied,
            Err(ReserveError::LeaseEnded) => Told::Ended,
            Err(error) => return self.changed.push(format!("{lease}: {error}")),
        };
        let known = self.leases.get_mut(&lease).expect("it was sent");
        if known.can_be_told(&self.limits, told, now) {
            if known.told == Told::Nothing {
                known.told = told;
            }
        } else {
            let Self { changed, .. } = self;
            changed.push(format!("{lease}: {:?}, and then {told:?}: {known:?}", known.told));
        }
    }

    /// A complete is sent, for the first time or again.
    ///
    /// # Panics
    /// Its lease was never asked for.
    pub fn complete_sent(&mut self, request: &CompleteRequest, now: Timestamp) {
        let known = self.leases.get_mut(&request.lease).expect("it was reserved");
        known.complete.get_or_insert_with(|| {
            let request = request.clone();
            KnownComplete { request, sent_at: now, is_answered: false }
        });
    }

    /// A complete has succeeded.
    ///
    /// # Panics
    /// It was not sent.
    pub fn complete_answered(&mut self, lease: LeaseId) {
        let known = self.leases.get_mut(&lease).and_then(|known| known.complete.as_mut());
        known.expect("it was sent").is_answered = true;
    }

    /// The requests of the last `count` leases of which something was told, to ask for them again.
    pub fn last_told(&self, count: usize) -> Vec<ReserveRequest> {
        let known = self.order.iter().rev().map(|lease| &self.leases[lease]);
        let told = known.filter(|known| known.told != Told::Nothing);
        told.take(count).map(|known| known.request.clone()).collect()
    }

    /// The leases that were allowed since a moment, whether or not they were completed since then.
    pub fn allowed_since(&self, since: Timestamp) -> Vec<LeaseId> {
        let is_since = |known: &KnownLease| matches!(known.told, Told::Allowed { answered_at, .. } if answered_at >= since);
        self.order.iter().filter(|lease| is_since(&self.leases[*lease])).copied().collect()
    }

    /// The backend has certainly lost this lease: from now on [`Admissions::violations_of_kept`] leaves it out.
    ///
    /// # Panics
    /// It was never asked for.
    pub fn note_lost(&mut self, lease: LeaseId) {
        self.leases.get_mut(&lease).expect("it was reserved").is_lost = true;
    }

    /// What cannot be true.
    pub fn violations(&self) -> Violations {
        self.violations_of(|_| true)
    }

    /// What cannot be true although some leases were lost: over-admissions among the others.
    pub fn violations_of_kept(&self) -> Violations {
        Violations { changed: Vec::new(), ..self.violations_of(|known| !known.is_lost) }
    }

    fn violations_of(&self, counts: impl Fn(&KnownLease) -> bool) -> Violations {
        let mut violations = Violations { changed: self.changed.clone(), ..Violations::default() };
        for limit in &self.limits {
            let (mut by_clients, mut by_backend) = (Vec::new(), Vec::new());
            for known in self.leases.values().filter(|known| counts(known)) {
                by_clients.extend(known.held_by_clients(limit).into_iter().flatten());
                by_backend.extend(known.held_by_backend(limit));
            }
            for held in [by_clients, by_backend] {
                let (count, excess) = above(limit.capacity.get(), held);
                violations.over_admissions += count;
                if excess > violations.worst.as_ref().map_or(0, |(_, units)| *units) {
                    violations.worst = Some((limit.key.to_string(), excess));
                }
            }
        }
        violations
    }
}

impl Violations {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl KnownLease {
    /// Whether this answer may follow what was told before.
    fn can_be_told(&self, limits: &[Limit], told: Told, now: Timestamp) -> bool {
        let is_completed = self.complete.as_ref().is_some_and(|complete| complete.is_answered);
        let may_have_ended = self.complete.is_some() || self.may_have_lapsed(limits, now);
        match (self.told, told) {
            (_, Told::Ended) if self.told != Told::Denied => may_have_ended,
            (Told::Allowed { reserved_at: one, .. }, Told::Allowed { reserved_at: other, .. }) => {
                one == other && !is_completed
            }
            (Told::Nothing, Told::Allowed { .. }) => !is_completed,
            (Told::Nothing | Told::Denied, Told::Denied) => true,
            _ => false,
        }
    }

    /// Whether the window or timeout of any of its limits may have passed.
    fn may_have_lapsed(&self, limits: &[Limit], now: Timestamp) -> bool {
        let is_needed =
            |limit: &&Limit| self.request.requirements.iter().any(|need| need.key == limit.key);
        let mut needed = limits.iter().filter(is_needed);
        needed.any(|limit| now.after(DRIFT) >= limit.kind.expires_at(self.sent_at))
    }

    fn units(&self, limit: &Limit) -> Option<u64> {
        let need = self.request.requirements.iter().find(|need| need.key == limit.key)?;
        Some(need.amount.get())
    }

    /// What certainly is left of a reservation when it is completed.
    fn units_left(&self, limit: &Limit, units: u64) -> u64 {
        let actuals = self.complete.as_ref().map(|complete| &complete.request.actuals);
        let actual = actuals.and_then(|all| all.iter().find(|actual| actual.key == limit.key));
        match actual {
            _ if limit.kind.is_concurrency() && self.complete.is_some() => 0,
            Some(actual) => actual.amount.min(units),
            None => units,
        }
    }

    /// What it certainly holds of a limit, by the clients' clock.
    fn held_by_clients(&self, limit: &Limit) -> Option<[Held; 2]> {
        let Told::Allowed { answered_at, .. } = self.told else { return None };
        let units = self.units(limit)?;
        let lapses_at = limit.kind.expires_at(self.sent_at);
        let to = Timestamp::from_unix_nanos(lapses_at.unix_nanos() - nanos(DRIFT));
        let completed_at = self.complete.as_ref().map_or(to, |complete| complete.sent_at.min(to));
        let before = Held { from: answered_at, to: completed_at, units };
        let left = self.units_left(limit, units);
        let after = Held { from: completed_at.max(answered_at), to, units: left };
        Some([before, after])
    }

    /// What it certainly has reserved of a rolling limit, by the backend's clock.
    fn held_by_backend(&self, limit: &Limit) -> Option<Held> {
        let Told::Allowed { reserved_at, .. } = self.told else { return None };
        let units = self.units(limit).filter(|_| !limit.kind.is_concurrency())?;
        let to = limit.kind.expires_at(reserved_at);
        let units = self.units_left(limit, units);
        Some(Held { from: reserved_at.after(ROUNDING), to, units })
    }
}

/// How many of these begin when more than the capacity is held, and by how much it is exceeded at most.
fn above(capacity: u64, held: Vec<Held>) -> (u64, u64) {
    let held = held.into_iter().filter(|held| held.from < held.to && held.units > 0);
    let mut moments: Vec<_> = held
        .flat_map(|Held { from, to, units }| [(from, true, units), (to, false, units)])
        .collect();
    // What ends at a moment makes room for what begins then.
    moments.sort_unstable();
    let (mut sum, mut count, mut excess) = (0, 0, 0);
    for (_, begins, units) in moments {
        if begins {
            sum += units;
            count += u64::from(sum > capacity);
            excess = excess.max(sum.saturating_sub(capacity));
        } else {
            sum -= units;
        }
    }
    (count, excess)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a short time")
}

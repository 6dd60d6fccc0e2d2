//! The end of a renewed lease: the same steps, for each of its parts (`TB-18`).

use ratelimiter::clock::Timestamp;
use ratelimiter::{Actuals, CompleteError, LeaseId, LimitKey, LimitKind};

use super::plan::{AccountState, CompletePlan, CompleteStep, used_of};
use crate::ids;
use crate::ledger::Transfer;
use crate::limiter::codes::{ReservationKind, user_data};
use crate::limiter::lease::Lease;
use crate::limiter::renewed_lease::{Part, RenewedLease};
use crate::limiter::reservation::Reservation;
use crate::limiter::table::LimitTable;

/// Plans the end of a renewed lease. Its marker tells whether another complete or renew was first.
pub(super) fn plan(
    lease: &Lease,
    renewed: &RenewedLease,
    actuals: &Actuals,
    now: Timestamp,
    table: &LimitTable,
) -> Result<Option<CompletePlan>, CompleteError> {
    if !renewed.parts.iter().any(|part| part.is_live(now)) {
        return Ok(None);
    }
    let used = used_of(lease, actuals, table)?;
    let mut plan = CompletePlan::new(lease);
    // A server that has not heard of denied renews ends the lease by the void of its first hold. Whatever
    // our clock says, only the ledger knows whether one has.
    let is_hold = |held: &Reservation| held.kind == ReservationKind::Hold;
    let first_hold = lease.reservations.iter().position(is_hold).filter(|_| !renewed.is_renewed);
    for (at, (first, used)) in lease.reservations.iter().zip(used).enumerate() {
        if first.kind == ReservationKind::Hold {
            let is_tried = |part: &&Part| part.is_live(now) || first_hold == Some(at);
            let parts = renewed.parts.iter().filter(|part| part.at == at).filter(is_tried);
            plan.steps.extend(parts.map(|part| release(lease.id, part)));
            continue;
        }
        let Some((key, actual)) = used else { continue };
        let live = lease.live_parts(at, now);
        let lapsed = renewed.parts.iter().filter(|part| part.at == at && !part.is_live(now));
        let lapsed = lapsed.fold(0, |sum: u64, part| sum.saturating_add(part.held.amount));
        // What has lapsed has counted, and covers the first units of the use.
        let rest = actual.saturating_sub(lapsed);
        if !live.is_empty() {
            reconcile(&mut plan, lease.id, key, rest, &live, table);
        } else if let Some(definition) = table.definition_of(key) {
            let is_same = match definition.kind {
                LimitKind::Calendar { .. } => first.kind == ReservationKind::Calendar,
                LimitKind::Rolling { .. } => {
                    first.kind == ReservationKind::Reservation && renewed.is_renewed
                }
                LimitKind::Concurrency { .. } => false,
            };
            if is_same {
                plan.add_late_excess(key, rest, definition.overage);
            }
        }
    }
    Ok(Some(plan))
}

/// Makes the live parts of a limit match the use that they are to cover: what would lapse first goes
/// first, and an excess is covered until the last part lapses.
fn reconcile(
    plan: &mut CompletePlan,
    lease: LeaseId,
    key: &LimitKey,
    actual: u64,
    live: &[Part],
    table: &LimitTable,
) {
    let mut left = actual;
    for part in live.iter().rev() {
        let kept = left.min(part.held.amount);
        left -= kept;
        if kept == 0 && part.held.amount > 0 {
            plan.steps.push(release(lease, part));
        } else if kept < part.held.amount {
            plan.steps.push(CompleteStep::Shrink {
                key: key.clone(),
                reservation: part.held,
                actual: kept,
                account: AccountState::Untried,
            });
        }
    }
    // A deleted limit has no policy, and its debt is not read.
    if let (Some(last), Some(definition)) = (live.last(), table.definition_of(key))
        && left > 0
    {
        let (key, overage) = (key.clone(), definition.overage);
        let reservation = last.held;
        plan.steps.push(CompleteStep::Cover {
            key,
            reservation,
            excess: left,
            overage,
            burned: false,
        });
    }
}

fn release(lease: LeaseId, part: &Part) -> CompleteStep {
    let pending = part.held.transfer;
    let label = format!("xfer:void:{lease}:#{:032x}", pending.get());
    let id = ids::transfer_at(lease.timestamp_ms(), &label);
    CompleteStep::Release(Transfer::void(id, pending).with_user_data(user_data(lease, None)))
}

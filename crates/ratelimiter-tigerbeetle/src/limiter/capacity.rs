//! Capacity: bringing the accounts of limits to what their definitions say, many at a time.
//!
//! All accounts are looked up, a plain function says what each needs (`plan`), and only that is
//! written: an account that is where it shall be costs no transfer. Whoever else changes an account
//! meanwhile has left its version, so that ours does nothing, and it is looked at again.

mod batch;
mod plan;

use std::collections::BTreeSet;

use ratelimiter::{
    Capacity, DefineError, DeleteError, Limit, LimitKey, LimitStatus, RegisteredLimit, Unanswered,
};

use self::plan::{Aim, ChangeReply, Goal, Settled, Step, Stragglers};
pub(super) use self::plan::{Attempt, Version};
use super::TigerBeetleLimiter;
use super::unanswered::{RETRY_AFTER, not_foreseen};
use crate::ids;
use crate::ledger::{Ledger, WorkItem};

/// How often a change is tried anew when others change the same account at the same time. Each time
/// one of them gets through, so this many must be at it.
pub(super) const CHANGE_ATTEMPTS_MAX: usize = 64;

/// What only changes of limits, and the upkeep, look at.
#[derive(Debug, Default)]
pub(super) struct Admin {
    /// Limits whose last change was not answered, so that it may still arrive. The next tick shuts
    /// such a straggler out.
    pub(super) uncertain: BTreeSet<LimitKey>,
}

/// A chain to send.
struct Change {
    /// The number of the goal that it is for.
    goal: usize,
    chain: WorkItem,
    /// What the goal has come to once it is applied, and whether that changes a capacity.
    then: Settled,
    is_change: bool,
}

/// What has become of a goal; `None` while it is not known.
type Outcome = Option<Result<Settled, Unanswered>>;

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// Whether a lower capacity of the limit waits for units to return; `None` if the limit is not
    /// defined here.
    pub fn waits(&self, key: &LimitKey) -> Option<bool> {
        self.read_table().get(key).map(|limit| limit.registered.waits())
    }

    pub(super) async fn define_limit(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let mut admin = self.admin.lock().await;
        let known = self.read_table().get(&limit.key).cloned();
        if let Some(known) = &known {
            known.registered.redefined(limit.clone())?;
        }
        // Somebody else may have tried to define a limit that is new here.
        let is_uncertain = known.is_none() || admin.uncertain.contains(&limit.key);
        let goal = goal(&limit.key, Aim::Bring { to: limit.capacity }, is_uncertain);
        let mut outcomes = self.settle_all(&mut admin, vec![goal]).await;
        let settled = outcomes.pop().expect("there is one outcome a goal")?;
        let registered = registered_as(limit, settled)?;
        let status = registered.status;
        self.write_table().put(registered);
        Ok(status)
    }

    pub(super) async fn delete_limit(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let _turn = self.admin.lock().await;
        if self.write_table().remove(key) {
            return Ok(());
        }
        Err(DeleteError::UnknownKey { key: key.clone() })
    }

    /// As [`restore_all`](Self::restore_all), with one limit of which no change is unconfirmed.
    ///
    /// # Errors
    /// The cluster gave no answer; the limit is as it was here.
    pub async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        Ok(self.restore_all(vec![registered], &BTreeSet::new()).await?[0])
    }

    /// Puts limits back as they were registered, and brings their accounts there (`TB-08`): what is
    /// missing is made, the capacity is funded or taken back, and a decrease is resumed. It does
    /// not matter at which point an earlier change was cut short. Nothing is written for an account
    /// that is there already.
    ///
    /// `unconfirmed` are the limits whose last change was begun and not confirmed, by a process that
    /// may be gone: it may still be on its way, and is shut out. They need not be among `limits`.
    ///
    /// # Errors
    /// The cluster gave no answer for at least one of them; that one is as it was here.
    pub async fn restore_all(
        &self,
        limits: Vec<RegisteredLimit>,
        unconfirmed: &BTreeSet<LimitKey>,
    ) -> Result<Vec<LimitStatus>, Unanswered> {
        let mut admin = self.admin.lock().await;
        let is_uncertain =
            |key: &LimitKey| unconfirmed.contains(key) || admin.uncertain.contains(key);
        let mut goals: Vec<Goal> = Vec::with_capacity(limits.len());
        for registered in &limits {
            let key = &registered.limit.key;
            goals.push(goal(key, Aim::Bring { to: registered.target() }, is_uncertain(key)));
        }
        let given: BTreeSet<&LimitKey> = limits.iter().map(|limit| &limit.limit.key).collect();
        for key in unconfirmed.iter().filter(|key| !given.contains(key)) {
            goals.push(goal(key, self.aim_of(key), true));
        }
        let outcomes = self.settle_all(&mut admin, goals).await;
        let shut_out = outcomes[limits.len()..].iter().find_map(|outcome| outcome.clone().err());
        let mut statuses = Ok(Vec::with_capacity(limits.len()));
        let mut table = self.write_table();
        for (registered, outcome) in limits.into_iter().zip(outcomes) {
            let limit = Limit { capacity: registered.target(), ..registered.limit };
            match outcome.and_then(|settled| registered_as(limit, settled)) {
                Ok(registered) => {
                    if let Ok(statuses) = &mut statuses {
                        statuses.push(registered.status);
                    }
                    table.put(registered);
                }
                Err(unanswered) => statuses = statuses.and(Err(unanswered)),
            }
        }
        match shut_out {
            Some(unanswered) => statuses.and(Err(unanswered)),
            None => statuses,
        }
    }

    /// What an account whose last change is uncertain shall come to.
    fn aim_of(&self, key: &LimitKey) -> Aim {
        match self.read_table().get(key) {
            Some(limit) => Aim::Bring { to: limit.registered.target() },
            None => Aim::Guard,
        }
    }

    /// Ends the decreases that have become possible, and brings accounts back to their definitions
    /// whose last change was not answered.
    pub(super) async fn settle_decreases(&self) -> Result<(), Unanswered> {
        let Ok(mut admin) = self.admin.try_lock() else {
            return Ok(());
        };
        let uncertain = admin.uncertain.iter();
        let mut goals: Vec<Goal> = uncertain.map(|key| goal(key, self.aim_of(key), true)).collect();
        for limit in self.read_table().decreasing() {
            if !admin.uncertain.contains(limit.key()) {
                let aim = Aim::Finish { to: limit.registered.target() };
                goals.push(goal(limit.key(), aim, false));
            }
        }
        if goals.is_empty() {
            return Ok(());
        }
        let outcomes = self.settle_all(&mut admin, goals.clone()).await;
        let mut noted = Ok(());
        for (Goal { key, aim, .. }, outcome) in goals.iter().zip(outcomes) {
            noted = noted.and(match (aim, outcome) {
                (Aim::Finish { .. }, Ok(Settled::Waits { .. })) => Ok(()),
                (_, outcome) => outcome.and_then(|settled| self.take_note(key, settled)),
            });
        }
        noted
    }

    /// Holds a limit defined as its account is now.
    fn take_note(&self, key: &LimitKey, settled: Settled) -> Result<(), Unanswered> {
        let mut table = self.write_table();
        let Some(known) = table.get(key).cloned() else {
            return Ok(());
        };
        let capacity = known.registered.target();
        let limit = Limit { capacity, ..known.registered.limit.clone() };
        let registered = registered_as(limit, settled)?;
        if registered != known.registered {
            let status = registered.status;
            table.put(registered);
            drop(table);
            tracing::info!(%key, ?status, "capacity settled");
        }
        Ok(())
    }

    /// Brings accounts to their goals, as far as it goes; what has become of each, in their order.
    ///
    /// A goal whose chain has no answer stays among the uncertain ones.
    async fn settle_all(
        &self,
        admin: &mut Admin,
        mut goals: Vec<Goal>,
    ) -> Vec<Result<Settled, Unanswered>> {
        let mut outcomes: Vec<Outcome> = vec![None; goals.len()];
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            if let Err(unanswered) = self.try_all(admin, &mut goals, &mut outcomes).await {
                for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
                    *outcome = Some(Err(unanswered.clone()));
                }
            }
            if outcomes.iter().all(Option::is_some) {
                break;
            }
        }
        let result = |(goal, outcome): (&Goal, Outcome)| {
            let outcome = outcome.unwrap_or_else(|| Err(contested(&goal.key)));
            if outcome.is_ok() {
                admin.uncertain.remove(&goal.key);
            }
            outcome
        };
        goals.iter().zip(outcomes).map(result).collect()
    }

    /// Tries once what the goals need that have no outcome yet.
    async fn try_all(
        &self,
        admin: &mut Admin,
        goals: &mut [Goal],
        outcomes: &mut [Outcome],
    ) -> Result<(), Unanswered> {
        let changes = self.plan_changes(goals, outcomes).await?;
        for changes in batch::parts(changes, self.events_at_once()) {
            // Also if this is given up before there is an answer.
            admin.uncertain.extend(changes.iter().map(|change| goals[change.goal].key.clone()));
            let replies = self.carry_out(&changes).await?;
            for (Change { goal: at, then, is_change, .. }, reply) in
                changes.into_iter().zip(replies)
            {
                let goal = &mut goals[at];
                // What was uncertain before is so until it is settled.
                if goal.stragglers == Stragglers::None {
                    admin.uncertain.remove(&goal.key);
                }
                match reply {
                    ChangeReply::Applied => {
                        outcomes[at] = Some(Ok(then));
                        self.counters.capacity_changes.add(u64::from(is_change));
                    }
                    ChangeReply::NoRoom => goal.was_refused = true,
                    ChangeReply::Moved => {}
                    ChangeReply::Unexpected(status) => {
                        let key = &goal.key;
                        tracing::error!(%key, ?status, "a capacity could not be changed");
                        outcomes[at] = Some(Err(not_foreseen("change of a capacity", status)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks at the accounts of all goals that have no outcome. Those that are missing are made, and
    /// have their turn the next time.
    async fn plan_changes(
        &self,
        goals: &[Goal],
        outcomes: &mut [Outcome],
    ) -> Result<Vec<Change>, Unanswered> {
        let open = (0..goals.len()).filter(|at| outcomes[*at].is_none());
        let open: Vec<_> = open.map(|at| (at, ids::limit_account(&goals[at].key))).collect();
        let rows = self.rows_of(open.iter().map(|(_, account)| *account).collect()).await?;
        let (mut changes, mut missing) = (Vec::new(), Vec::new());
        for (at, account) in open {
            let goal = &goals[at];
            let Some(row) = rows.get(&account) else {
                match goal.aim {
                    // Without an account there is nothing that a straggler could change.
                    Aim::Guard => outcomes[at] = Some(Ok(Settled::There)),
                    Aim::Bring { .. } | Aim::Finish { .. } => missing.push(&goal.key),
                }
                continue;
            };
            match Version::of(*row).step_to(goal, self.new_attempt()) {
                Step::Settled(settled) => outcomes[at] = Some(Ok(settled)),
                Step::Send { chain, then, is_change } => {
                    changes.push(Change { goal: at, chain, then, is_change });
                }
            }
        }
        self.make_accounts_of(&missing).await?;
        Ok(changes)
    }
}

fn contested(key: &LimitKey) -> Unanswered {
    let reason = format!("others change the capacity of {key} at the same time");
    Unanswered { reason, retry_after: RETRY_AFTER }
}

fn goal(key: &LimitKey, aim: Aim, is_uncertain: bool) -> Goal {
    let stragglers = if is_uncertain { Stragglers::Possible } else { Stragglers::None };
    Goal { key: key.clone(), aim, stragglers, was_refused: false }
}

/// The limit as it is in force, when its account has come to this.
fn registered_as(limit: Limit, settled: Settled) -> Result<RegisteredLimit, Unanswered> {
    let capacity = match settled {
        Settled::There => return Ok(RegisteredLimit::in_force(limit)),
        Settled::Waits { in_force } => in_force,
    };
    let Some(Ok(in_force)) = u64::try_from(capacity).ok().map(Capacity::new) else {
        let key = &limit.key;
        let reason = format!("the account of {key} has a capacity of {capacity}, which none has");
        return Err(Unanswered { reason, retry_after: RETRY_AFTER });
    };
    let to = limit.capacity;
    Ok(RegisteredLimit::going_down(Limit { capacity: in_force, ..limit }, to))
}

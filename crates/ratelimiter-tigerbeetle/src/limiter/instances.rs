//! Limits made from templates (`TB-21`).
//!
//! An instance is a limit account like any other. A server that does not know one *checks* it before
//! a reserve: it creates the accounts if they are missing and brings the capacity to that of the
//! template. All of it is idempotent, so servers that check one instance at once fund it once.
//!
//! The table has the instances that this server knows. One that is idle is forgotten, and its account
//! stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{
    DenialReason, InstanceMark, Limit, LimitKey, LimitState, NoInstance, Page, ReserveError,
    ReserveRequest, Unanswered,
};

use super::TigerBeetleLimiter;
use super::capacity::{AdminState, definition_goal, registered_as};
use super::periods::AccountRequest;
use super::reserve::ReservePlan;
use super::table::{KnownLimit, LimitTable, ResolvedRequirement};
use crate::ledger::Ledger;
use crate::lock::lock;

/// Instances that callers wait for, with the marks of those that count as new.
pub(super) type DueInstances = BTreeMap<LimitKey, Option<Arc<InstanceMark>>>;

/// What a reserve needs whose limits are not all ready.
pub(super) enum NeededInstances {
    /// Check these, and plan it again.
    Check(Vec<LimitKey>),
    /// Nothing: this answers it.
    None(ReservePlan),
}

/// An instance that was not used here for this time is looked at.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// One that is in use, though not by this server, is looked at again after the time for which this
/// server has not used it; at most after this one.
const LOOK_AGAIN_AFTER_MAX: Duration = Duration::from_secs(600);
/// One tick looks at so many instances, or at this part of all, and reads the accounts of so many.
const LOOKED_AT_ONCE: usize = 4_096;
const LOOKED_AT_PART: usize = 64;
const READ_AT_ONCE: usize = 1_000;
/// A page of instances reads the accounts of so many at a time.
const LISTED_AT_ONCE: usize = 1_000;

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// The instances that a reserve needs and that are not ready, for
    /// [`check_instances`](Self::check_instances). None is made for a reserve that is denied anyhow: by
    /// its definitions, or because a limit that is ready has no room.
    pub(super) async fn needed_instances(
        &self,
        request: &ReserveRequest,
        requirements: Vec<ResolvedRequirement>,
    ) -> Result<NeededInstances, ReserveError> {
        let not_ready = requirements.iter().filter(|need| !need.limit.is_ready());
        let keys: Vec<LimitKey> = not_ready.map(|need| need.limit.key().clone()).collect();
        let denied = |requirements, template| {
            let otherwise = Ok(self.deny_closed(DenialReason::TooManyInstances { template }));
            let plan = ReservePlan::DeniedByDefinition { requirements, otherwise };
            Ok(NeededInstances::None(plan))
        };
        if let Err(template) = self.check_instance_bounds(&keys) {
            return denied(requirements, template);
        }
        if let Some(otherwise) = self.refuse_by_definition(&requirements) {
            let plan = ReservePlan::DeniedByDefinition { requirements, otherwise };
            return Ok(NeededInstances::None(plan));
        }
        self.reject_when_expiry_lags()?;
        if let Some(answer) = self.try_ready_limits(request.lease, &requirements).await? {
            return Ok(NeededInstances::None(ReservePlan::Answered(answer)));
        }
        match self.claim_instances(&keys) {
            // Without a template any more, the key is unknown when the reserve is planned again.
            Ok(()) | Err(NoInstance::Unknown { .. }) => Ok(NeededInstances::Check(keys)),
            Err(NoInstance::TooMany { template }) => denied(requirements, template),
        }
    }

    /// Whether those of the instances that are new here can be made (`TPL-07`); otherwise returns the
    /// template of the first one.
    fn check_instance_bounds(&self, keys: &[LimitKey]) -> Result<(), LimitKey> {
        let due = lock(&self.due_instances);
        let table = self.read_table();
        let new = new_instances(keys, &due, &table);
        let first = new.first().and_then(|key| table.template_of(key));
        let now = self.options.clock.now();
        match first {
            Some(template) if !self.instance_bounds.has_room(now, &table.templates, new.len()) => {
                Err(template.clone())
            }
            _ => Ok(()),
        }
    }

    /// Counts those of the instances that are new here. They stay due until some caller has made them.
    fn claim_instances(&self, keys: &[LimitKey]) -> Result<(), NoInstance> {
        let mut due = lock(&self.due_instances);
        let table = self.read_table();
        let new = new_instances(keys, &due, &table);
        let now = self.options.clock.now();
        let made = self.instance_bounds.make(now, &table.templates, &new)?;
        for (limit, mark) in made.instances {
            due.insert(limit.key, Some(Arc::new(mark)));
        }
        Ok(())
    }

    /// Checks instances, whatever their number: a few round trips. Concurrent calls for other
    /// instances join; those for the same one find it done.
    pub(super) async fn check_instances(&self, keys: Vec<LimitKey>) -> Result<(), Unanswered> {
        let mut admin = self.admin.lock().await;
        // They stay due while they are made, so that nobody counts them again.
        let mut due = lock(&self.due_instances).clone();
        // An earlier call may have taken them along and failed.
        for key in keys {
            due.entry(key).or_default();
        }
        let checked = self.check_due(&mut admin, &due).await;
        lock(&self.due_instances).retain(|key, _| !due.contains_key(key));
        checked
    }

    async fn check_due(
        &self,
        admin: &mut AdminState,
        due: &DueInstances,
    ) -> Result<(), Unanswered> {
        let new: Vec<_> = {
            let table = self.read_table();
            due.iter().filter_map(|(key, mark)| instance(&table, key, mark.as_ref())).collect()
        };
        let requests: Vec<_> = new.iter().map(|(limit, _)| AccountRequest::of(limit)).collect();
        let accounts = self.current_accounts(&requests).await?;
        let goals = new.iter().zip(&accounts).map(|((limit, _), account)| {
            definition_goal(limit, *account, admin.uncertain.contains(&limit.key))
        });
        let goals = goals.collect();
        let outcomes = self.create_and_apply_all(admin, goals).await;
        let now = self.options.clock.now();
        let mut checked = Ok(());
        let mut table = self.write_table();
        for (((limit, mark), account), outcome) in new.into_iter().zip(accounts).zip(outcomes) {
            match outcome.and_then(|outcome| registered_as(limit, outcome)) {
                Ok(registered) => {
                    let key = registered.limit.key.clone();
                    table.put_instance(registered, account, mark);
                    table.get(&key).expect("it was put there").record_use(now);
                }
                Err(unanswered) => checked = checked.and(Err(unanswered)),
            }
        }
        checked
    }

    /// Makes instances known that owe a debt since a lease was completed here. Without an answer they
    /// stay unknown, and so they are not listed.
    pub(super) async fn remember_debtors(&self, keys: impl Iterator<Item = &LimitKey>) {
        let debtors: Vec<LimitKey> = {
            let table = self.read_table();
            let is_unknown = |key: &&LimitKey| table.get(key).is_none();
            let unknown = keys.filter(is_unknown);
            unknown.filter(|key| table.templates.all().find(key).is_some()).cloned().collect()
        };
        if !debtors.is_empty()
            && let Err(Unanswered { reason, .. }) = self.check_instances(debtors).await
        {
            tracing::debug!(%reason, "a limit that owes a debt is not listed");
        }
    }

    /// Forgets instances that are idle: nothing of them is reserved at any server, and they owe no debt.
    pub(super) async fn forget_idle_instances(&self) -> Result<(), Unanswered> {
        let now = self.options.clock.now();
        let candidates = self.idle_candidates();
        if candidates.is_empty() {
            return Ok(());
        }
        let states = self.states_of(&candidates).await?;
        let mut table = self.write_table();
        for (limit, state) in candidates.iter().zip(states) {
            let unused_for = limit.counts.unused_for(now);
            if !is_in_use(&state) && !limit.is_decreasing() && unused_for >= IDLE_AFTER {
                table.forget(limit.key());
                continue;
            }
            let again = unused_for.clamp(IDLE_AFTER, LOOK_AGAIN_AFTER_MAX);
            limit.counts.look_again_after(now, again);
            if has_other_capacity(limit, &state) {
                table.set_unchecked(limit.key());
            }
        }
        Ok(())
    }

    /// The next instances that may be idle.
    fn idle_candidates(&self) -> Vec<Arc<KnownLimit>> {
        let now = self.options.clock.now();
        let mut last_looked_at = lock(&self.last_idle_looked_at);
        let table = self.read_table();
        let looked_at = LOOKED_AT_ONCE.max(table.instance_count() / LOOKED_AT_PART);
        let mut room = READ_AT_ONCE;
        let some = table.instances_after(last_looked_at.as_ref(), looked_at, |limit| {
            let may_be_idle = room > 0
                && limit.counts.unused_for(now) >= IDLE_AFTER
                && limit.counts.is_looked_at(now);
            room -= usize::from(may_be_idle);
            may_be_idle
        });
        *last_looked_at = some.last;
        some.limits
    }

    /// A page of the instances of a template that this server knows and that are in use or owe a debt.
    pub(super) async fn instance_states(
        &self,
        page: &Page,
        is_listed: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, Unanswered> {
        let count_max = page.count_max.unwrap_or(usize::MAX);
        let mut part = Page { count_max: Some(LISTED_AT_ONCE), ..page.clone() };
        let mut states = Vec::new();
        loop {
            let limits = self.read_table().page(&part, &is_listed);
            let of_part = self.states_of(&limits).await?;
            states.extend(of_part.into_iter().filter(is_in_use));
            if limits.len() < LISTED_AT_ONCE || states.len() >= count_max {
                break;
            }
            part.after = limits.last().map(|limit| limit.key().clone());
        }
        states.truncate(count_max);
        Ok(states)
    }

    /// The key for which metrics of a limit are kept: its own, or that of the template that governs it.
    /// `None` if a template may have governed the key, and neither a definition nor a template does any
    /// more.
    pub fn metrics_key(&self, key: &LimitKey) -> Option<LimitKey> {
        let table = self.read_table();
        // Each denial at a server asks, and many have never had a template.
        if !table.templates.has_changed() {
            return Some(key.clone());
        }
        let is_defined = table.get(key).is_some_and(|limit| limit.mark().is_none())
            || table.templates.all().get(key).is_some();
        if is_defined { Some(key.clone()) } else { table.template_of(key).cloned() }
    }

    /// The number of instances of each template that this server knows, sorted by key.
    pub fn instances_by_template(&self) -> Vec<(LimitKey, usize)> {
        self.read_table().templates.instance_counts()
    }
}

/// The instances that neither this server knows nor a caller waits for.
fn new_instances<'a>(
    keys: &'a [LimitKey],
    due: &DueInstances,
    table: &LimitTable,
) -> Vec<&'a LimitKey> {
    let is_new = |key: &&LimitKey| table.get(key).is_none() && !due.contains_key(*key);
    keys.iter().filter(is_new).collect()
}

/// The definition of an instance that has to be checked, and its mark; `None` if it is ready, or no
/// template matches any more.
fn instance(
    table: &LimitTable,
    key: &LimitKey,
    claimed: Option<&Arc<InstanceMark>>,
) -> Option<(Limit, Arc<InstanceMark>)> {
    let known = table.get(key);
    if known.is_some_and(|limit| limit.is_ready()) {
        return None;
    }
    let template = table.templates.all().find(key)?;
    let earlier = known.and_then(|limit| limit.mark()).or(claimed).cloned();
    let limit = Limit { key: key.clone(), ..template.clone() };
    let mark = earlier.filter(|mark| *mark.template() == template.key).or_else(|| {
        let (_, mark) = table.templates.instance(key).ok()?;
        Some(Arc::new(mark))
    })?;
    Some((limit, mark))
}

fn is_in_use(state: &LimitState) -> bool {
    state.usage.used > 0 || state.usage.debt > 0
}

/// Whether the account has another capacity than is known here, so that something went wrong. In
/// shadow mode the state does not tell.
fn has_other_capacity(limit: &KnownLimit, state: &LimitState) -> bool {
    let capacity = u128::from(state.usage.used) + u128::from(state.usage.available);
    !limit.is_shadow() && capacity != u128::from(limit.registered.limit.capacity.get())
}

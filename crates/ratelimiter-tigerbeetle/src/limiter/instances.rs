//! Limits made from templates (`TB-21`).
//!
//! An instance is a limit account like any other. A server that does not know one *checks* it before
//! a reserve: it creates the accounts if they are missing and brings the capacity to that of the
//! template. All of it is idempotent, so servers that check one instance at once fund it once.
//!
//! The table has the instances that this server knows. The ticks walk over them, again and again: one
//! whose template has changed is checked, one that is idle is forgotten, and its account stays; one in
//! use is compared with its account from time to time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::admission::Turn;
use ratelimiter::{
    DenialReason, InstanceMark, Limit, LimitKey, LimitState, NoInstance, Page, ReserveError,
    ReserveRequest, Unanswered,
};

use super::TigerBeetleLimiter;
use super::accounts::state;
use super::capacity::{AdminState, Version, definition_goal, registered_as};
use super::due_instances::{DueInstance, DueInstances, FailedChecks, InstanceClaim, first_error};
use super::periods::AccountRequest;
use super::reserve::{NeededInstances, ReservePlan};
use super::table::{KnownLimit, LimitTable, ResolvedRequirement};
use crate::ledger::Ledger;
use crate::lock::lock;

/// An instance that was not used here for this time is looked at.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// One that is in use, though not by this server, is looked at again after the time for which this
/// server has not used it; at most after this one.
const LOOK_AGAIN_AFTER_MAX: Duration = Duration::from_secs(600);
/// The most instances that are checked together, unless one caller needs more, and that one tick looks
/// at.
const INSTANCES_AT_ONCE: usize = 4_000;
/// A page of instances reads the accounts of so many at a time.
const LISTED_AT_ONCE: usize = 1_000;

/// What a tick does with some instances.
#[derive(Default)]
struct WalkStep {
    /// Their templates have changed.
    outdated: Vec<Arc<KnownLimit>>,
    /// Their accounts are read.
    read: Vec<Arc<KnownLimit>>,
}

/// An instance to check.
struct InstanceCheck {
    limit: Limit,
    mark: Arc<InstanceMark>,
    may_change_late: bool,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// The instances that a reserve needs and that are not ready, for
    /// [`check_instances`](Self::check_instances). None is made for a reserve that is denied anyhow: by
    /// its definitions, or because a limit that is ready has no room.
    pub(super) async fn needed_instances(
        &self,
        request: &ReserveRequest,
        requirements: Vec<ResolvedRequirement>,
        turn: Turn<'_>,
    ) -> Result<NeededInstances<'_>, ReserveError> {
        let not_ready = requirements.iter().filter(|need| !need.limit.is_made());
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
        if let Some(answer) = self.try_ready_limits(request, &requirements, turn).await? {
            return Ok(NeededInstances::None(ReservePlan::Answered(answer)));
        }
        match self.claim_new_instances(keys) {
            Ok(claim) => Ok(NeededInstances::Check(claim)),
            // The key is unknown when the reserve is planned again.
            Err(NoInstance::Unknown { .. }) => {
                Ok(NeededInstances::Check(self.claim_instances(Vec::new())))
            }
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
            Some(template)
                if !self.instance_bounds.has_room(now, table.templates.counted(), new.len()) =>
            {
                Err(template.clone())
            }
            _ => Ok(()),
        }
    }

    /// Claims instances, and counts those that are new here.
    fn claim_new_instances(&self, keys: Vec<LimitKey>) -> Result<InstanceClaim<'_>, NoInstance> {
        let mut due = lock(&self.due_instances);
        let table = self.read_table();
        let new = new_instances(&keys, &due, &table);
        let now = self.options.clock.now();
        let made = self.instance_bounds.make(now, table.templates.counted(), &new)?;
        for (limit, mark) in made.instances {
            due.entry(limit.key).or_default().mark = Some(Arc::new(mark));
        }
        Ok(InstanceClaim::new(&self.due_instances, &mut due, keys))
    }

    /// Checks instances that a lease holds, whatever their number.
    pub(super) async fn check_held_instances(&self, keys: Vec<LimitKey>) -> FailedChecks {
        let claim = self.claim_instances(keys);
        self.check_instances(&claim.keys).await
    }

    /// Claims instances, whatever their number.
    fn claim_instances(&self, keys: Vec<LimitKey>) -> InstanceClaim<'_> {
        InstanceClaim::new(&self.due_instances, &mut lock(&self.due_instances), keys)
    }

    /// Checks instances that were claimed, in a few round trips. Concurrent calls for other instances
    /// join; those for the same one find it done. The caller may not stay until it is done: then the
    /// next one, or the tick, begins anew. Returns those of the keys that failed.
    pub(super) async fn check_instances(&self, keys: &[LimitKey]) -> FailedChecks {
        if keys.is_empty() {
            return FailedChecks::new();
        }
        // One caller at a time waits for `admin`, so that the tick and other changes have their turn.
        let _turn = self.checking.lock().await;
        let is_done = {
            let table = self.read_table();
            !keys.iter().any(|key| table.needs_check(key))
        };
        if is_done {
            return FailedChecks::new();
        }
        let mut admin = self.admin.lock().await;
        let mut failed = self.check_all(&mut admin, &self.due_after(keys)).await;
        failed.retain(|key, _| keys.contains(key));
        failed
    }

    /// Checks the instances that callers wait for. The tick has no deadline, as a caller has.
    pub(super) async fn check_due_instances(&self) -> Result<(), Unanswered> {
        if lock(&self.due_instances).is_empty() {
            return Ok(());
        }
        let mut admin = self.admin.lock().await;
        first_error(self.check_all(&mut admin, &self.due_after(&[])).await)
    }

    /// These keys, and then others that are due.
    fn due_after(&self, keys: &[LimitKey]) -> Vec<LimitKey> {
        let mut all: BTreeSet<LimitKey> = keys.iter().cloned().collect();
        let due = lock(&self.due_instances);
        let table = self.read_table();
        for key in due.keys().filter(|key| table.needs_check(key)) {
            if all.len() >= INSTANCES_AT_ONCE {
                break;
            }
            all.insert(key.clone());
        }
        all.into_iter().collect()
    }

    /// Checks those of the instances that are not ready. Returns those that failed.
    async fn check_all(&self, admin: &mut AdminState, keys: &[LimitKey]) -> FailedChecks {
        let checks: Vec<InstanceCheck> = {
            let due = lock(&self.due_instances);
            let table = self.read_table();
            keys.iter().filter_map(|key| instance_check(&table, key, due.get(key))).collect()
        };
        {
            // Whatever interrupts the change of a known one, and even if its template changes back.
            let mut table = self.write_table();
            checks.iter().for_each(|check| table.set_unchecked(&check.limit.key));
        }
        let requests: Vec<_> =
            checks.iter().map(|check| AccountRequest::of(&check.limit)).collect();
        let mut failed = FailedChecks::new();
        let (mut found, mut accounts) = (Vec::new(), Vec::new());
        for (check, account) in checks.into_iter().zip(self.each_current_account(&requests).await) {
            match account {
                Ok(account) => {
                    found.push(check);
                    accounts.push(account);
                }
                Err(unanswered) => drop(failed.insert(check.limit.key, unanswered)),
            }
        }
        let goals = found.iter().zip(&accounts).map(|(check, account)| {
            let key = &check.limit.key;
            let is_uncertain = check.may_change_late || admin.uncertain.contains(key);
            definition_goal(&check.limit, *account, is_uncertain)
        });
        let goals = goals.collect();
        let outcomes = self.create_and_apply_all(admin, goals).await;
        let now = self.options.clock.now();
        let mut table = self.write_table();
        for ((InstanceCheck { limit, mark, .. }, account), outcome) in
            found.into_iter().zip(accounts).zip(outcomes)
        {
            let key = limit.key.clone();
            match outcome.and_then(|outcome| registered_as(limit, outcome)) {
                Ok(registered) => table.put_instance(registered, account, mark, now),
                Err(unanswered) => drop(failed.insert(key, unanswered)),
            }
        }
        failed
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
        if debtors.is_empty() {
            return;
        }
        let claim = self.claim_instances(debtors);
        if let Err(Unanswered { reason, .. }) = first_error(self.check_instances(&claim.keys).await)
        {
            tracing::debug!(%reason, "a limit that owes a debt is not listed");
        }
    }

    /// Goes on with the walk over the instances: checks those whose templates have changed, forgets
    /// those that are idle, and compares the others with their accounts from time to time.
    pub(super) async fn walk_instances(&self) -> Result<(), Unanswered> {
        self.write_table().templates.forget_late_changes(self.options.clock.now());
        let WalkStep { outdated, read } = self.next_walk_step();
        let checked = self.check_outdated(&outdated).await;
        self.read_accounts_of(&read).await?;
        checked
    }

    fn next_walk_step(&self) -> WalkStep {
        let now = self.options.clock.now();
        let mut last = lock(&self.last_walked);
        let table = self.read_table();
        let mut step = WalkStep::default();
        let after = last.take();
        let mut instances = table.instances_after(after.as_ref());
        let mut last_looked_at = None;
        for limit in instances.by_ref().take(INSTANCES_AT_ONCE) {
            if table.is_outdated(limit) {
                step.outdated.push(Arc::clone(limit));
            } else if limit.counts.may_be_idle(now, IDLE_AFTER) || limit.counts.is_verified_now(now)
            {
                step.read.push(Arc::clone(limit));
            }
            last_looked_at = Some(limit.key());
        }
        *last = instances.next().and(last_looked_at).cloned();
        step
    }

    /// Brings instances in line with their templates. One that no template of its kind matches, or whose
    /// period has ended, is forgotten: it is made anew when it is needed.
    async fn check_outdated(&self, outdated: &[Arc<KnownLimit>]) -> Result<(), Unanswered> {
        if outdated.is_empty() {
            return Ok(());
        }
        let mut admin = self.admin.lock().await;
        let (keys, gone): (Vec<&LimitKey>, Vec<&LimitKey>) = {
            let (now, table) = (self.cluster_now(), self.read_table());
            let is_governed = |key: &&LimitKey| {
                // It may have been forgotten meanwhile.
                let Some(limit) = table.get(key) else { return false };
                let template = table.templates.all().find(key);
                let kind = limit.registered.limit.kind;
                template.is_some_and(|template| template.kind.is_same_kind(kind))
                    && !limit.account.has_ended(now)
            };
            outdated.iter().map(|limit| limit.key()).partition(is_governed)
        };
        {
            let mut table = self.write_table();
            gone.into_iter().for_each(|key| table.forget(key));
        }
        let keys: Vec<LimitKey> = keys.into_iter().cloned().collect();
        first_error(self.check_all(&mut admin, &keys).await)
    }

    /// Forgets those of the instances that are idle: nothing of them is reserved at any server, and they
    /// owe no debt. One whose account is not as it should be is checked before its next reserve: a server
    /// that did not know the template yet may have changed it.
    async fn read_accounts_of(&self, limits: &[Arc<KnownLimit>]) -> Result<(), Unanswered> {
        let now = self.options.clock.now();
        let (accounts, rows) = self.rows_in_course(limits).await?;
        let mut table = self.write_table();
        for (limit, account) in limits.iter().zip(accounts) {
            let unused_for = limit.counts.unused_for(now);
            let is_used = state(limit, account, &rows).map_or(true, |state| is_in_use(&state));
            if !is_used && !limit.is_decreasing() && unused_for >= IDLE_AFTER {
                table.forget(limit.key());
                continue;
            }
            let again = unused_for.clamp(IDLE_AFTER, LOOK_AGAIN_AFTER_MAX);
            limit.counts.look_again_after(now, again);
            let version = rows.get(&account.id).map(|row| Version::of(*row));
            let agrees = version.is_some_and(|version| version.agrees_with(limit));
            // The account of a new period is funded when it is needed.
            if account == limit.account && !agrees {
                table.set_unchecked(limit.key());
            }
        }
        Ok(())
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
        if !table.templates.counted().has_changed() {
            return Some(key.clone());
        }
        let is_defined = table.get(key).is_some_and(|limit| limit.mark().is_none())
            || table.templates.all().get(key).is_some();
        if is_defined { Some(key.clone()) } else { table.template_of(key).cloned() }
    }

    /// The definition that governs a key, as far as this server knows: its own, or that of the template from which its limit is or would
    /// be made.
    pub fn governing(&self, key: &LimitKey) -> Option<Limit> {
        let table = self.read_table();
        let known = table.get(key).map(|limit| &limit.registered.limit);
        known.or_else(|| table.templates.all().find(key)).cloned()
    }

    /// The number of instances of each template that this server knows, sorted by key.
    pub fn instances_by_template(&self) -> Vec<(LimitKey, usize)> {
        self.read_table().templates.counted().instance_counts()
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

/// How to check an instance; `None` if it is ready, or no template matches any more.
fn instance_check(
    table: &LimitTable,
    key: &LimitKey,
    due: Option<&DueInstance>,
) -> Option<InstanceCheck> {
    let known = table.get(key);
    if known.is_some_and(|limit| table.is_ready(limit)) {
        return None;
    }
    let template = table.templates.all().find(key)?;
    let limit = Limit { key: key.clone(), ..template.clone() };
    let mark = known.and_then(|limit| limit.mark()).or_else(|| due?.mark.as_ref()).cloned();
    // A mark counts while it exists, so there is one for each instance.
    let is_current = |mark: &Arc<InstanceMark>| {
        *mark.template() == template.key && table.templates.counted().counts(mark)
    };
    let mark = mark.filter(is_current).or_else(|| {
        let (_, mark) = table.templates.counted().instance(key).ok()?;
        Some(Arc::new(mark))
    })?;
    Some(InstanceCheck { limit, mark, may_change_late: table.may_change_late(key) })
}

fn is_in_use(state: &LimitState) -> bool {
    state.usage.used > 0 || state.usage.debt > 0
}

//! Capacity changes: brings accounts to their definitions, in bulk.
//!
//! All accounts are looked up, a pure function computes what each needs (`plan`), and only that is
//! written: an account that needs no change costs no transfer. Writes are compare-and-swap: if
//! another server changed the account first, our transfers have no effect and we re-read.

mod batch;
mod plan;
mod takeover;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::future::try_join;
use ratelimiter::{
    DefineError, DeleteError, KeyPattern, Limit, LimitKey, LimitStatus, RegisteredLimit,
    Unanswered, check_new_key,
};

use self::plan::{AccountGoal, CapacityStep, CapacityTarget, ChangeReply, LateRequests};
pub(super) use self::plan::{Attempt, CapacityOutcome, Version, no_such_closing};
use super::TigerBeetleLimiter;
use super::accounts::decreasing_from;
use super::periods::AccountRequest;
use super::table::{KnownLimit, LimitAccount, requested};
use super::unanswered::{RETRY_AFTER, unexpected_status};
use crate::ledger::{AccountId, AccountRow, Ledger, WorkItem};

/// The most attempts at a change when others change the same account. One of them succeeds each
/// time, so this many would have to compete.
pub(super) const CHANGE_ATTEMPTS_MAX: usize = 64;

/// One tick tries the decreases of so many instances, so that its other work goes on; the ticks cycle
/// through all. Those of defined limits do not wait behind them.
const DECREASES_AT_ONCE: usize = 4_000;

/// State for changes of limits and the tick.
#[derive(Debug, Default)]
pub(super) struct AdminState {
    /// Limits whose last change was not answered, so that it may still arrive. The next tick
    /// invalidates such a late request.
    pub(super) uncertain: BTreeSet<LimitKey>,
    /// The last decreasing instance that a tick tried; `None` if it was the last of all.
    last_decrease: Option<LimitKey>,
}

/// A chain to send.
struct CapacityChange {
    /// The index of its goal.
    goal: usize,
    chain: WorkItem,
    /// The outcome once it is applied, and whether that changes a capacity.
    then: CapacityOutcome,
    is_change: bool,
}

type AccountRows = HashMap<AccountId, AccountRow>;

/// The outcome of a goal; `None` while it is unknown.
type Outcome = Option<Result<CapacityOutcome, Unanswered>>;

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// Whether a decrease of the limit waits for units to return; `None` if the limit is not
    /// defined here.
    pub fn is_decreasing(&self, key: &LimitKey) -> Option<bool> {
        self.read_table().get(key).map(|limit| limit.registered.waits())
    }

    /// Defines all limits and templates or none (`OPS-03`).
    pub(super) async fn define_limits(
        &self,
        limits: Vec<Limit>,
    ) -> Result<Vec<LimitStatus>, DefineError> {
        let keys: Vec<_> = limits.iter().map(|limit| limit.key.clone()).collect();
        let (limits, templates): (Vec<_>, Vec<_>) =
            limits.into_iter().partition(|limit| !limit.key.is_template());
        let mut admin = self.admin.lock().await;
        self.read_table().templates.counted().check_all(templates.iter())?;
        let requests = self.requests_of(&limits)?;
        self.check_instances_of_other_kinds(&limits).await?;
        let accounts = self.current_accounts(&requests).await?;
        let goals = self.goals_of(&admin, &limits, &accounts);
        {
            // If this fails, the account of an instance may have the capacity of the definition.
            let mut table = self.write_table();
            limits.iter().for_each(|limit| table.set_unchecked(&limit.key));
        }
        let outcomes = self.apply_all(&mut admin, goals).await;
        let results = limits.into_iter().zip(outcomes);
        let results = results.map(|(limit, outcome)| registered_as(limit, outcome?));
        let results: Vec<Result<_, Unanswered>> = results.collect();
        if results.iter().any(Result::is_err) {
            // The next tick brings the accounts that were changed back to the definitions here.
            let changed = results.iter().flatten();
            admin.uncertain.extend(changed.map(|registered| registered.limit.key.clone()));
        }
        let registered = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        let statuses = registered.iter().map(|registered| registered.status).collect();
        {
            let mut table = self.write_table();
            for (registered, account) in registered.into_iter().zip(accounts) {
                table.put(registered, account);
            }
            for template in &templates {
                table.templates.put(template.clone()).expect("it was checked");
            }
        }
        Ok(in_order(&keys, statuses, &templates))
    }

    /// Asks for the accounts of definitions. A period that nobody has announced yet ends by the
    /// definition that is known here: a new schedule applies from the next reset.
    ///
    /// # Errors
    /// A limit has another kind here, or its key is new and has a `*` that is not a whole segment.
    fn requests_of(&self, limits: &[Limit]) -> Result<Vec<AccountRequest>, DefineError> {
        let table = self.read_table();
        let request = |limit: &Limit| match table.get(&limit.key) {
            Some(known) if known.mark().is_none() => {
                known.registered.redefined(limit.clone())?;
                Ok(known.account_request())
            }
            Some(known) if known.registered.limit.kind.is_same_kind(limit.kind) => {
                Ok(known.account_request())
            }
            _ => {
                check_new_key(&limit.key)?;
                Ok(AccountRequest::of(limit))
            }
        };
        limits.iter().map(request).collect()
    }

    /// The goals of definitions.
    fn goals_of(
        &self,
        admin: &AdminState,
        limits: &[Limit],
        accounts: &[LimitAccount],
    ) -> Vec<AccountGoal> {
        let table = self.read_table();
        let goal = |(limit, account): (&Limit, &LimitAccount)| {
            // Another server may have tried to define a limit that is new here.
            let is_defined = table.get(&limit.key).is_some_and(|limit| limit.mark().is_none());
            let is_uncertain = !is_defined || admin.uncertain.contains(&limit.key);
            definition_goal(limit, *account, is_uncertain)
        };
        limits.iter().zip(accounts).map(goal).collect()
    }

    pub(super) async fn delete_limit(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let _turn = self.admin.lock().await;
        let mut table = self.write_table();
        let is_deleted =
            if key.is_template() { table.templates.remove(key) } else { table.remove(key) };
        if is_deleted { Ok(()) } else { Err(DeleteError::UnknownKey { key: key.clone() }) }
    }

    /// As [`restore_all`](Self::restore_all), for one limit without an unconfirmed change.
    ///
    /// # Errors
    /// The cluster did not answer; the limit is unchanged here.
    pub async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        Ok(self.restore_all(vec![registered], &BTreeSet::new()).await?[0])
    }

    /// Restores registered limits and brings their accounts there (`TB-08`): missing accounts are
    /// created, the capacity is raised or lowered, and a decrease is resumed, wherever an earlier
    /// change was interrupted. Nothing is written for an account that is already there.
    ///
    /// `unconfirmed` are the limits whose last change was begun and not confirmed, perhaps by a
    /// process that has ended. The change may still be in flight, and is invalidated. They need not
    /// be among `limits`. That of a template may reach any instance: each one is checked before its
    /// next reserve.
    ///
    /// # Errors
    /// The cluster did not answer for at least one of them, which is then unchanged here.
    pub async fn restore_all(
        &self,
        limits: Vec<RegisteredLimit>,
        unconfirmed: &BTreeSet<LimitKey>,
    ) -> Result<Vec<LimitStatus>, DefineError> {
        let keys: Vec<_> = limits.iter().map(|registered| registered.limit.key.clone()).collect();
        let (limits, templates): (Vec<_>, Vec<_>) =
            limits.into_iter().partition(|registered| !registered.limit.key.is_template());
        let templates: Vec<Limit> = templates.into_iter().map(|template| template.limit).collect();
        let statuses = self.restore_limits(limits, &templates, unconfirmed).await?;
        Ok(in_order(&keys, statuses, &templates))
    }

    /// Restores limits and, in the table, templates.
    async fn restore_limits(
        &self,
        limits: Vec<RegisteredLimit>,
        templates: &[Limit],
        unconfirmed: &BTreeSet<LimitKey>,
    ) -> Result<Vec<LimitStatus>, DefineError> {
        let mut admin = self.admin.lock().await;
        self.restore_templates(templates, unconfirmed)?;
        let accounts = self.current_accounts(&self.requests_to_restore(&limits)).await?;
        let is_uncertain =
            |key: &LimitKey| unconfirmed.contains(key) || admin.uncertain.contains(key);
        let mut goals: Vec<AccountGoal> = Vec::with_capacity(limits.len());
        for (registered, account) in limits.iter().zip(&accounts) {
            let key = &registered.limit.key;
            goals.push(definition_goal(&requested(registered), *account, is_uncertain(key)));
        }
        let given: BTreeSet<&LimitKey> = limits.iter().map(|limit| &limit.limit.key).collect();
        // A template has no account.
        let others = unconfirmed.iter().filter(|key| !given.contains(key) && !key.is_template());
        goals.extend(self.goals_of_uncertain(others.cloned().collect()).await?);
        let outcomes = self.apply_all(&mut admin, goals).await;
        let not_invalidated =
            outcomes[limits.len()..].iter().find_map(|outcome| outcome.clone().err());
        let mut statuses: Result<_, DefineError> = Ok(Vec::with_capacity(limits.len()));
        let mut table = self.write_table();
        for ((registered, account), outcome) in limits.into_iter().zip(accounts).zip(outcomes) {
            let limit = requested(&registered);
            match outcome.and_then(|outcome| registered_as(limit, outcome)) {
                Ok(registered) => {
                    if let Ok(statuses) = &mut statuses {
                        statuses.push(registered.status);
                    }
                    table.put(registered, account);
                }
                Err(unanswered) => statuses = statuses.and(Err(unanswered.into())),
            }
        }
        match not_invalidated {
            Some(unanswered) => statuses.and(Err(unanswered.into())),
            None => statuses,
        }
    }

    /// Puts registered templates into the table. Changes of the `unconfirmed` limits may arrive late,
    /// also at instances.
    ///
    /// # Errors
    /// The key of a template is no pattern.
    fn restore_templates(
        &self,
        templates: &[Limit],
        unconfirmed: &BTreeSet<LimitKey>,
    ) -> Result<(), DefineError> {
        let now = self.options.clock.now();
        let mut table = self.write_table();
        for template in templates {
            table.templates.put(template.clone())?;
        }
        for key in unconfirmed {
            match KeyPattern::new(key) {
                Ok(pattern) if key.is_template() => table.templates.note_late_change(pattern, now),
                _ => table.set_unchecked(key),
            }
        }
        Ok(())
    }

    /// Asks for the accounts of limits to restore. As in [`requests_of`](Self::requests_of), but the
    /// limit may have been deleted and defined again with another kind, elsewhere.
    fn requests_to_restore(&self, limits: &[RegisteredLimit]) -> Vec<AccountRequest> {
        let table = self.read_table();
        let request = |RegisteredLimit { limit, .. }: &RegisteredLimit| {
            let known = table.get(&limit.key).map(|known| known.account_request());
            known
                .filter(|known| known.kind.is_same_kind(limit.kind))
                .unwrap_or_else(|| AccountRequest::of(limit))
        };
        limits.iter().map(request).collect()
    }

    /// The goals of limits whose last change is uncertain. Of one that nothing governs here the kind is
    /// not known: its account that lasts and that of its period in course may change, if there are
    /// any. An account whose period has ended may, too, and nothing depends on it.
    async fn goals_of_uncertain(
        &self,
        keys: Vec<LimitKey>,
    ) -> Result<Vec<AccountGoal>, Unanswered> {
        let (mut governed, mut unknown) = (Vec::new(), Vec::new());
        {
            let table = self.read_table();
            for key in keys {
                match table.target_of(&key) {
                    Some(limit) => governed.push(limit),
                    None => unknown.push(key),
                }
            }
        }
        let requests: Vec<_> = governed.iter().map(AccountRequest::of).collect();
        let accounts = self.current_accounts(&requests).await?;
        let governed = governed.iter().zip(accounts);
        let governed = governed.map(|(limit, account)| definition_goal(limit, account, true));
        let mut goals: Vec<AccountGoal> = governed.collect();
        let accounts = self.announced_accounts(&unknown).await?;
        for (key, period) in unknown.iter().zip(accounts) {
            let accounts = [Some(LimitAccount::lasting(key)), period];
            let of_key = accounts.into_iter().flatten();
            goals.extend(of_key.map(|account| goal(key, account, CapacityTarget::Unchanged, true)));
        }
        Ok(goals)
    }

    /// Creates and funds the accounts of periods that have begun. A decrease that waited for the
    /// period before is over, unless another server has already admitted more in this one.
    pub(super) async fn fund_periods(
        &self,
        admin: &mut AdminState,
        limits: &[Arc<KnownLimit>],
    ) -> Result<(), Unanswered> {
        let requests: Vec<_> = limits.iter().map(|limit| limit.account_request()).collect();
        let accounts = self.current_accounts(&requests).await?;
        let goal_of = |(limit, account): (&Arc<KnownLimit>, &LimitAccount)| {
            let to = limit.requested().ceiling();
            let target = match limit.is_decreasing() {
                true => CapacityTarget::Set { to },
                false => CapacityTarget::Fund { to },
            };
            goal(limit.key(), *account, target, false)
        };
        let goals: Vec<AccountGoal> = limits.iter().zip(&accounts).map(goal_of).collect();
        let outcomes = self.apply_all(admin, goals).await;
        let mut noted = Ok(());
        for ((limit, account), outcome) in limits.iter().zip(accounts).zip(outcomes) {
            let outcome =
                outcome.and_then(|outcome| self.record_outcome(limit.key(), account, outcome));
            noted = noted.and(outcome);
        }
        noted
    }

    /// Applies the decreases that have become possible, and restores accounts whose last change was
    /// not answered.
    pub(super) async fn apply_decreases(&self) -> Result<(), Unanswered> {
        let mut admin = self.admin.lock().await;
        let decreasing: Vec<_> = {
            let table = self.read_table();
            let instances = table.decreasing_instances_after(admin.last_decrease.as_ref());
            let instances: Vec<_> = instances.take(DECREASES_AT_ONCE).collect();
            let may_be_more = instances.len() == DECREASES_AT_ONCE;
            let last = instances.last().filter(|_| may_be_more);
            admin.last_decrease = last.map(|limit| limit.key().clone());
            let decreasing = table.decreasing_defined().chain(instances);
            let decreasing = decreasing.filter(|limit| {
                !table.is_outdated(limit) && !admin.uncertain.contains(limit.key())
            });
            decreasing.cloned().collect()
        };
        if admin.uncertain.is_empty() && decreasing.is_empty() {
            return Ok(());
        }
        let mut goals = self.goals_of_uncertain(admin.uncertain.iter().cloned().collect()).await?;
        let requests: Vec<_> = decreasing.iter().map(|limit| limit.account_request()).collect();
        let accounts = self.current_accounts(&requests).await?;
        for (limit, account) in decreasing.iter().zip(accounts) {
            let to = limit.requested().ceiling();
            let target = match account == limit.account {
                true => CapacityTarget::EndDecrease { to },
                // It waited for the period before.
                false => CapacityTarget::Set { to },
            };
            goals.push(goal(limit.key(), account, target, false));
        }
        let outcomes = self.apply_all(&mut admin, goals.clone()).await;
        let mut noted = Ok(());
        for (AccountGoal { key, account, target, .. }, outcome) in goals.iter().zip(outcomes) {
            noted = noted.and(match (target, outcome) {
                (CapacityTarget::EndDecrease { .. }, Ok(CapacityOutcome::Waiting { .. })) => Ok(()),
                (_, outcome) => {
                    outcome.and_then(|outcome| self.record_outcome(key, *account, outcome))
                }
            });
        }
        noted
    }

    /// Updates a limit's status from its account. An instance whose template has changed stays as it is
    /// until it is checked.
    fn record_outcome(
        &self,
        key: &LimitKey,
        account: LimitAccount,
        outcome: CapacityOutcome,
    ) -> Result<(), Unanswered> {
        let mut table = self.write_table();
        let Some(known) = table.get(key).filter(|limit| !table.is_outdated(limit)).cloned() else {
            return Ok(());
        };
        let registered = registered_as(known.requested(), outcome)?;
        let is_change = registered != known.registered;
        let (status, is_defined) = (registered.status, known.mark().is_none());
        if is_change || account != known.account {
            table.update(registered, account);
        }
        drop(table);
        // Of a template there may be a million instances.
        if is_change && is_defined {
            tracing::info!(%key, ?status, "capacity applied");
        }
        Ok(())
    }

    /// Brings accounts to their goals, as far as possible; returns one outcome per goal, in order.
    ///
    /// A goal whose chain was not answered stays uncertain.
    pub(super) async fn apply_all(
        &self,
        admin: &mut AdminState,
        goals: Vec<AccountGoal>,
    ) -> Vec<Result<CapacityOutcome, Unanswered>> {
        self.apply_all_to(admin, goals, None).await
    }

    /// The same for instances. The accounts of those that are not known here may well be missing: they
    /// are created while they are looked up, so that a new one takes two round trips, and one that is
    /// as it should be takes one.
    pub(super) async fn create_and_apply_all(
        &self,
        admin: &mut AdminState,
        goals: Vec<AccountGoal>,
    ) -> Vec<Result<CapacityOutcome, Unanswered>> {
        let accounts: Vec<_> = {
            let table = self.read_table();
            let unknown = goals.iter().filter(|goal| table.get(&goal.key).is_none());
            unknown.map(AccountGoal::accounts).collect()
        };
        let ids = goals.iter().map(|goal| goal.account.id).collect();
        let found = try_join(self.create_accounts_of(&accounts), self.rows_of(ids)).await;
        drop(accounts);
        match found {
            Ok((created, mut rows)) => {
                rows.extend(created.into_iter().map(|row| (row.id, row)));
                self.apply_all_to(admin, goals, Some(rows)).await
            }
            Err(unanswered) => vec![Err(unanswered); goals.len()],
        }
    }

    /// The same, if `rows` of the accounts were just read: a missing one is read again.
    async fn apply_all_to(
        &self,
        admin: &mut AdminState,
        mut goals: Vec<AccountGoal>,
        mut rows: Option<AccountRows>,
    ) -> Vec<Result<CapacityOutcome, Unanswered>> {
        let mut outcomes: Vec<Outcome> = vec![None; goals.len()];
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let tried = self.try_all(admin, &mut goals, &mut outcomes, rows.take()).await;
            if let Err(unanswered) = tried {
                for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
                    *outcome = Some(Err(unanswered.clone()));
                }
            }
            if outcomes.iter().all(Option::is_some) {
                break;
            }
        }
        let result = |(goal, outcome): (&AccountGoal, Outcome)| {
            outcome.unwrap_or_else(|| Err(contention_error(&goal.key)))
        };
        let outcomes: Vec<_> = goals.iter().zip(outcomes).map(result).collect();
        // A key may have two goals, and is certain when both are reached.
        let keys_with = |is_ok: bool| {
            let with = goals.iter().zip(&outcomes).filter(move |(_, o)| o.is_ok() == is_ok);
            with.map(|(goal, _)| &goal.key)
        };
        let failed: BTreeSet<&LimitKey> = keys_with(false).collect();
        for key in keys_with(true).filter(|key| !failed.contains(key)) {
            admin.uncertain.remove(key);
        }
        outcomes
    }

    /// Makes one attempt at the goals without an outcome.
    async fn try_all(
        &self,
        admin: &mut AdminState,
        goals: &mut [AccountGoal],
        outcomes: &mut [Outcome],
        rows: Option<AccountRows>,
    ) -> Result<(), Unanswered> {
        let changes = self.plan_changes(goals, outcomes, rows).await?;
        for changes in batch::parts(changes, self.events_at_once()) {
            // Before the await: this future may be dropped there.
            let goals_of_part = changes.iter().map(|change| &goals[change.goal]);
            let uncertain = goals_of_part.filter(|goal| !goal.is_harmless_late());
            admin.uncertain.extend(uncertain.map(|goal| goal.key.clone()));
            let replies = self.send_changes(&changes).await?;
            for (CapacityChange { goal: at, then, is_change, .. }, reply) in
                changes.into_iter().zip(replies)
            {
                let goal = &mut goals[at];
                // A goal that was uncertain before stays so until it has an outcome.
                if goal.late_requests == LateRequests::None {
                    admin.uncertain.remove(&goal.key);
                }
                match reply {
                    ChangeReply::Applied => {
                        outcomes[at] = Some(Ok(then));
                        self.counters.capacity_changes.add(u64::from(is_change));
                    }
                    ChangeReply::NoRoom => goal.was_refused = true,
                    ChangeReply::VersionChanged => {}
                    ChangeReply::OtherClosing => {
                        goal.is_closed_without_key = !goal.is_closed_without_key;
                    }
                    ChangeReply::Unexpected(status) => {
                        let key = &goal.key;
                        tracing::error!(%key, ?status, "capacity change failed");
                        outcomes[at] = Some(Err(unexpected_status("capacity change", status)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the accounts of all goals without an outcome. Missing ones are created and handled in
    /// the next attempt.
    async fn plan_changes(
        &self,
        goals: &[AccountGoal],
        outcomes: &mut [Outcome],
        rows: Option<AccountRows>,
    ) -> Result<Vec<CapacityChange>, Unanswered> {
        let open = (0..goals.len()).filter(|at| outcomes[*at].is_none());
        let open: Vec<_> = open.map(|at| (at, goals[at].account.id)).collect();
        let rows = match rows {
            Some(rows) => rows,
            None => self.rows_of(open.iter().map(|(_, account)| *account).collect()).await?,
        };
        let (mut changes, mut missing) = (Vec::new(), Vec::new());
        for (at, account) in open {
            let goal = &goals[at];
            let Some(row) = rows.get(&account) else {
                match goal.target {
                    // Without an account there is nothing that a late request could change.
                    CapacityTarget::Unchanged => outcomes[at] = Some(Ok(CapacityOutcome::Reached)),
                    CapacityTarget::Set { .. }
                    | CapacityTarget::EndDecrease { .. }
                    | CapacityTarget::Fund { .. } => missing.push(goal.accounts()),
                }
                continue;
            };
            match goal.version(*row).step_to(goal, self.new_attempt()) {
                CapacityStep::Done(outcome) => outcomes[at] = Some(Ok(outcome)),
                CapacityStep::Send { chain, then, is_change } => {
                    changes.push(CapacityChange { goal: at, chain, then, is_change });
                }
            }
        }
        self.create_accounts_of(&missing).await?;
        Ok(changes)
    }
}

fn contention_error(key: &LimitKey) -> Unanswered {
    let reason = format!("too much contention on the capacity of {key}");
    Unanswered { reason, retry_after: RETRY_AFTER }
}

/// The goal of a definition. In shadow mode the capacity is whatever can be counted, so that the
/// ledger refuses nothing (`TB-20`).
pub(super) fn definition_goal(
    limit: &Limit,
    account: LimitAccount,
    is_uncertain: bool,
) -> AccountGoal {
    goal(&limit.key, account, CapacityTarget::Set { to: limit.ceiling() }, is_uncertain)
}

/// The statuses of limits and of templates, in the order of all their keys.
fn in_order(keys: &[LimitKey], limits: Vec<LimitStatus>, templates: &[Limit]) -> Vec<LimitStatus> {
    let mut limits = limits.into_iter();
    let mut templates =
        templates.iter().map(|template| RegisteredLimit::in_force(template.clone()).status);
    let mut status = |key: &LimitKey| match key.is_template() {
        true => templates.next(),
        false => limits.next(),
    };
    keys.iter().map(|key| status(key).expect("each has a status")).collect()
}

fn goal(
    key: &LimitKey,
    account: LimitAccount,
    target: CapacityTarget,
    is_uncertain: bool,
) -> AccountGoal {
    let late_requests = if is_uncertain { LateRequests::Possible } else { LateRequests::None };
    AccountGoal {
        key: key.clone(),
        account,
        target,
        late_requests,
        was_refused: false,
        is_closed_without_key: false,
    }
}

/// The limit in force, given the outcome at its account.
pub(super) fn registered_as(
    limit: Limit,
    outcome: CapacityOutcome,
) -> Result<RegisteredLimit, Unanswered> {
    match outcome {
        CapacityOutcome::Reached => Ok(RegisteredLimit::in_force(limit)),
        CapacityOutcome::Waiting { in_force } => decreasing_from(limit, in_force),
    }
}

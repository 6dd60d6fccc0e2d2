//! Changes of templates, which reach every instance that this server knows like a definition of each
//! (`TB-21`).
//!
//! The table has the new template first. Then the instances are brought in line, some at a time, so
//! that other changes can come in between; one that is made meanwhile is made from the new template.
//! An instance that cannot be brought in line, because the cluster does not answer, is checked before
//! its next reserve.

use std::sync::Arc;

use ratelimiter::{
    DefineError, DeleteError, InstanceMark, KeyPattern, Limit, LimitKey, Unanswered,
};

use super::TigerBeetleLimiter;
use super::capacity::{AdminState, definition_goal, registered_as};
use super::periods::AccountRequest;
use super::table::{KnownLimit, LimitTable};
use crate::ledger::Ledger;

/// So many instances are looked at, and brought in line together, before other changes may come in
/// between.
const INSTANCES_AT_ONCE: usize = 4_000;

/// Whether an earlier change of the templates may still arrive at the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EarlierChange {
    Answered,
    Unconfirmed,
}

/// What becomes of an instance.
enum Realigned {
    Unchanged,
    /// It has this definition.
    Governed(Limit, Arc<InstanceMark>),
    /// No template of its kind matches it any more, or its period has ended: it is made anew when it
    /// is needed.
    Forgotten,
}

/// A walk over the instances of changed templates. If it is not finished, those that it has not
/// reached are checked before their next reserve.
struct Realignment<'a, L: Ledger> {
    limiter: &'a TigerBeetleLimiter<L>,
    changed: Vec<KeyPattern>,
    /// All instances up to this key are in line.
    after: Option<LimitKey>,
    is_finished: bool,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// Puts registered templates into the table, whatever their kinds were.
    ///
    /// # Errors
    /// A key is no pattern.
    pub(super) fn restore_templates(&self, templates: &[Limit]) -> Result<(), DefineError> {
        let mut table = self.write_table();
        for template in templates {
            let before = table.templates.all().get(&template.key);
            if before.is_some_and(|before| !before.kind.is_same_kind(template.kind)) {
                table.templates.remove(&template.key);
            }
            table.templates.put(template.clone())?;
        }
        Ok(())
    }

    pub(super) async fn delete_template(&self, key: &LimitKey) -> Result<(), DeleteError> {
        {
            let _turn = self.admin.lock().await;
            if self.write_table().templates.remove(key).is_none() {
                return Err(DeleteError::UnknownKey { key: key.clone() });
            }
        }
        self.realign([key], EarlierChange::Answered).await;
        Ok(())
    }

    /// Brings the instances that changed templates match in line with the templates.
    pub(super) async fn realign(
        &self,
        changed: impl IntoIterator<Item = &LimitKey>,
        earlier: EarlierChange,
    ) {
        // A key that is no pattern was never that of a template here.
        let changed: Vec<_> =
            changed.into_iter().filter_map(|key| KeyPattern::new(key).ok()).collect();
        if changed.is_empty() {
            return;
        }
        let mut walk = Realignment { limiter: self, changed, after: None, is_finished: false };
        if let Err(Unanswered { reason, .. }) = walk.run(earlier).await {
            tracing::warn!(%reason, "the limits of a template are checked when they are needed");
        }
    }

    /// Brings some instances in line.
    async fn realign_some(
        &self,
        admin: &mut AdminState,
        limits: &[Arc<KnownLimit>],
        earlier: EarlierChange,
    ) -> Result<(), Unanswered> {
        let mut governed = Vec::new();
        {
            let now = self.cluster_now();
            let mut table = self.write_table();
            for known in limits {
                match realigned(&table, known, earlier) {
                    Realigned::Unchanged => {}
                    Realigned::Governed(..) if known.account.has_ended(now) => {
                        table.forget(known.key());
                    }
                    Realigned::Governed(limit, mark) => governed.push((known, limit, mark)),
                    Realigned::Forgotten => table.forget(known.key()),
                }
            }
        }
        let requests: Vec<_> =
            governed.iter().map(|(_, limit, _)| AccountRequest::of(limit)).collect();
        let accounts = self.current_accounts(&requests).await?;
        let goals = governed.iter().zip(&accounts).map(|((_, limit, _), account)| {
            let is_uncertain =
                earlier == EarlierChange::Unconfirmed || admin.uncertain.contains(&limit.key);
            definition_goal(limit, *account, is_uncertain)
        });
        let goals = goals.collect();
        let outcomes = self.apply_all(admin, goals).await;
        let mut realigned = Ok(());
        let mut table = self.write_table();
        for (((_, limit, mark), account), outcome) in
            governed.into_iter().zip(accounts).zip(outcomes)
        {
            let key = limit.key.clone();
            // It may have been forgotten meanwhile.
            if table.get(&key).is_none() {
                continue;
            }
            match outcome.and_then(|outcome| registered_as(limit, outcome)) {
                Ok(registered) => table.put_instance(registered, account, mark),
                Err(unanswered) => {
                    table.set_unchecked(&key);
                    realigned = realigned.and(Err(unanswered));
                }
            }
        }
        realigned
    }
}

/// What the templates make of an instance.
fn realigned(table: &LimitTable, known: &KnownLimit, earlier: EarlierChange) -> Realigned {
    let (Ok((limit, mark)), Some(before)) = (table.templates.instance(known.key()), known.mark())
    else {
        return Realigned::Forgotten;
    };
    if !limit.kind.is_same_kind(known.registered.limit.kind) {
        return Realigned::Forgotten;
    }
    let capacity = known.registered.target();
    let is_same = Limit { capacity, ..known.registered.limit.clone() } == limit
        && before.template() == mark.template();
    if is_same && known.is_ready() && earlier == EarlierChange::Answered {
        return Realigned::Unchanged;
    }
    // A mark counts while it exists, so there is one for each instance.
    let mark =
        if before.template() == mark.template() { Arc::clone(before) } else { Arc::new(mark) };
    Realigned::Governed(limit, mark)
}

impl<L: Ledger> Realignment<'_, L> {
    async fn run(&mut self, earlier: EarlierChange) -> Result<(), Unanswered> {
        while !self.is_finished {
            let mut admin = self.limiter.admin.lock().await;
            let some = {
                let is_matched = |limit: &KnownLimit| self.matches(limit.key());
                let table = self.limiter.read_table();
                table.instances_after(self.after.as_ref(), INSTANCES_AT_ONCE, is_matched)
            };
            self.limiter.realign_some(&mut admin, &some.limits, earlier).await?;
            self.is_finished = some.last.is_none();
            self.after = some.last;
        }
        Ok(())
    }

    fn matches(&self, key: &LimitKey) -> bool {
        self.changed.iter().any(|pattern| pattern.matches(key))
    }
}

impl<L: Ledger> Drop for Realignment<'_, L> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let mut table = self.limiter.write_table();
        let is_matched = |limit: &KnownLimit| self.matches(limit.key());
        let left = table.instances_after(self.after.as_ref(), usize::MAX, is_matched);
        for limit in left.limits {
            table.set_unchecked(limit.key());
        }
    }
}

//! Capacity: bringing a limit's account to what its definition says.

mod plan;

use ratelimiter::{
    Capacity, DefineError, DeleteError, Limit, LimitKey, LimitStatus, RegisteredLimit, Unanswered,
};

pub(super) use self::plan::{Attempt, Version};
use self::plan::{ChangeReply, read};
use super::TigerBeetleLimiter;
use super::accounts::of_limit;
use super::unanswered::{RETRY_AFTER, not_foreseen, unanswered};
use super::upkeep::Admin;
use crate::ids;
use crate::ledger::{Ledger, WorkItem};

/// How often a change is tried anew when others change the same account at the same time. Each time
/// one of them gets through, so this many must be at it.
pub(super) const CHANGE_ATTEMPTS_MAX: usize = 64;

/// What came of bringing an account to a capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Settled {
    /// It has the capacity.
    There,
    /// The units are in use; until they are free the account is closed and has this capacity.
    Waits { in_force: Capacity },
}

/// Whether a change of before may still arrive: one without an answer, or one of a process that is
/// gone. An account is not settled while it could be changed by such a straggler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stragglers {
    None,
    Possible,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    pub(super) async fn define_limit(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let mut admin = self.admin.lock().await;
        let key = limit.key.clone();
        if let Some(known) = self.read_table().get(&key).cloned() {
            known.registered.redefined(limit.clone())?;
        }
        Ok(self.provision_certainly(&mut admin, limit).await?)
    }

    pub(super) async fn delete_limit(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let mut admin = self.admin.lock().await;
        admin.uncertain.remove(key);
        if self.write_table().remove(key) {
            return Ok(());
        }
        Err(DeleteError::UnknownKey { key: key.clone() })
    }

    /// Puts a limit back as it was registered, and brings its account there (`TB-08`): what is
    /// missing is made, the capacity is funded or taken back, and a decrease is resumed. It does
    /// not matter at which point an earlier change was cut short.
    ///
    /// # Errors
    /// The cluster gave no answer; the limit is not defined then.
    pub async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        let mut admin = self.admin.lock().await;
        let target = registered.target();
        let limit = Limit { capacity: target, ..registered.limit };
        Ok(self.provision_certainly(&mut admin, limit).await?)
    }

    /// As [`provision`](Self::provision). Should the answer be lost, the account may have changed, or
    /// may still change, although the definition has not: the next tick sees to it.
    async fn provision_certainly(
        &self,
        admin: &mut Admin,
        limit: Limit,
    ) -> Result<LimitStatus, Unanswered> {
        let key = limit.key.clone();
        let is_first = self.read_table().get(&key).is_none();
        let is_uncertain = !admin.uncertain.insert(key.clone());
        let stragglers = match is_first || is_uncertain {
            true => Stragglers::Possible,
            false => Stragglers::None,
        };
        let status = self.provision(limit, stragglers).await?;
        admin.uncertain.remove(&key);
        Ok(status)
    }

    /// Brings the account to the limit's capacity as far as it goes, then holds the limit defined.
    async fn provision(
        &self,
        limit: Limit,
        stragglers: Stragglers,
    ) -> Result<LimitStatus, Unanswered> {
        let settled = self.settle(&limit.key, limit.capacity, stragglers).await?;
        let registered = match settled {
            Settled::There => RegisteredLimit::in_force(limit),
            Settled::Waits { in_force } => {
                let to = limit.capacity;
                RegisteredLimit::going_down(Limit { capacity: in_force, ..limit }, to)
            }
        };
        let status = registered.status;
        self.write_table().put(registered);
        Ok(status)
    }

    /// Ends the decreases that have become possible, and brings accounts back to their definitions
    /// whose last change was not answered.
    pub(super) async fn settle_decreases(&self) -> Result<(), Unanswered> {
        let Ok(mut admin) = self.admin.try_lock() else {
            return Ok(());
        };
        let mut keys: Vec<LimitKey> = admin.uncertain.iter().cloned().collect();
        for limit in self.read_table().decreasing() {
            if !admin.uncertain.contains(limit.key()) {
                keys.push(limit.key().clone());
            }
        }
        for key in keys {
            let Some(limit) = self.read_table().get(&key).cloned() else {
                admin.uncertain.remove(&key);
                continue;
            };
            let target = limit.registered.target();
            if admin.uncertain.contains(&key) || self.has_room_for(&key, target).await? {
                let limit = Limit { capacity: target, ..limit.registered.limit.clone() };
                let status = self.provision_certainly(&mut admin, limit).await?;
                tracing::info!(%key, ?status, "capacity settled");
            }
        }
        Ok(())
    }

    /// Whether a decrease would go through, as far as a look can tell. Trying costs an ID each time.
    async fn has_room_for(&self, key: &LimitKey, target: Capacity) -> Result<bool, Unanswered> {
        let account = ids::limit_account(key);
        let rows = self.ledger.lookup_accounts(vec![account]).await.map_err(unanswered)?;
        let used = rows.first().map_or(0, |row| row.balances.debits_pending);
        Ok(used <= u128::from(target.get()))
    }

    /// Brings an account to a capacity, or closes it until that is possible.
    async fn settle(
        &self,
        key: &LimitKey,
        target: Capacity,
        stragglers: Stragglers,
    ) -> Result<Settled, Unanswered> {
        self.make_missing(&of_limit(key)).await?;
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let version = self.version(key).await?;
            let attempt = self.new_attempt();
            // What leaves the version lets no straggler through; what finds it right must leave it too.
            let (settled, item) = match version.change(key, target, attempt) {
                None if stragglers == Stragglers::None => return Ok(Settled::There),
                None => (Settled::There, version.supersede(key, attempt)),
                Some(change) => match self.carry_out(change).await? {
                    ChangeReply::Applied => {
                        self.counters.capacity_changes.add(1);
                        return Ok(Settled::There);
                    }
                    ChangeReply::NoRoom if !version.is_closed() => {
                        (waits(key, &version)?, version.close(key))
                    }
                    ChangeReply::NoRoom if stragglers == Stragglers::None => {
                        return waits(key, &version);
                    }
                    ChangeReply::NoRoom => {
                        (waits(key, &version)?, version.supersede(key, self.new_attempt()))
                    }
                    ChangeReply::Moved => continue,
                    ChangeReply::Unexpected(status) => {
                        tracing::error!(%key, %version, ?status, "a capacity could not be changed");
                        return Err(not_foreseen("change of a capacity", status));
                    }
                },
            };
            match self.carry_out(item).await? {
                ChangeReply::Applied => return Ok(settled),
                ChangeReply::Moved => {}
                ChangeReply::NoRoom => unreachable!("these take no units"),
                ChangeReply::Unexpected(status) => {
                    return Err(not_foreseen("change of a capacity", status));
                }
            }
        }
        let reason = format!("others change the capacity of {key} at the same time");
        Err(Unanswered { reason, retry_after: RETRY_AFTER })
    }

    async fn version(&self, key: &LimitKey) -> Result<Version, Unanswered> {
        let account = ids::limit_account(key);
        let rows = self.ledger.lookup_accounts(vec![account]).await.map_err(unanswered)?;
        let row = rows.first().ok_or_else(|| {
            let reason = format!("the account of {key} is not there");
            Unanswered { reason, retry_after: RETRY_AFTER }
        })?;
        Ok(Version::of(*row))
    }

    async fn carry_out(&self, item: WorkItem) -> Result<ChangeReply, Unanswered> {
        let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
        Ok(read(&results))
    }
}

fn waits(key: &LimitKey, version: &Version) -> Result<Settled, Unanswered> {
    let capacity = u64::try_from(version.capacity()).ok().map(Capacity::new);
    let Some(Ok(in_force)) = capacity else {
        let capacity = version.capacity();
        let reason = format!("the account of {key} has a capacity of {capacity}, which none has");
        return Err(Unanswered { reason, retry_after: RETRY_AFTER });
    };
    Ok(Settled::Waits { in_force })
}

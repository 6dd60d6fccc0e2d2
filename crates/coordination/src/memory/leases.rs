//! System leases.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::MemoryProvider;
use crate::{
    Clock, FencingToken, LeaseDuration, Leases, OwnerToken, ResourceName, Result, Tenure, Timestamp,
};

/// One counter issues all tokens, so a free resource needs no entry: its next token is larger than
/// every earlier one, and memory is bounded by the leases that are held.
#[derive(Debug, Default)]
pub(super) struct LeaseState {
    last_token: u64,
    held: HashMap<ResourceName, HeldLease>,
    /// Held resources by expiry and newest token.
    ends: BTreeMap<(Timestamp, FencingToken), ResourceName>,
}

#[derive(Debug)]
struct HeldLease {
    owner: OwnerToken,
    /// The first token of this tenure; smaller tokens belong to earlier ones.
    since: FencingToken,
    /// The newest token of this tenure.
    token: FencingToken,
    until: Timestamp,
}

impl Leases for MemoryProvider {
    async fn try_acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: &OwnerToken,
    ) -> Result<Option<FencingToken>> {
        let (mut leases, now) = self.shared.leases.lock();
        Ok(leases.acquire(now, resource, duration, owner))
    }

    async fn try_renew(
        &self,
        tenure: &Tenure,
        duration: LeaseDuration,
    ) -> Result<Option<FencingToken>> {
        let (mut leases, now) = self.shared.leases.lock();
        Ok(leases.renew(now, tenure, duration))
    }

    async fn release(&self, tenure: &Tenure) -> Result<usize> {
        let (mut leases, now) = self.shared.leases.lock();
        Ok(leases.release(now, tenure))
    }

    fn release_dropped(&self, tenure: Tenure) {
        let (mut leases, now) = self.shared.leases.lock();
        leases.release(now, &tenure);
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.leases.clock)
    }
}

impl LeaseState {
    fn acquire(
        &mut self,
        now: Timestamp,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: &OwnerToken,
    ) -> Option<FencingToken> {
        self.expire(now);
        if self.held.contains_key(resource) {
            return None;
        }
        let token = self.next_token();
        let until = now.after(duration.get());
        self.ends.insert((until, token), resource.clone());
        let held = HeldLease { owner: owner.clone(), since: token, token, until };
        self.held.insert(resource.clone(), held);
        Some(token)
    }

    fn renew(
        &mut self,
        now: Timestamp,
        tenure: &Tenure,
        duration: LeaseDuration,
    ) -> Option<FencingToken> {
        self.expire(now);
        self.held.get(&tenure.resource).filter(|held| held.is(tenure))?;
        let token = self.next_token();
        let held = self.held.get_mut(&tenure.resource).expect("it was just found");
        let listed = self.ends.remove(&(held.until, held.token));
        let resource = listed.expect("what is held is listed");
        (held.until, held.token) = (now.after(duration.get()), token);
        self.ends.insert((held.until, held.token), resource);
        Some(token)
    }

    fn release(&mut self, now: Timestamp, tenure: &Tenure) -> usize {
        self.expire(now);
        let Some(held) = self.held.get(&tenure.resource).filter(|held| held.is(tenure)) else {
            return 0;
        };
        self.ends.remove(&(held.until, held.token)).expect("what is held is listed");
        self.held.remove(&tenure.resource);
        1
    }

    fn next_token(&mut self) -> FencingToken {
        self.last_token += 1;
        FencingToken::new(self.last_token)
    }

    /// Removes expired leases. Each lease is removed once, so the amortised cost is constant.
    fn expire(&mut self, now: Timestamp) {
        while let Some(entry) = self.ends.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let resource = entry.remove();
            self.held.remove(&resource).expect("what is listed is held");
        }
    }
}

impl HeldLease {
    fn is(&self, tenure: &Tenure) -> bool {
        self.owner == tenure.owner && self.since <= tenure.token
    }
}

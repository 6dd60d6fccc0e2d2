//! A lease in the hands of its holder: it knows by itself when it is lost.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{Fence, FencingToken, Leases, Tenure};
use crate::{Clock, LeaseDuration, OwnerToken, ResourceName, Result, Timestamp};

/// When a lease that renews itself does so, in percent of its duration…
const RENEW_AFTER_PERCENT: u32 = 60;
/// …give or take this much, so that holders do not renew in step.
const RENEW_JITTER_PERCENT: u32 = 5;
/// How long it waits after a renewal that got no answer, in percent of its duration.
const RENEW_AGAIN_AFTER_PERCENT: u32 = 5;

/// The right to a resource, until it is released, dropped, or lost.
///
/// Lost means: not renewed in time, or refused by the provider at a renewal. Once lost it stays
/// lost, and [`lost`](Lease::lost) fires by itself; nobody has to ask.
#[derive(Debug)]
pub struct Lease<L: Leases> {
    core: Arc<Core<L>>,
    tasks: Vec<AbortHandle>,
    /// Whether the provider knows that this is over, so that the drop need not say it again.
    released: bool,
}

/// The lease is not held any more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("lost_lease: {resource} is not held any more, the last fencing token was {}", token.get())]
pub struct LostLease {
    /// What was held.
    pub resource: ResourceName,
    /// The last token it was held with.
    pub token: FencingToken,
}

#[derive(Debug)]
struct Core<L> {
    leases: L,
    clock: Arc<dyn Clock>,
    resource: ResourceName,
    owner: OwnerToken,
    duration: LeaseDuration,
    held: watch::Sender<Held>,
    lost: CancellationToken,
    /// Held over each renewal, so that tokens arrive in the order in which they were given.
    renewing: Mutex<()>,
}

/// The newest known token, and when it runs out by this process's clock.
#[derive(Debug, Clone, Copy)]
struct Held {
    token: FencingToken,
    asked_at: Timestamp,
    until: Timestamp,
}

enum Renewal {
    Renewed,
    Lost,
    NoAnswer,
}

impl<L: Leases> Lease<L> {
    pub(super) async fn acquire(
        leases: &L,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: Option<OwnerToken>,
    ) -> Result<Option<Lease<L>>> {
        let owner = owner.unwrap_or_else(OwnerToken::random);
        let clock = leases.clock();
        let asked_at = clock.now();
        let Some(token) = leases.try_acquire(resource, duration, &owner).await? else {
            return Ok(None);
        };
        let core = Arc::new(Core {
            leases: leases.clone(),
            clock,
            resource: resource.clone(),
            owner,
            duration,
            held: watch::Sender::new(Held::new(token, asked_at, duration)),
            lost: CancellationToken::new(),
            renewing: Mutex::new(()),
        });
        let watch = tokio::spawn(Arc::clone(&core).watch_for_the_end()).abort_handle();
        Ok(Some(Lease { core, tasks: vec![watch], released: false }))
    }

    /// The same lease, renewing itself at 60 % of its duration, give or take 5 %, until it is
    /// dropped or lost.
    #[must_use]
    pub fn renewed_automatically(mut self) -> Lease<L> {
        let renewal = tokio::spawn(Arc::clone(&self.core).keep_renewing());
        self.tasks.push(renewal.abort_handle());
        self
    }

    /// What is held.
    pub fn resource(&self) -> &ResourceName {
        &self.core.resource
    }

    /// Who holds it.
    pub fn owner(&self) -> &OwnerToken {
        &self.core.owner
    }

    /// The newest token it is held with.
    pub fn fencing_token(&self) -> FencingToken {
        self.core.held.borrow().token
    }

    /// What work done under this lease carries.
    pub fn fence(&self) -> Fence {
        Fence { resource: self.core.resource.clone(), token: self.fencing_token() }
    }

    /// Fires when the lease is lost, released or dropped.
    pub fn lost(&self) -> CancellationToken {
        self.core.lost.clone()
    }

    /// To ask before each effect.
    ///
    /// # Errors
    /// [`LostLease`] if the lease is not held any more.
    pub fn ensure_held(&self) -> Result<(), LostLease> {
        self.core.ensure_held()
    }

    /// Extends the lease to its full duration from now, with a larger token. False if it is lost,
    /// or if the provider gave no answer; then it is held until it runs out.
    pub async fn try_renew_now(&self) -> bool {
        match self.core.renew().await {
            Renewal::Renewed => true,
            Renewal::Lost | Renewal::NoAnswer => false,
        }
    }

    /// Does the work for as long as the lease is held; drops it in the middle when the lease is
    /// lost.
    ///
    /// # Errors
    /// [`LostLease`] if the work was not done when the lease was lost.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostLease> {
        self.ensure_held()?;
        tokio::select! {
            biased;
            () = self.core.lost.cancelled() => Err(self.core.lost_lease()),
            output = work => Ok(output),
        }
    }

    /// Gives the resource back. Says how many tenures this ended: 0 if the lease was lost before.
    ///
    /// # Errors
    /// [`ProviderError`](crate::ProviderError) if the provider gave no answer; the drop then tries
    /// once more.
    pub async fn release(mut self) -> Result<usize> {
        self.core.lost.cancel();
        let count = self.core.leases.release(&self.core.tenure()).await?;
        self.released = true;
        Ok(count)
    }
}

/// Gives the resource back.
impl<L: Leases> Drop for Lease<L> {
    fn drop(&mut self) {
        self.core.lost.cancel();
        for task in &self.tasks {
            task.abort();
        }
        if !self.released {
            self.core.leases.release_dropped(self.core.tenure());
        }
    }
}

impl<L: Leases> Core<L> {
    fn tenure(&self) -> Tenure {
        let token = self.held.borrow().token;
        Tenure { resource: self.resource.clone(), owner: self.owner.clone(), token }
    }

    fn lost_lease(&self) -> LostLease {
        LostLease { resource: self.resource.clone(), token: self.held.borrow().token }
    }

    fn ensure_held(&self) -> Result<(), LostLease> {
        let until = self.held.borrow().until;
        if until <= self.clock.now() {
            self.lost.cancel();
        }
        if self.lost.is_cancelled() { Err(self.lost_lease()) } else { Ok(()) }
    }

    async fn renew(&self) -> Renewal {
        let _one_at_a_time = self.renewing.lock().await;
        if self.ensure_held().is_err() {
            return Renewal::Lost;
        }
        let asked_at = self.clock.now();
        match self.leases.try_renew(&self.tenure(), self.duration).await {
            Ok(Some(token)) => {
                self.held.send_replace(Held::new(token, asked_at, self.duration));
                // The answer may come after the end by our own clock. Lost stays lost: others were
                // told.
                if self.ensure_held().is_err() { Renewal::Lost } else { Renewal::Renewed }
            }
            Ok(None) => {
                self.lost.cancel();
                Renewal::Lost
            }
            Err(error) => {
                tracing::warn!(resource = %self.resource, %error, "lease renewal got no answer");
                Renewal::NoAnswer
            }
        }
    }

    async fn watch_for_the_end(self: Arc<Self>) {
        let mut held = self.held.subscribe();
        loop {
            let until = held.borrow_and_update().until;
            tokio::select! {
                () = self.clock.wait_until(until) => {
                    if self.ensure_held().is_err() {
                        return;
                    }
                }
                renewed = held.changed() => renewed.expect("the sender lives in this core"),
                () = self.lost.cancelled() => return,
            }
        }
    }

    async fn keep_renewing(self: Arc<Self>) {
        let lost = self.lost.clone();
        let mut renew_at = self.next_renewal_at();
        loop {
            tokio::select! {
                () = lost.cancelled() => return,
                () = self.clock.wait_until(renew_at) => {}
            }
            renew_at = match self.renew().await {
                Renewal::Renewed => self.next_renewal_at(),
                Renewal::NoAnswer => {
                    let again_after = percent_of(self.duration, RENEW_AGAIN_AFTER_PERCENT);
                    self.clock.now().after(again_after.max(Duration::from_millis(1)))
                }
                Renewal::Lost => return,
            };
        }
    }

    fn next_renewal_at(&self) -> Timestamp {
        let percent = fastrand::u32(
            RENEW_AFTER_PERCENT - RENEW_JITTER_PERCENT..=RENEW_AFTER_PERCENT + RENEW_JITTER_PERCENT,
        );
        self.held.borrow().asked_at.after(percent_of(self.duration, percent))
    }
}

impl Held {
    fn new(token: FencingToken, asked_at: Timestamp, duration: LeaseDuration) -> Held {
        Held { token, asked_at, until: asked_at.after(duration.get()) }
    }
}

fn percent_of(duration: LeaseDuration, percent: u32) -> Duration {
    duration.get() * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::suspension;
    use crate::{MemoryProvider, MonotonicClock};

    /// The provider gave it to another while this machine was suspended.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_ran_out_in_suspend_is_not_held() {
        let clock = MonotonicClock::on_machine(Timestamp::MIN, suspension::micros);
        let leases = MemoryProvider::with_clock(Arc::new(clock));
        let resource = ResourceName::new("report").unwrap();
        let duration = LeaseDuration::new(Duration::from_secs(30)).unwrap();
        let lease = leases.acquire(&resource, duration, None).await.unwrap().unwrap();
        suspension::add(Duration::from_secs(20));
        assert_eq!(lease.ensure_held(), Ok(()));
        suspension::add(Duration::from_secs(10));
        assert!(lease.ensure_held().is_err());

        let lease = leases.acquire(&resource, duration, None).await.unwrap().unwrap();
        suspension::add(Duration::from_secs(30));
        let noticed = tokio::time::timeout(Duration::from_secs(3), lease.lost().cancelled()).await;
        assert!(noticed.is_ok(), "nobody has to ask");
    }
}

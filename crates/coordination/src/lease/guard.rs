//! The holder's handle of a lease.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{Fence, FencingToken, Leases, Tenure};
use crate::{Clock, LeaseDuration, OwnerToken, ResourceName, Result, Timestamp};

/// When a lease renews itself, in percent of its duration.
const RENEW_AFTER_PERCENT: u32 = 60;
/// Jitter of the renewal time, so that holders do not renew in step.
const RENEW_JITTER_PERCENT: u32 = 5;
/// The delay after an unanswered renewal, in percent of the lease's duration.
const RENEW_AGAIN_AFTER_PERCENT: u32 = 5;

/// The exclusive right to a resource, until it is released, dropped, or lost.
///
/// A lease is lost if it was not renewed in time, or if the provider refused the renewal. A lost
/// lease stays lost, and [`lost`](Lease::lost) fires automatically.
#[derive(Debug)]
pub struct Lease<L: Leases> {
    core: Arc<LeaseCore<L>>,
    tasks: Vec<AbortHandle>,
    /// Whether the provider was told, so that the drop need not release again.
    released: bool,
}

/// The lease is no longer held.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("lost_lease: {resource} is no longer held, last fencing token {}", token.get())]
pub struct LostLease {
    /// The resource of the lease.
    pub resource: ResourceName,
    /// The last token of the lease.
    pub token: FencingToken,
}

#[derive(Debug)]
struct LeaseCore<L> {
    leases: L,
    clock: Arc<dyn Clock>,
    resource: ResourceName,
    owner: OwnerToken,
    duration: LeaseDuration,
    held: watch::Sender<HeldToken>,
    lost: CancellationToken,
    /// Locked during each renewal, so that tokens arrive in the order in which they were issued.
    renewing: Mutex<()>,
}

/// The newest known token, and when it expires by this process's clock.
#[derive(Debug, Clone, Copy)]
struct HeldToken {
    token: FencingToken,
    asked_at: Timestamp,
    until: Timestamp,
}

enum RenewalOutcome {
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
        let core = Arc::new(LeaseCore {
            leases: leases.clone(),
            clock,
            resource: resource.clone(),
            owner,
            duration,
            held: watch::Sender::new(HeldToken::new(token, asked_at, duration)),
            lost: CancellationToken::new(),
            renewing: Mutex::new(()),
        });
        let watch = tokio::spawn(Arc::clone(&core).watch_expiry()).abort_handle();
        Ok(Some(Lease { core, tasks: vec![watch], released: false }))
    }

    /// Renews the lease automatically at 60 % of its duration, ± 5 %, until it is dropped or lost.
    #[must_use]
    pub fn renewed_automatically(mut self) -> Lease<L> {
        let renewal = tokio::spawn(Arc::clone(&self.core).keep_renewing());
        self.tasks.push(renewal.abort_handle());
        self
    }

    /// The resource.
    pub fn resource(&self) -> &ResourceName {
        &self.core.resource
    }

    /// The owner token of the holder.
    pub fn owner(&self) -> &OwnerToken {
        &self.core.owner
    }

    /// The newest token of the lease.
    pub fn fencing_token(&self) -> FencingToken {
        self.core.held.borrow().token
    }

    /// The fence to pass along with work done under this lease.
    pub fn fence(&self) -> Fence {
        Fence { resource: self.core.resource.clone(), token: self.fencing_token() }
    }

    /// Fires when the lease is lost, released or dropped.
    pub fn lost(&self) -> CancellationToken {
        self.core.lost.clone()
    }

    /// Checks that the lease is held. Call it before each effect.
    ///
    /// # Errors
    /// [`LostLease`] if the lease is no longer held.
    pub fn ensure_held(&self) -> Result<(), LostLease> {
        self.core.ensure_held()
    }

    /// Extends the lease to its full duration from now, with a larger token. Returns `false` if it
    /// is lost, or if the provider gave no answer; then it is held until it expires.
    pub async fn try_renew_now(&self) -> bool {
        match self.core.renew().await {
            RenewalOutcome::Renewed => true,
            RenewalOutcome::Lost | RenewalOutcome::NoAnswer => false,
        }
    }

    /// Runs the future while the lease is held; drops it when the lease is lost.
    ///
    /// # Errors
    /// [`LostLease`] if the lease was lost before the future completed.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostLease> {
        self.ensure_held()?;
        tokio::select! {
            biased;
            () = self.core.lost.cancelled() => Err(self.core.lost_lease()),
            output = work => Ok(output),
        }
    }

    /// Releases the resource. Returns 1, or 0 if the lease was lost before.
    ///
    /// # Errors
    /// [`ProviderError`](crate::ProviderError) if the provider gave no answer; the drop then retries
    /// once.
    pub async fn release(mut self) -> Result<usize> {
        self.core.lost.cancel();
        let count = self.core.leases.release(&self.core.tenure()).await?;
        self.released = true;
        Ok(count)
    }
}

/// Releases the resource.
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

impl<L: Leases> LeaseCore<L> {
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

    async fn renew(&self) -> RenewalOutcome {
        let _one_at_a_time = self.renewing.lock().await;
        if self.ensure_held().is_err() {
            return RenewalOutcome::Lost;
        }
        let asked_at = self.clock.now();
        match self.leases.try_renew(&self.tenure(), self.duration).await {
            Ok(Some(token)) => {
                self.held.send_replace(HeldToken::new(token, asked_at, self.duration));
                // The answer may arrive after the expiry by our own clock. Lost stays lost: `lost`
                // has fired.
                if self.ensure_held().is_err() {
                    RenewalOutcome::Lost
                } else {
                    RenewalOutcome::Renewed
                }
            }
            Ok(None) => {
                self.lost.cancel();
                RenewalOutcome::Lost
            }
            Err(error) => {
                tracing::warn!(resource = %self.resource, %error, "lease renewal got no answer");
                RenewalOutcome::NoAnswer
            }
        }
    }

    async fn watch_expiry(self: Arc<Self>) {
        let mut held = self.held.subscribe();
        loop {
            let until = held.borrow_and_update().until;
            tokio::select! {
                biased;
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
                biased;
                () = lost.cancelled() => return,
                () = self.clock.wait_until(renew_at) => {}
            }
            renew_at = match self.renew().await {
                RenewalOutcome::Renewed => self.next_renewal_at(),
                RenewalOutcome::NoAnswer => {
                    let again_after = percent_of(self.duration, RENEW_AGAIN_AFTER_PERCENT);
                    self.clock.now().after(again_after.max(Duration::from_millis(1)))
                }
                RenewalOutcome::Lost => return,
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

impl HeldToken {
    fn new(token: FencingToken, asked_at: Timestamp, duration: LeaseDuration) -> HeldToken {
        HeldToken { token, asked_at, until: asked_at.after(duration.get()) }
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
        assert!(noticed.is_ok(), "without a call");
    }
}

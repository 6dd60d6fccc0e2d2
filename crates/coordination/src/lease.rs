//! System leases: exclusive rights to named resources, with fencing tokens.

pub(crate) mod guard;

use std::sync::Arc;

use crate::{Answer, Clock, Lease, LeaseDuration, OwnerToken, ResourceName};

/// Orders the tenures of one resource: a later holder has a larger token.
///
/// It grows with every acquisition and renewal, and durable providers keep it across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

/// Proof of a lease, passed along with work done under it: the resource and the holder's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// What is held.
    pub resource: ResourceName,
    /// The token of the holder.
    pub token: FencingToken,
}

/// Identifies one tenure to the provider: the fence and its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// What is held.
    pub resource: ResourceName,
    /// Who holds it.
    pub owner: OwnerToken,
    /// The token that the holder knows. After a renewal whose answer was lost this is an older
    /// token of the same tenure, which a provider accepts; it rejects tokens of earlier tenures.
    pub token: FencingToken,
}

/// System leases. A provider implements the calls that name a [`Tenure`]; programs use
/// [`acquire`](Leases::acquire) and the [`Lease`] that it gives.
///
/// ```
/// use std::time::Duration;
/// use coordination::{LeaseDuration, Leases, MemoryProvider, ResourceName};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leases = MemoryProvider::new();
/// let resource = ResourceName::new("nightly-report")?;
/// let duration = LeaseDuration::new(Duration::from_secs(30))?;
///
/// let lease = leases.acquire(&resource, duration, None).await?.expect("nobody holds it");
/// assert!(leases.acquire(&resource, duration, None).await?.is_none());
/// lease.ensure_held()?;
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
pub trait Leases: Clone + Send + Sync + 'static {
    /// Acquires the resource for `duration`. Returns `None` if it is held, even by the same owner.
    ///
    /// Without `owner` the lease gets a random owner token. Must be called within a tokio runtime,
    /// because a task watches the expiry of the lease.
    ///
    /// If the answer is lost, a repeated call finds the resource held until the first lease
    /// expires.
    fn acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: Option<OwnerToken>,
    ) -> impl Answer<Option<Lease<Self>>> {
        Lease::acquire(self, resource, duration, owner)
    }

    /// The provider's part of [`acquire`](Leases::acquire). The token is larger than every earlier
    /// token of this resource.
    fn try_acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: &OwnerToken,
    ) -> impl Answer<Option<FencingToken>>;

    /// Extends the lease to `duration` from now and issues a larger token. Returns `None` if the
    /// lease was lost.
    fn try_renew(
        &self,
        tenure: &Tenure,
        duration: LeaseDuration,
    ) -> impl Answer<Option<FencingToken>>;

    /// Ends a tenure. Returns 1, or 0 if it had ended before.
    fn release(&self, tenure: &Tenure) -> impl Answer<usize>;

    /// Ends a tenure whose [`Lease`] was dropped. The default spawns a task that calls
    /// [`release`](Leases::release).
    fn release_dropped(&self, tenure: Tenure) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            let resource = &tenure.resource;
            tracing::debug!(%resource, "lease dropped outside a runtime, it will expire");
            return;
        };
        let leases = self.clone();
        runtime.spawn(async move {
            if let Err(error) = leases.release(&tenure).await {
                let resource = &tenure.resource;
                tracing::warn!(%resource, %error, "dropped lease not released, it will expire");
            }
        });
    }

    /// The clock by which this process decides that a lease has expired.
    ///
    /// A provider with a remote clock returns a [`MonotonicClock`](crate::MonotonicClock). A lease
    /// counts as lost `duration` after it was *requested* by this clock, which is never later than
    /// the provider's own expiry.
    fn clock(&self) -> Arc<dyn Clock>;
}

impl FencingToken {
    /// The token with this number.
    pub const fn new(number: u64) -> FencingToken {
        FencingToken(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

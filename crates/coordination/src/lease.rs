//! System leases: the right to a named resource, for a while, with a fencing token that grows for
//! ever.

pub(crate) mod guard;

use std::sync::Arc;

use crate::{Answer, Clock, Lease, LeaseDuration, OwnerToken, ResourceName};

/// Orders the tenures of one resource: whoever has the larger token came later.
///
/// Grows through renewals, expiry, release and re-acquisition, and for providers that outlive their
/// process through restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

/// What work that is done under a lease carries: the resource and the token it is held with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// What is held.
    pub resource: ResourceName,
    /// The token of the holder.
    pub token: FencingToken,
}

/// Names one tenure to the provider: the fence, and who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// What is held.
    pub resource: ResourceName,
    /// Who holds it.
    pub owner: OwnerToken,
    /// The token that the holder knows. After a renewal whose answer was lost it is an older one of
    /// the same tenure, which a provider accepts; one from an earlier tenure is not.
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
    /// Takes the resource for `duration` if nobody holds it, the same owner included. None is
    /// "held".
    ///
    /// Without `owner` the lease gets a token of its own. Must be called within a tokio runtime:
    /// the lease watches its own end.
    ///
    /// After a lost answer the repeated call finds the resource held until the first lease runs
    /// out.
    fn acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: Option<OwnerToken>,
    ) -> impl Answer<Option<Lease<Self>>> {
        Lease::acquire(self, resource, duration, owner)
    }

    /// The provider's part of [`acquire`](Leases::acquire).
    ///
    /// The token is larger than every token of this resource before.
    fn try_acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: &OwnerToken,
    ) -> impl Answer<Option<FencingToken>>;

    /// Extends a tenure to `duration` from now, with a larger token. None is "lost".
    fn try_renew(
        &self,
        tenure: &Tenure,
        duration: LeaseDuration,
    ) -> impl Answer<Option<FencingToken>>;

    /// Ends a tenure, if it lasts. Says how many tenures it ended: 1 or 0.
    fn release(&self, tenure: &Tenure) -> impl Answer<usize>;

    /// Ends a tenure whose [`Lease`] was dropped. By default this is [`release`](Leases::release)
    /// on a task of its own; a provider that need not wait does it at once.
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

    /// The clock by which this process judges that a lease has run out.
    ///
    /// The memory provider's own; a provider with a remote clock gives a
    /// [`MonotonicClock`](crate::MonotonicClock). A lease counts as lost `duration` after it was
    /// *asked for* by this clock, which is never later than the provider's own end of it.
    fn clock(&self) -> Arc<dyn Clock>;
}

impl FencingToken {
    /// The token with this number, as a provider keeps it.
    pub const fn new(number: u64) -> FencingToken {
        FencingToken(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

//! What all calls share.

use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimiter::clock::Clock;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::accounts::Accounts;
use crate::held_back::HeldBack;
use crate::limiter::GatewayLimiter;
use crate::limits::KeyCache;
use crate::observer::Observer;
use crate::ratios::Ratios;
use crate::renewals::Renewals;
use crate::request_body::BodyBounds;
use crate::route::first_segment;
use crate::settings::{OnBackendError, Provider};
use crate::upstream::Upstream;

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Shared<L> {
    pub(crate) limiter: L,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) runtime: Handle,
    pub(crate) wait: Duration,
    /// Hints of denials that are longer are exact.
    pub(crate) longest_backoff: Duration,
    pub(crate) on_backend_error: OnBackendError,
    pub(crate) access: Access,
    pub(crate) providers: Vec<ProviderContext>,
    pub(crate) bodies: BodyBounds,
    pub(crate) keys: KeyCache,
    pub(crate) ratios: Ratios,
    pub(crate) renewals: Renewals,
    pub(crate) held_back: HeldBack,
    /// Completes that are under way, and what is held back.
    pub(crate) tasks: TaskTracker,
    /// No more calls come: nothing is held back any longer.
    pub(crate) stopping: CancellationToken,
    pub(crate) open_streams: Arc<AtomicUsize>,
}

/// A provider and what is known of it.
#[derive(Debug)]
pub(crate) struct ProviderContext {
    pub(crate) settings: Provider,
    pub(crate) upstream: Upstream,
    pub(crate) accounts: Accounts,
    /// What is held back because of it; replaced with its key.
    pub(crate) holding: Mutex<CancellationToken>,
    /// The models of which the provider does not take `stream_options`.
    pub(crate) without_usage: Mutex<HashSet<Box<str>>>,
}

impl ProviderContext {
    /// The gateway's key of the provider is another one: what was known of the earlier one is forgotten, and what was held back because of
    /// it is given back.
    pub(crate) fn forget_key(&self, stopping: &CancellationToken) {
        self.accounts.forget();
        let mut holding = self.holding.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *holding, stopping.child_token()).cancel();
    }

    /// Is cancelled when nothing must be held back because of this provider any longer.
    pub(crate) fn holding(&self) -> CancellationToken {
        self.holding.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<L: GatewayLimiter> Shared<L> {
    /// The provider whose name a path begins with.
    pub(crate) fn provider_of(&self, path: &str) -> Option<usize> {
        let (name, _) = first_segment(path)?;
        self.providers.iter().position(|provider| provider.settings.name.as_str() == name)
    }
}

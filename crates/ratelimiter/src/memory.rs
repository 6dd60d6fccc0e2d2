//! The backend in memory: one process, no I/O, time from a [`Clock`].

mod options;

use std::sync::Arc;

pub use options::MemoryOptions;

use crate::clock::{Clock, Timestamp};
use crate::decision::Decision;
use crate::error::{CompleteError, DefineError, DeleteError, ReserveError, StateError};
use crate::key::LimitKey;
use crate::limit::Limit;
use crate::limiter::{Backend, Limiter};
use crate::registry::{LimitState, LimitStatus, Page, RegisteredLimit};
use crate::request::{CompleteRequest, ReserveRequest};

/// The limiter in memory, safe under any number of threads. Clones share one state.
#[derive(Debug, Clone)]
pub struct MemoryLimiter {
    clock: Arc<dyn Clock>,
}

impl MemoryLimiter {
    /// An empty limiter on the machine's clock, which sweeps itself in the background.
    pub fn new() -> Self {
        Self::with_options(MemoryOptions::default())
    }

    /// An empty limiter with these options.
    pub fn with_options(options: MemoryOptions) -> Self {
        Self {
            clock: options.clock,
        }
    }

    /// The limiter's present moment.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// [`Limiter::reserve`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_now(&self, _request: &ReserveRequest) -> Result<Decision, ReserveError> {
        todo!()
    }

    /// [`Limiter::complete`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn complete_now(&self, _request: &CompleteRequest) -> Result<(), CompleteError> {
        todo!()
    }

    /// [`Backend::define`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn define_now(&self, _limit: Limit) -> Result<LimitStatus, DefineError> {
        todo!()
    }

    /// Puts a limit back as it was registered, a decrease under way included.
    pub fn restore(&self, _registered: RegisteredLimit) -> LimitStatus {
        todo!()
    }

    /// [`Backend::delete`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn delete_now(&self, _key: &LimitKey) -> Result<(), DeleteError> {
        todo!()
    }

    /// [`Backend::state`] without a future.
    pub fn state_now(&self, _key: &LimitKey) -> Option<LimitState> {
        todo!()
    }

    /// [`Backend::states`] without a future.
    pub fn states_now(&self, _page: &Page) -> Vec<LimitState> {
        todo!()
    }

    /// Returns what has expired, applies decreases that have become possible, forgets what may be forgotten.
    pub fn sweep(&self) {
        todo!()
    }

    /// How many leases are open: allowed, not completed, and with something still live.
    pub fn open_leases(&self) -> usize {
        todo!()
    }
}

impl Default for MemoryLimiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Limiter for MemoryLimiter {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        self.reserve_now(request)
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.complete_now(request)
    }
}

impl Backend for MemoryLimiter {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        self.define_now(limit)
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        self.delete_now(key)
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        Ok(self.state_now(key))
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        Ok(self.states_now(page))
    }
}

//! Definitions that the backend keeps: all servers on it have them at once, and there is nothing to restore (`REG-01`).

use std::sync::Arc;

use ratelimiter::{
    DefineError, DeleteError, Limit, LimitKey, LimitStatus, RegisteredLimit, Registry, Unanswered,
};
use ratelimiter_waiting::Runtime;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::change::{ChangeError, Progress};
use super::change_log::{log_defined, log_deleted, log_unanswered};
use crate::hosted::HostedBackend;

/// Nobody rolls back what the backend may have applied; a repeat finds out.
const NOT_KNOWN_YET: &str = "; whether the change takes effect is not known yet";

/// The definitions in the backend.
#[derive(Debug)]
pub(super) struct KeptDefinitions<B> {
    backend: Arc<B>,
    limits_max: usize,
    /// Number of limits at the start; `None` if the backend did not answer.
    pub(super) limit_count: Option<usize>,
    /// Held during a change, so that changes at this server are logged, and counted against `limits_max`, one after another. Servers that
    /// define limits at the same moment may exceed the bound by these.
    changing: Mutex<()>,
}

impl<B: HostedBackend> KeptDefinitions<B> {
    pub(super) async fn new(backend: Arc<B>, limits_max: usize) -> Self {
        let limit_count = backend.definitions().await.ok().map(|before| before.len());
        Self { backend, limits_max, limit_count, changing: Mutex::default() }
    }

    pub(super) async fn define(
        &self,
        limits: Vec<Limit>,
        progress: &Progress,
    ) -> Result<Vec<LimitStatus>, ChangeError<DefineError>> {
        let _changing = self.changing.lock().await;
        let before = self.definitions().await?;
        self.check_count(&before, &limits)?;
        progress.begin()?;
        let mut defined = self.backend.define_all(limits.clone()).await;
        let planned = limits.into_iter().map(RegisteredLimit::in_force);
        match &mut defined {
            Ok(statuses) => {
                for (new, status) in planned.zip(statuses) {
                    log_defined(before.get(&new.limit.key), &new, *status);
                }
            }
            Err(DefineError::Unanswered(unanswered)) => {
                for new in planned {
                    let key = &new.limit.key;
                    log_unanswered(key, before.get(key), Some(&new), unanswered);
                }
                unanswered.reason.push_str(NOT_KNOWN_YET);
            }
            Err(_) => {}
        }
        Ok(defined?)
    }

    pub(super) async fn delete(
        &self,
        key: &LimitKey,
        progress: &Progress,
    ) -> Result<(), ChangeError<DeleteError>> {
        let _changing = self.changing.lock().await;
        let before = self.definitions().await?;
        progress.begin()?;
        let mut deleted = self.backend.delete(key).await;
        match &mut deleted {
            Ok(()) => log_deleted(key, before.get(key)),
            Err(DeleteError::Unanswered(unanswered)) => {
                log_unanswered(key, before.get(key), None, unanswered);
                unanswered.reason.push_str(NOT_KNOWN_YET);
            }
            Err(_) => {}
        }
        Ok(deleted?)
    }

    /// The definitions before a change.
    async fn definitions(&self) -> Result<Registry, Unanswered> {
        self.backend.definitions().await.map_err(|mut unanswered| {
            unanswered.reason.push_str("; nothing was changed");
            unanswered
        })
    }

    fn check_count(
        &self,
        before: &Registry,
        limits: &[Limit],
    ) -> Result<(), ChangeError<DefineError>> {
        let limits_max = self.limits_max;
        let new_count = limits.iter().filter(|limit| before.get(&limit.key).is_none()).count();
        match new_count > 0 && before.len() + new_count > limits_max {
            true => Err(ChangeError::TooManyLimits { limits_max }),
            false => Ok(()),
        }
    }

    pub(super) async fn tick(&self, runtime: &dyn Runtime, stop: &CancellationToken) {
        stop.run_until_cancelled(self.backend.tick(runtime)).await;
    }
}

//! Servers with a deliberate bug.

#![expect(clippy::wildcard_enum_match_arm, reason = "a bug is about one thing alone")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimiter::{
    Actual, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, LeaseId, Limit,
    LimitKey, LimitStatus, Requirement, Requirements, ReserveError, ReserveRequest,
};
use ratelimiterd::admin::ChangeError;
use tokio::sync::oneshot;

use super::context::SimContext;
use super::host::{BoxAnswer, Host};
use crate::flaw::Flaw;

/// A server with a bug around it.
pub(super) struct FlawedServer {
    inner: Arc<dyn Host>,
    flaw: Flaw,
    context: SimContext,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    completed: BTreeSet<LeaseId>,
    waiting: BTreeSet<LeaseId>,
    made_up: u128,
}

impl FlawedServer {
    pub(super) fn around(
        inner: Arc<dyn Host>,
        flaw: Option<Flaw>,
        context: &SimContext,
    ) -> Arc<dyn Host> {
        let Some(flaw) = flaw else {
            return inner;
        };
        let context = context.clone();
        Arc::new(Self { inner, flaw, context, notes: Mutex::default() })
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease ID that no client has.
    fn new_lease(&self) -> LeaseId {
        let mut notes = self.notes();
        notes.made_up += 1;
        let time = u128::from(self.context.start_ms()) << 80;
        LeaseId::from_u128(time | (u128::from(u64::MAX) << 16) | notes.made_up)
    }

    fn ask(&self, request: ReserveRequest) -> BoxAnswer<Result<Decision, ReserveError>> {
        Arc::clone(&self.inner).reserve(request)
    }
}

fn of(lease: LeaseId, requirements: Vec<Requirement>) -> ReserveRequest {
    ReserveRequest::new(lease, Requirements::new(requirements).expect("they were valid before"))
}

impl Host for FlawedServer {
    fn reserve(
        self: Arc<Self>,
        request: ReserveRequest,
    ) -> BoxAnswer<Result<Decision, ReserveError>> {
        let mut requirements: Vec<Requirement> = request.requirements.to_vec();
        Box::pin(async move {
            match self.flaw {
                Flaw::SkipsOneLimitInMemory if requirements.len() > 1 => {
                    requirements.pop();
                    self.ask(of(request.lease, requirements)).await
                }
                Flaw::ForgetsLeases => self.ask(of(self.new_lease(), requirements)).await,
                Flaw::DenialLeavesHoldInMemory => {
                    let answer = self.ask(request.clone()).await;
                    if answer.as_ref().is_ok_and(|decision| !decision.is_allowed()) {
                        requirements.truncate(1);
                        drop(self.ask(of(self.new_lease(), requirements)).await);
                    }
                    answer
                }
                Flaw::NewLeaseAfterSilence => match self.ask(request.clone()).await {
                    Err(ReserveError::Unanswered(_)) => {
                        self.ask(of(self.new_lease(), requirements)).await
                    }
                    answer => answer,
                },
                Flaw::AdmitsTheGone if request.wait.is_some() => {
                    let (sender, answer) = oneshot::channel();
                    let asked = self.ask(request);
                    self.context
                        .executor()
                        .spawn_here(async move { drop(sender.send(asked.await)) });
                    answer.await.expect("it ends with its server alone")
                }
                Flaw::AdmitsJoinersApart if request.wait.is_some() => {
                    if !self.notes().waiting.insert(request.lease) {
                        let lease = self.new_lease();
                        return self.ask(ReserveRequest { lease, ..request }).await;
                    }
                    let lease = request.lease;
                    let answer = self.ask(request).await;
                    self.notes().waiting.remove(&lease);
                    answer
                }
                Flaw::AnswersNoDenials if request.wait.is_some() => match self.ask(request).await {
                    Ok(Decision::Denied(_)) => std::future::pending().await,
                    answer => answer,
                },
                _ => self.ask(request).await,
            }
        })
    }

    fn complete(self: Arc<Self>, request: CompleteRequest) -> BoxAnswer<Result<(), CompleteError>> {
        Box::pin(async move {
            let is_first = self.notes().completed.insert(request.lease);
            match self.flaw {
                Flaw::ForgetsCompletes => Ok(()),
                Flaw::CompletesAgain if !is_first => {
                    let requirement = |actual: &Actual| {
                        let amount = std::num::NonZeroU64::new(actual.amount)?;
                        Some(Requirement { key: actual.key.clone(), amount })
                    };
                    let again: Vec<_> = request.actuals.iter().filter_map(requirement).collect();
                    if !again.is_empty() {
                        drop(self.ask(of(self.new_lease(), again)).await);
                    }
                    Arc::clone(&self.inner).complete(request).await
                }
                _ => Arc::clone(&self.inner).complete(request).await,
            }
        })
    }

    fn define(
        self: Arc<Self>,
        limits: Vec<Limit>,
    ) -> BoxAnswer<Result<Vec<LimitStatus>, ChangeError<DefineError>>> {
        Arc::clone(&self.inner).define(limits)
    }

    fn delete(self: Arc<Self>, key: LimitKey) -> BoxAnswer<Result<(), ChangeError<DeleteError>>> {
        Arc::clone(&self.inner).delete(key)
    }

    fn shut_down(&self) {
        self.inner.shut_down();
    }
}

//! A call from its body to the head of its answer.

use std::future::poll_fn;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either as Race, select};
use hyper::body::Body;
use hyper::{Request, Response};
use ratelimiter::clock::Timestamp;
use tokio::time::Instant;

use crate::accounts::Entry;
use crate::answer_body::GatewayBody;
use crate::attempt::CallContext;
use crate::call::Call;
use crate::caller::Caller;
use crate::limiter::GatewayLimiter;
use crate::observer::{CallOutcome, CallReport};
use crate::prepared::{Prepared, Target};
use crate::refusal::{Refusal, RefusalKind};
use crate::retry::Retry;
use crate::selection::Chosen;
use crate::settle::AttemptEnd;
use crate::shared::Shared;
use crate::trial::{Trial, Tried};
use crate::upstream::BoxError;

/// The most models of a provider that are remembered not to take `stream_options`.
const WITHOUT_USAGE_MAX: usize = 1_000;

impl<L: GatewayLimiter> Shared<L> {
    /// Makes a call and passes its answer on.
    pub(crate) async fn metered<B, C: Caller>(
        self: &Arc<Self>,
        target: Target<'_>,
        request: Request<B>,
        caller: Option<C>,
    ) -> Result<Response<GatewayBody<L, C>>, Refusal>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let started = self.clock.now();
        let prepared = self.prepare(target, request).await;
        let prepared =
            prepared.inspect_err(|refusal| self.report(target, None, started, refusal))?;
        let (listed, asked_at) = (prepared.listed, prepared.started);
        // Only from here on nobody reads from the connection.
        let gone = caller.clone();
        let calling = Box::pin(self.call(target, prepared, caller));
        let answered = match gone {
            None => calling.await,
            Some(gone) => match select(calling, poll_fn(|context| gone.poll_gone(context))).await {
                Race::Left((answered, _)) => answered,
                // Nobody reads this. What was reserved is settled as the call is dropped.
                Race::Right(_) => {
                    Err(Refusal::new(RefusalKind::CallerGone, "the caller went away"))
                }
            },
        };
        answered.map_err(|refusal| {
            self.report(target, listed, asked_at, &refusal);
            Refusal { waited: Some(self.clock.now().since(asked_at)), ..refusal }
        })
    }

    /// Waits for room and asks the provider, again where that helps.
    async fn call<C: Caller>(
        self: &Arc<Self>,
        target: Target<'_>,
        prepared: Prepared,
        caller: Option<C>,
    ) -> Result<Response<GatewayBody<L, C>>, Refusal> {
        let Prepared { call, listed, destinations, wishes, started, .. } = &prepared;
        let deadline = started.after(wishes.wait);
        let mut is_usage_rejected = false;
        let mut retries = 0;
        let mut tried = vec![false; destinations.len()];
        let (provider, listed) = (target.provider, *listed);
        let mut waiting =
            Waiting { shared: self, provider, listed, started: *started, is_over: false };
        loop {
            let admitted = self.admit_to_one(&prepared, &tried, deadline).await;
            waiting.is_over = true;
            let Chosen { at, mut attempt, has_other_now } = admitted?;
            tried[at] = true;
            // One that was not tried may get room by then.
            let has_other = tried.contains(&false);
            let destination = &destinations[at];
            let context = &destination.context;
            let left = match has_other_now {
                true => Duration::ZERO,
                false => deadline.since(self.clock.now()),
            };
            let in_flight = match context.account.enter(context.amounts_at_most(), left).await {
                Entry::Entered(in_flight) => in_flight,
                Entry::NoRoom(after) if !has_other_now => {
                    attempt.settle(AttemptEnd::NeverSent);
                    let settings = &self.providers[context.provider].settings;
                    return Err(Refusal::closed(settings, &context.name, after));
                }
                Entry::Closed | Entry::NoRoom(_) => {
                    // What it has would lapse before the provider's own count does.
                    attempt.settle(AttemptEnd::NeverSent);
                    waiting.is_over = false;
                    if !has_other_now {
                        tried.fill(false);
                    }
                    continue;
                }
            };
            let now = self.clock.now();
            attempt.waited = now.since(*started);
            attempt.sends(in_flight);
            let left = deadline.since(now);
            let retry = (retries < wishes.retries_max).then_some(Retry { retries, left });
            let asks_for_usage = !is_usage_rejected && self.asks_for_usage(context, call);
            let operation = target.operation;
            let trial = Trial { operation, call, destination, asks_for_usage, retry, has_other };
            match self.try_once(trial, attempt, caller.clone()).await? {
                Tried::Answer(response) => return Ok(response),
                Tried::WithoutUsage => {
                    self.remember_without_usage(context);
                    is_usage_rejected = true;
                    tried[at] = false;
                }
                Tried::Again { after } => {
                    retries += 1;
                    if !has_other {
                        waiting.is_over = false;
                        tokio::time::sleep_until(Instant::now() + after).await;
                        tried.fill(false);
                    }
                }
            }
            waiting.is_over = false;
        }
    }

    fn asks_for_usage(&self, context: &CallContext, call: &Call) -> bool {
        let without = self.providers[context.provider].without_usage.lock();
        let without = without.unwrap_or_else(PoisonError::into_inner);
        call.body_with_usage.is_some() && !without.contains(&context.model)
    }

    fn remember_without_usage(&self, context: &CallContext) {
        let without = self.providers[context.provider].without_usage.lock();
        let mut without = without.unwrap_or_else(PoisonError::into_inner);
        if without.len() < WITHOUT_USAGE_MAX {
            without.insert(context.model.clone());
        }
    }

    /// Counts a call that the gateway refused itself.
    fn report(
        &self,
        target: Target<'_>,
        listed: Option<usize>,
        started: Timestamp,
        refusal: &Refusal,
    ) {
        let Some(outcome) = outcome_of(refusal.kind) else { return };
        self.report_unsent(target.provider, listed, started, outcome);
    }

    /// Counts a call that was not sent.
    fn report_unsent(
        &self,
        provider: usize,
        listed: Option<usize>,
        started: Timestamp,
        outcome: CallOutcome,
    ) {
        let settings = &self.providers[provider].settings;
        let model = listed.map(|at| &*settings.models.as_ref().expect("it is listed")[at].name);
        self.observer.call_ended(&CallReport {
            provider: settings.name.as_str(),
            model,
            outcome,
            usage: None,
            cost: 0,
            waited: self.clock.now().since(started),
            first_byte_after: None,
            took: None,
        });
    }
}

/// A call that asks the limiter, or pauses before it does so again. Dropped before that is over, its caller has gone away.
struct Waiting<'a, L: GatewayLimiter> {
    shared: &'a Shared<L>,
    provider: usize,
    listed: Option<usize>,
    started: Timestamp,
    is_over: bool,
}

impl<L: GatewayLimiter> Drop for Waiting<'_, L> {
    fn drop(&mut self) {
        if !self.is_over {
            let Self { shared, provider, listed, started, .. } = *self;
            shared.report_unsent(provider, listed, started, CallOutcome::CallerGone);
        }
    }
}

/// How a call ended that the gateway refused itself; `None` if it was counted before.
fn outcome_of(kind: RefusalKind) -> Option<CallOutcome> {
    Some(match kind {
        RefusalKind::NoRoom => CallOutcome::NoRoom,
        RefusalKind::Closed => CallOutcome::RefusedRate,
        RefusalKind::Unavailable => CallOutcome::BackendError,
        // They were counted.
        RefusalKind::BadGateway | RefusalKind::GatewayTimeout | RefusalKind::CallerGone => {
            return None;
        }
        RefusalKind::Invalid
        | RefusalKind::NoPrice
        | RefusalKind::NeverFits
        | RefusalKind::Unauthorized
        | RefusalKind::ModelNotAllowed
        | RefusalKind::ModelNotFound
        | RefusalKind::NotFound
        | RefusalKind::TooLarge
        | RefusalKind::TooSlow
        | RefusalKind::NotImplemented => CallOutcome::Invalid,
    })
}

//! One attempt to make a call: a lease that is settled exactly once, whatever happens (`GW-05`).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use ratelimiter::{Actuals, CompleteError, CompleteRequest, LeaseId};
use tokio::time::Instant;

use crate::accounts::{Account, InFlight};
use crate::answer::Observed;
use crate::credit::{Amounts, Sent};
use crate::estimate::Estimate;
use crate::limiter::GatewayLimiter;
use crate::observer::{CallOutcome, CallReport};
use crate::price::Price;
use crate::ratios::Ratio;
use crate::settle::{AttemptEnd, Reserved, actuals, settle};
use crate::shared::Shared;
use crate::upstream::SentFlag;
use crate::usage::Usage;

/// How often a complete without an answer is sent; after that, the lease lapses.
const COMPLETES_MAX: u32 = 10;
/// The first pause after it; it doubles.
const COMPLETE_RETRY_AFTER: Duration = Duration::from_millis(100);

/// What stays the same over the attempts of a call.
#[derive(Debug)]
pub(crate) struct CallContext {
    pub(crate) provider: usize,
    /// As the provider gets it.
    pub(crate) model: Box<str>,
    /// Its listed name, or as the provider gets it.
    pub(crate) name: Box<str>,
    /// Its key and model at the provider.
    pub(crate) account: Arc<Account>,
    /// Its position in the provider's list.
    pub(crate) listed: Option<usize>,
    pub(crate) price: Option<Price>,
    pub(crate) is_stream: bool,
    /// It is a stream, before whose output the model may reason.
    pub(crate) may_reason: bool,
    pub(crate) estimate: Estimate,
}

impl CallContext {
    pub(crate) const fn amounts_at_most(&self) -> Amounts {
        Amounts::at_most(&self.estimate)
    }
}

/// What the limiter said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// By its limits.
    Limited,
    /// No limit governs the call.
    Ungoverned,
    /// The backend gave no answer, and the call goes ahead all the same.
    Unlimited,
}

/// Dropped without an end, its caller has gone away.
#[derive(Debug)]
pub(crate) struct Attempt<L: GatewayLimiter> {
    shared: Arc<Shared<L>>,
    pub(crate) context: Arc<CallContext>,
    /// Without one nothing is settled.
    lease: Option<LeaseId>,
    reserved: Arc<[Reserved]>,
    admitted: Admitted,
    pub(crate) waited: Duration,
    in_flight: Option<InFlight>,
    sent: SentFlag,
    sent_at: Option<Instant>,
    first_byte_at: Option<Instant>,
    is_ended: bool,
}

impl<L: GatewayLimiter> Attempt<L> {
    pub(crate) fn new(
        shared: Arc<Shared<L>>,
        context: Arc<CallContext>,
        admitted: Admitted,
        lease: Option<(LeaseId, Arc<[Reserved]>)>,
        waited: Duration,
    ) -> Self {
        let (lease, reserved) =
            lease.map_or_else(|| (None, Arc::default()), |(id, of)| (Some(id), of));
        Self {
            shared,
            context,
            lease,
            reserved,
            admitted,
            waited,
            in_flight: None,
            sent: SentFlag::default(),
            sent_at: None,
            first_byte_at: None,
            is_ended: false,
        }
    }

    pub(crate) fn lease(&self) -> Option<LeaseId> {
        self.lease
    }

    pub(crate) fn reserved(&self) -> &[Reserved] {
        &self.reserved
    }

    /// Knows whether it was sent.
    pub(crate) fn sent_flag(&self) -> SentFlag {
        self.sent.clone()
    }

    /// Whether the provider may know of it.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent.is_sent()
    }

    /// It is about to be sent.
    pub(crate) fn sends(&mut self, in_flight: InFlight) {
        self.in_flight = Some(in_flight);
        self.sent_at = Some(Instant::now());
    }

    /// When the provider may have got it.
    pub(crate) fn sent(&self) -> Option<Sent> {
        self.in_flight.as_ref().map(InFlight::sent)
    }

    /// The provider has answered.
    pub(crate) fn answer_begins(&mut self) {
        let rate_counts = self.shared.providers[self.context.provider].settings.rate_counts;
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.begun(rate_counts);
        }
    }

    pub(crate) fn has_byte(&mut self) {
        if self.first_byte_at.is_none() {
            self.first_byte_at = Some(Instant::now());
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Tells operators that its answer did not come to its end.
    pub(crate) fn log_cut(&self, error: &impl std::fmt::Display) {
        let provider = self.shared.providers[self.context.provider].settings.name.as_str();
        let lease = self.lease.map(|lease| lease.to_string());
        tracing::warn!(provider, lease, %error, "an answer was cut");
    }

    /// Settles it; the call goes on with another attempt.
    pub(crate) fn settle(&mut self, end: AttemptEnd) -> Option<Usage> {
        assert!(!self.is_ended, "an attempt ends once");
        self.is_ended = true;
        let settlement = settle(end, &self.context.estimate);
        if let Some((in_flight, usage)) = self.in_flight.take().zip(settlement.usage) {
            in_flight.end(Amounts::used(settlement.requests, &usage));
        }
        if let AttemptEnd::Answered { usage: Some(usage), .. } = end {
            self.learn(&usage);
        }
        self.complete(actuals(
            &settlement,
            &self.reserved,
            self.context.price.as_ref(),
            self.shared.providers[self.context.provider].settings.rate_counts,
        ));
        settlement.usage
    }

    /// Settles it, and with it the call.
    pub(crate) fn end(&mut self, end: AttemptEnd, outcome: CallOutcome) {
        let usage = self.settle(end);
        let outcome = match (outcome, self.admitted) {
            (CallOutcome::Answered, Admitted::Ungoverned) => CallOutcome::Ungoverned,
            (CallOutcome::Answered, Admitted::Unlimited) => CallOutcome::Unlimited,
            (outcome, _) => outcome,
        };
        let CallContext { provider, listed, price, .. } = &*self.context;
        let cost = price.as_ref().zip(usage).map_or(0, |(price, usage)| price.cost(&usage));
        let since = |at: Option<Instant>| Some(at?.duration_since(self.sent_at?));
        let settings = &self.shared.providers[*provider].settings;
        let model = listed.map(|at| &*settings.models.as_ref().expect("it is listed")[at].name);
        self.shared.observer.call_ended(&CallReport {
            provider: settings.name.as_str(),
            model,
            outcome,
            usage,
            cost,
            waited: self.waited,
            first_byte_after: since(self.first_byte_at),
            took: since(Some(Instant::now())),
        });
    }

    /// What is known without the provider's usage: its word about the input, or the estimate, and the output that passed.
    pub(crate) fn counted(&self, observed: &Observed) -> Usage {
        let CallContext { estimate, model, provider, .. } = &*self.context;
        let ratio = self.shared.ratios.learned(*provider, model).unwrap_or(Ratio::TYPICAL);
        let passed = ratio.tokens(observed.output_bytes);
        let input = Usage { input: estimate.input, ..Usage::default() };
        let known = observed.usage.or(observed.input_usage).unwrap_or(input);
        // The output that the provider has named so far may be behind.
        Usage { output: passed.min(estimate.output).max(known.output), ..known }
    }

    /// The end of a stream that did not come to its own. Until output can be seen, a model may reason out of sight.
    pub(crate) fn cut(&self, observed: &Observed) -> AttemptEnd {
        let may_reason = self.context.may_reason && observed.output_bytes == 0;
        let is_reasoning = observed.is_reasoning || may_reason;
        AttemptEnd::Cut { counted: self.counted(observed), is_reasoning }
    }

    fn learn(&self, usage: &Usage) {
        let CallContext { provider, model, listed, estimate, .. } = &*self.context;
        // Names that nobody listed are the callers', who may invent any number of them.
        if listed.is_some() || self.shared.providers[*provider].settings.models.is_none() {
            self.shared.ratios.learn(*provider, model, estimate.bytes, usage.all_input());
        }
    }

    fn complete(&self, actuals: Vec<ratelimiter::Actual>) {
        let Some(lease) = self.lease else { return };
        self.shared.renewals.remove(lease);
        let actuals = Actuals::new(actuals).expect("as many as the requirements, with their keys");
        let request = CompleteRequest::new(lease, actuals);
        let shared = Arc::clone(&self.shared);
        let mut completing = Box::pin(async move { complete(&shared.limiter, &request).await });
        // A backend in memory answers at once.
        if (&mut completing).now_or_never().is_none() {
            self.shared.tasks.spawn_on(completing, &self.shared.runtime);
        }
    }
}

impl<L: GatewayLimiter> Drop for Attempt<L> {
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        let end = match (self.is_sent(), self.context.is_stream) {
            (false, _) => AttemptEnd::NeverSent,
            (true, true) => self.cut(&Observed::default()),
            (true, false) => AttemptEnd::PlainAnswerCut,
        };
        self.end(end, CallOutcome::CallerGone);
    }
}

/// Completes a lease; without an answer it tries again.
pub(crate) async fn complete(limiter: &impl GatewayLimiter, request: &CompleteRequest) {
    let mut pause = COMPLETE_RETRY_AFTER;
    for _ in 0..COMPLETES_MAX {
        match limiter.complete(request).await {
            Ok(()) => return,
            Err(CompleteError::Unanswered(error)) => {
                tracing::debug!(lease = %request.lease, %error, "complete had no answer");
            }
            Err(error) => {
                tracing::error!(lease = %request.lease, %error, "complete of a call failed");
                return;
            }
        }
        tokio::time::sleep_until(Instant::now() + pause).await;
        pause *= 2;
    }
    tracing::error!(lease = %request.lease, "complete of a call had no answer; its lease lapses by itself");
}

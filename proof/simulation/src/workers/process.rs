//! A process with one of each worker, and the faults of its calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coordination::{
    Answer, CancellationToken, Handler, HandlerError, InboxDispatcher, InboxMessage,
    MemoryProvider, OutboxDispatcher, OutboxMessage, ProviderError, SchedulerWorker, TopicHandlers,
};
use ratelimiter::clock::Clock;
use ratelimiter_client::Done;
use ratelimiter_client::jobs::{JobCall, JobRunner};
use testkit::coordination::{Between, Call, Hook};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::context::SimContext;
use super::flawed::Instead;
use super::flawed_limiter::FlawedLimiter;
use super::handlers::ProcessStatus;
use super::observed::number_of_key;
use super::plan::{End, TOPICS, Target};
use super::settings::{
    HOLD_SECONDS, runner_settings, scheduler_settings, tick_topic, topic, worker_settings,
};
use crate::fault::Fault;
use crate::flaw::Flaw;

/// How late workers hear that they should stop, with that bug.
const LATE: Duration = Duration::from_secs(1);
/// A process; the hook around all its calls to the provider. Clones are the same process.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) status: ProcessStatus,
    pub(super) context: SimContext,
    trouble: Arc<Mutex<Trouble>>,
}

/// What is to go wrong with its calls.
#[derive(Default)]
struct Trouble {
    next: Vec<(Target, CallFault)>,
    paused_until: Option<Instant>,
}

/// One call of a handler. Dropped before its end it was cut off.
struct HandlerCall {
    process: Process,
    call: u64,
    has_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallFault {
    LoseAnswer,
    HoldCall(Duration),
    HoldAnswer(Duration),
}

impl Process {
    pub(super) fn new(number: usize, context: SimContext) -> Process {
        Process { number, status: ProcessStatus::default(), context, trouble: Arc::default() }
    }

    pub(super) fn provider(&self) -> Between<MemoryProvider, Process> {
        Between { inner: self.context.provider.clone(), hook: self.clone() }
    }

    /// What goes wrong with the next call of this kind.
    pub(super) fn plan_fault(&self, target: Target, fault: CallFault) {
        self.trouble().next.push((target, fault));
    }

    pub(super) fn pause(&self, span: Duration) {
        let until = Instant::now() + span;
        self.status.set_late(until);
        let mut trouble = self.trouble();
        trouble.paused_until = trouble.paused_until.max(Some(until));
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_fault(&self, target: Option<Target>) -> Option<CallFault> {
        let mut trouble = self.trouble();
        let index = trouble.next.iter().position(|(planned, _)| Some(*planned) == target)?;
        Some(trouble.next.remove(index).1)
    }

    async fn hold(&self, span: Duration) {
        self.context.note_fault(Fault::CallHeld);
        let until = Instant::now() + span;
        self.status.set_late(until);
        sleep_until(until).await;
    }

    /// Waits while the process is paused, and for ever when it is dead.
    async fn live(&self) {
        loop {
            let paused_until = self.trouble().paused_until;
            match paused_until {
                Some(until) if until > Instant::now() => sleep_until(until).await,
                Some(_) | None => break,
            }
        }
        if self.status.killed.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    /// Starts one of each worker.
    pub(super) fn start(&self, tasks: &mut JoinSet<()>) {
        let (stop, provider) = (self.heard_by_workers(tasks), self.provider());
        let (mut outbox, mut inbox) = (TopicHandlers::new(), TopicHandlers::new());
        for number in 0..TOPICS {
            outbox = outbox.on(topic(number), self.outbox_handler());
            let process = self.clone();
            inbox = inbox.on(topic(number), move |message: InboxMessage| {
                process.clone().handle(number_of_key(&message.key))
            });
        }
        outbox = outbox.on(tick_topic(), self.outbox_handler());
        let outbox = OutboxDispatcher::new(provider.clone(), outbox, worker_settings());
        let outbox = outbox.expect("valid settings").only_handled_topics();
        tasks.spawn(outbox.run(stop.clone()));
        let inbox = InboxDispatcher::new(provider.clone(), inbox, worker_settings());
        tasks.spawn(inbox.expect("valid settings").run(stop.clone()));
        let (scheduler, leases) = (provider.clone(), provider.clone());
        let scheduler =
            SchedulerWorker::new(scheduler, provider.clone(), leases, scheduler_settings());
        tasks.spawn(scheduler.expect("valid settings").run(stop.clone()));
        let process = self.clone();
        let handler = move |call: JobCall| process.clone().handle_job(call);
        let SimContext { limiter, flawed, .. } = self.context.clone();
        let limiter = FlawedLimiter { inner: limiter, flawed };
        let runner = JobRunner::new(provider, limiter, runner_settings(), handler);
        tasks.spawn(runner.expect("valid settings").run(stop));
    }

    /// What tells the workers to stop.
    fn heard_by_workers(&self, tasks: &mut JoinSet<()>) -> CancellationToken {
        let stop = self.status.stop.clone();
        if !self.context.flawed.has(Flaw::StopsLate) {
            return stop;
        }
        let heard = CancellationToken::new();
        let late = heard.clone();
        tasks.spawn(async move {
            stop.cancelled().await;
            sleep_until(Instant::now() + LATE).await;
            late.cancel();
        });
        heard
    }

    fn outbox_handler(&self) -> impl Handler<OutboxMessage> + use<> {
        let process = self.clone();
        move |message: OutboxMessage| {
            let number = process.context.state().oracle.names.number_of(message.id.ulid());
            process.clone().handle(number)
        }
    }

    async fn handle(self, number: u64) -> Result<(), HandlerError> {
        if self.context.flawed.has(Flaw::SkipsHandlers) {
            return Ok(());
        }
        if self.context.flawed.has(Flaw::FailsUnhandled) {
            return Err(HandlerError::retry("as planned"));
        }
        self.act_out(number, None).await.map(|_| ())
    }

    async fn handle_job(self, job: JobCall) -> Result<Done<String>, HandlerError> {
        let number = self.context.state().oracle.names.number_of(job.id.ulid());
        let held_until = job.permit.reserved_at().after(Duration::from_secs(HOLD_SECONDS));
        let output = self.act_out(number, Some(held_until)).await?;
        Ok(Done::using(1, output))
    }

    /// What every handler does: what the plan says. Its output names the call.
    async fn act_out(
        &self,
        number: u64,
        held_until: Option<ratelimiter::clock::Timestamp>,
    ) -> Result<String, HandlerError> {
        let (call, end) = HandlerCall::start(number, self, held_until);
        let (after_ms, is_well) = match end {
            End::Well { after_ms } => (after_ms, true),
            End::Badly { after_ms } => (after_ms, false),
            End::KillsProcess => {
                self.status.killed.cancel();
                std::future::pending().await
            }
        };
        sleep_until(Instant::now() + Duration::from_millis(after_ms)).await;
        call.end(is_well)
    }
}

impl HandlerCall {
    fn start(
        number: u64,
        process: &Process,
        held_until: Option<ratelimiter::clock::Timestamp>,
    ) -> (HandlerCall, End) {
        let Process { context, status, .. } = process;
        context.note(|| format!("process {}: the handler of {number} starts", process.number));
        let now = context.limiter_clock.now();
        let mut state = context.state();
        state.outcome.checks += 1;
        let checked = state.handlers.check_start(number, status, held_until.is_some(), now);
        state.record(checked);
        let (call, end) = state.handlers.start(number, status, held_until);
        (HandlerCall { process: process.clone(), call, has_ended: false }, end)
    }

    fn end(mut self, is_well: bool) -> Result<String, HandlerError> {
        self.has_ended = true;
        let mut state = self.process.context.state();
        if is_well {
            let output = format!("output of call {}", self.call);
            state.handlers.succeed(self.call, output.clone());
            return Ok(output);
        }
        let checked = state.handlers.fail(self.call);
        state.record(checked);
        Err(HandlerError::retry("as planned"))
    }
}

impl Drop for HandlerCall {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = self.process.context.state();
        if self.process.status.killed.is_cancelled() {
            let checked = state.handlers.cut_off(self.call);
            state.record(checked);
        } else {
            state.handlers.give_up(self.call);
        }
    }
}

impl Hook for Process {
    async fn around<T: Send + 'static, E: From<ProviderError> + Send>(
        &self,
        call: Call<'_>,
        answer: impl Answer<T, E>,
    ) -> Result<T, E> {
        let fault = self.take_fault(target_of(&call));
        self.context.state().outcome.requests += 1;
        if let Some(CallFault::HoldCall(span)) = fault {
            self.hold(span).await;
        }
        self.live().await;
        let flawed = &self.context.flawed;
        let mut answer = match flawed.instead(&call) {
            Instead::Made => {
                flawed.before(&call).await;
                answer.await?
            }
            Instead::Unanswered => return Err(unanswered().into()),
            Instead::Answered(answer) => {
                return Ok(*answer.downcast().expect("it is of the method's type"));
            }
        };
        flawed.after(&call, &mut answer).await;
        self.context.saw(self.number, &call, &answer);
        if let Some(CallFault::HoldAnswer(span)) = fault {
            self.hold(span).await;
        }
        self.live().await;
        if fault == Some(CallFault::LoseAnswer) {
            self.context.note_fault(Fault::AnswerLost);
            return Err(unanswered().into());
        }
        Ok(answer)
    }
}

fn unanswered() -> ProviderError {
    ProviderError::new("simulated call", "no answer")
}

fn target_of(call: &Call<'_>) -> Option<Target> {
    Some(match call {
        Call::OutboxEnqueue { .. } | Call::InboxEnqueue { .. } | Call::ScheduleTimer { .. } => {
            Target::Enqueue
        }
        Call::OutboxClaim { .. }
        | Call::InboxClaim { .. }
        | Call::ClaimTimers { .. }
        | Call::ClaimJobRuns { .. } => Target::Claim,
        Call::OutboxBegin { .. } | Call::InboxBegin { .. } => Target::Begin,
        Call::OutboxExtend { .. } => Target::Extend,
        Call::OutboxSettle { .. }
        | Call::InboxSettle { .. }
        | Call::AckTimers { .. }
        | Call::AbandonTimers { .. }
        | Call::AckJobRuns { .. }
        | Call::AbandonJobRuns { .. } => Target::Settle,
        Call::OutboxReap | Call::InboxReap | Call::ReapTimers | Call::ReapJobRuns => Target::Reap,
        Call::CreateJobRuns { .. } => Target::CreateRuns,
        Call::Acquire { .. } => Target::Acquire,
        Call::Renew { .. } => Target::Renew,
        Call::Release { .. } => Target::Release,
        Call::Other => return None,
    })
}

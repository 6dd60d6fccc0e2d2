//! Plays a plan on two processes until no work is left.

use std::time::Duration;

use coordination::{
    CronSchedule, Inbox, JobDefinition, JobName, MemoryProvider, MessageId, NewInboxMessage,
    NewOutboxMessage, NewTimer, Outbox, Payload, Scheduler, TimerId,
};
use ratelimiter::LimitKey;
use ratelimiter_client::LlmRequest;
use ratelimiter_client::jobs::{JobQueue, JobState, LlmJob};
use testkit::coordination::Between;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::context::SimContext;
use super::observed::{inbox_key, ulid};
use super::plan::{Action, End, PROCESSES, Work, WorkPlan};
use super::process::{CallFault, Process};
use super::settings::{HOLD_SECONDS, PROVIDER, ROOMY, TICK_SECONDS, TIGHT, tick_topic, topic};
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::outcome::{Invariant, Outcome};
use crate::world::Plan;

/// How long after the last event everything is finished.
const FINISHED_WITHIN: Duration = Duration::from_secs(400);
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A schedule whose next tick is after the end of every run.
const NEVER: &str = "0 0 0 1 1 *";

struct Player {
    context: SimContext,
    /// Whoever adds work; none of its calls goes wrong.
    client: Between<MemoryProvider, Process>,
    processes: [Running; PROCESSES],
    jobs: Vec<u64>,
}

struct Running {
    process: Process,
    tasks: JoinSet<()>,
}

pub(super) async fn play(plan: &WorkPlan, flaw: Option<Flaw>, is_traced: bool) -> Outcome {
    let context = SimContext::new(flaw, is_traced);
    let client = Process::new(PROCESSES, context.clone()).provider();
    let processes = std::array::from_fn(|number| Running::start(number, &context));
    let mut player = Player { context, client, processes, jobs: Vec::new() };
    player.play_all(plan).await;
    for running in &mut player.processes {
        running.process.status.killed.cancel();
        running.tasks.shutdown().await;
    }
    std::mem::take(&mut player.context.state().outcome)
}

impl Running {
    fn start(number: usize, context: &SimContext) -> Running {
        let (process, mut tasks) = (Process::new(number, context.clone()), JoinSet::new());
        process.start(&mut tasks);
        Running { process, tasks }
    }

    /// Resolves when the process has stopped or was killed.
    async fn ended(&mut self) {
        let context = self.process.context.clone();
        let stopped = async {
            while let Some(ended) = self.tasks.join_next().await {
                if ended.is_err_and(|error| error.is_panic()) {
                    context.state().fail(Invariant::NoPanic, "a worker panicked".to_owned());
                }
            }
        };
        tokio::select! {
            biased;
            () = self.process.status.killed.cancelled() => {}
            () = stopped => return,
        }
        self.tasks.shutdown().await;
    }
}

impl Player {
    async fn play_all(&mut self, plan: &WorkPlan) {
        let started_at = Instant::now();
        self.schedule_ticks(&format!("*/{TICK_SECONDS} * * * * *")).await;
        for event in plan.events() {
            self.run_until(started_at + Duration::from_millis(event.at_ms)).await;
            self.context.note(|| format!("{:?}", event.action));
            self.act(event.action).await;
        }
        self.schedule_ticks(NEVER).await;
        let finished_by = Instant::now() + FINISHED_WITHIN;
        let mut finished = self.context.state().oracle.check_all_finished();
        while finished.is_err() && Instant::now() < finished_by && !self.context.has_failed() {
            self.run_until(Instant::now() + LOOK_EVERY).await;
            finished = self.context.state().oracle.check_all_finished();
        }
        self.context.state().record(finished);
        if !self.context.has_failed() {
            self.check_jobs().await;
        }
    }

    /// Lets the processes work, and another one after each that has ended.
    async fn run_until(&mut self, at: Instant) {
        while !self.context.has_failed() {
            let [first, second] = &mut self.processes;
            let ended = tokio::select! {
                biased;
                () = first.ended() => first,
                () = second.ended() => second,
                () = sleep_until(at) => return,
            };
            let number = ended.process.number;
            self.context.note(|| format!("process {number} is replaced"));
            *ended = Running::start(number, &self.context);
        }
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Add { number, work, delay_ms, end, is_repeated } => {
                self.context.state().handlers.plan(number, work, end);
                if end == End::KillsProcess {
                    self.context.note_fault(Fault::Poison);
                }
                let due_at = self.context.now().after(Duration::from_millis(delay_ms));
                self.add(number, work, due_at).await;
                if is_repeated {
                    self.context.note_fault(Fault::CalledAgain);
                    self.add(number, work, due_at).await;
                }
            }
            Action::Stop { process } => {
                self.context.note_fault(Fault::WorkerStop);
                self.processes[process].process.status.stop.cancel();
            }
            Action::Kill { process } => {
                self.context.note_fault(Fault::WorkerCrash);
                self.processes[process].process.status.killed.cancel();
            }
            Action::Pause { process, ms } => {
                self.context.note_fault(Fault::WorkerPaused);
                self.processes[process].process.pause(Duration::from_millis(ms));
            }
            Action::Lose { process, target } => {
                self.processes[process].process.plan_fault(target, CallFault::LoseAnswer);
            }
            Action::Hold { process, target, ms, is_answer } => {
                let span = Duration::from_millis(ms);
                let fault =
                    if is_answer { CallFault::HoldAnswer(span) } else { CallFault::HoldCall(span) };
                self.processes[process].process.plan_fault(target, fault);
            }
        }
    }

    async fn add(&mut self, number: u64, work: Work, due_at: coordination::Timestamp) {
        let id = MessageId::from_ulid(ulid(number));
        match work {
            Work::Outbox { topic: number } => {
                let message = NewOutboxMessage::new(topic(number), Payload::empty());
                let message = message.with_id(id).due_at(due_at);
                Outbox::enqueue(&self.client, message).await.expect("memory answers");
            }
            Work::Inbox { topic: topic_number } => {
                let key = inbox_key(number);
                let message = NewInboxMessage::new(key, topic(topic_number), Payload::empty());
                let message = message.due_at(due_at);
                let _added = Inbox::enqueue(&self.client, message).await.expect("memory answers");
            }
            Work::Timer { topic: topic_number } => {
                let timer = NewTimer::new(topic(topic_number), Payload::empty(), due_at);
                let timer = NewTimer { id: TimerId::from_ulid(ulid(number)), ..timer };
                self.client.schedule_timer(timer).await.expect("memory answers");
            }
            Work::Job { is_tight } => {
                let model = if is_tight { TIGHT } else { ROOMY };
                let request = LlmRequest {
                    provider: PROVIDER.to_owned(),
                    model: model.to_owned(),
                    max_output_tokens: 10,
                    ..LlmRequest::default()
                };
                let job = LlmJob::new(request).expect("it is a job");
                let message = job.message().with_id(id).due_at(due_at);
                Outbox::enqueue(&self.client, message).await.expect("memory answers");
                self.jobs.push(number);
            }
        }
    }

    async fn schedule_ticks(&self, line: &str) {
        let schedule = CronSchedule::parse(line, "UTC").expect("the line is valid");
        let name = JobName::new("job").expect("it is a name");
        let job = JobDefinition::new(name, tick_topic(), schedule);
        self.client.create_or_update_job(job).await.expect("memory answers");
    }

    /// What is kept of each job is what a handler gave, and in the end no slot is held.
    async fn check_jobs(&mut self) {
        let queue = JobQueue::new(self.context.provider.clone());
        for number in &self.jobs {
            let job = queue.job(MessageId::from_ulid(ulid(*number))).await;
            let state = job.expect("memory answers").expect("it was submitted").state;
            let mut sim = self.context.state();
            if let JobState::Done(result) = &state
                && !sim.handlers.has_given(*number, &result.output)
            {
                let detail = format!("job {number} has {result:?}");
                sim.fail(Invariant::OutcomeKept, detail);
            }
        }
        self.run_until(Instant::now() + Duration::from_secs(HOLD_SECONDS + 1)).await;
        for model in [TIGHT, ROOMY] {
            let key = LimitKey::llm_concurrency(PROVIDER, model).expect("it is a key");
            let used = self.context.limiter.state_now(&key).expect("it is defined").usage.used;
            if used > 0 {
                let detail = format!("{used} slots of {model} are held by nobody");
                self.context.state().fail(Invariant::BackToZero, detail);
            }
        }
    }
}

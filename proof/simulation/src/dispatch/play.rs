//! Playing a plan: a process with both dispatchers, another one when it has ended, until nothing is left to do.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use coordination::{
    BatchSize, HandlerError, Inbox, InboxDispatcher, InboxKey, InboxMessage, InboxStatus,
    LeaseDuration, MemoryProvider, MessageId, MonotonicClock, NewInboxMessage, NewOutboxMessage,
    Outbox, OutboxDispatcher, OutboxMessage, OutboxStatus, Payload, Source, SourceMessageId,
    Timestamp, Topic, TopicHandlers, Ulid, WorkerSettings,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::flawed_outbox::FlawedOutbox;
use super::ledger::{Fate, Ledger, Process};
use super::plan::{DispatchPlan, End, Queue, TOPICS, What};
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::outcome::Outcome;
use crate::run::Plan;

/// After how long everything is finished, whatever the plan.
const DONE_AFTER: Duration = Duration::from_secs(3_600);
/// How late a dispatcher hears that it should stop, with that bug.
const LATE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_secs(10);

struct Player {
    provider: MemoryProvider,
    flaw: Option<Flaw>,
    settings: WorkerSettings,
    ledger: Ledger,
    process: Process,
    dispatchers: JoinSet<()>,
    messages: Vec<(u64, Queue)>,
    outcome: Outcome,
}

pub(super) async fn play(plan: &DispatchPlan, flaw: Option<Flaw>, is_traced: bool) -> Outcome {
    let clock = MonotonicClock::starting_at(Timestamp::MIN);
    let mut player = Player {
        provider: MemoryProvider::with_clock(Arc::new(clock)),
        flaw,
        settings: settings(),
        ledger: Ledger::new(is_traced),
        process: Process::default(),
        dispatchers: JoinSet::new(),
        messages: Vec::new(),
        outcome: Outcome::default(),
    };
    player.play_all(plan).await;
    player.dispatchers.shutdown().await;
    let mut entries = player.ledger.entries();
    player.outcome.violation = entries.violation().cloned();
    player.outcome.checks = entries.checks;
    player.outcome.trace = std::mem::take(&mut entries.trace);
    drop(entries);
    player.outcome
}

fn settings() -> WorkerSettings {
    let seconds = Duration::from_secs;
    WorkerSettings {
        batch: BatchSize::new(5).expect("it is a size"),
        claim_for: LeaseDuration::new(seconds(6)).expect("it is a duration"),
        handler_timeout: seconds(3),
        attempts_max: 3,
        lost_attempts_max: 4,
        topic_concurrency_max: 2,
        in_flight_max: 5,
        upkeep_interval: seconds(1),
        drain_timeout: seconds(1),
        ..WorkerSettings::default()
    }
}

impl Player {
    async fn play_all(&mut self, plan: &DispatchPlan) {
        let started_at = Instant::now();
        self.start();
        for event in plan.events() {
            self.run_until(started_at + Duration::from_millis(event.at_ms)).await;
            match event.what {
                What::Message { number, queue, topic, end } => {
                    self.enqueue(number, queue, topic, end).await;
                }
                What::Stop => self.stop().await,
                What::Kill => {
                    self.outcome.faults.note(Fault::WorkerCrash);
                    self.process.killed.cancel();
                }
            }
        }
        let done_at = Instant::now() + DONE_AFTER;
        while Instant::now() < done_at && !self.is_over().await {
            self.run_until(Instant::now() + LOOK_EVERY).await;
        }
        for (number, queue) in self.messages.clone() {
            let fate = self.fate(number, queue).await;
            self.ledger.entries().check_fate(number, fate, &self.settings);
        }
    }

    /// Lets the process work, and another one after each that was killed.
    async fn run_until(&mut self, at: Instant) {
        loop {
            tokio::select! {
                biased;
                () = self.process.killed.cancelled() => {
                    self.dispatchers.shutdown().await;
                    self.ledger.entries().note(|| "the process is gone".to_owned());
                    self.ledger.entries().check_calls(&self.settings);
                    if self.ledger.entries().violation().is_some() {
                        return;
                    }
                    self.start();
                }
                () = sleep_until(at) => return,
            }
        }
    }

    async fn stop(&mut self) {
        self.outcome.faults.note(Fault::WorkerStop);
        self.ledger.entries().note(|| "the process is told to stop".to_owned());
        self.process.stop.cancel();
        let killed = self.process.killed.clone();
        let ended = async { while self.dispatchers.join_next().await.is_some() {} };
        // A handler may kill it while it stops.
        tokio::select! {
            biased;
            () = killed.cancelled() => self.dispatchers.shutdown().await,
            () = ended => {}
        }
        self.start();
    }

    fn start(&mut self) {
        self.process = Process::default();
        let (stop, settings) = (self.heard_by_dispatchers(), self.settings.clone());
        let (mut outbox, mut inbox) = (TopicHandlers::new(), TopicHandlers::new());
        for number in 0..TOPICS {
            let (ledger, process) = (self.ledger.clone(), self.process.clone());
            outbox = outbox.on(topic(number), move |message: OutboxMessage| {
                handle(number_of(&message.payload), &ledger, &process)
            });
            let (ledger, process) = (self.ledger.clone(), self.process.clone());
            inbox = inbox.on(topic(number), move |message: InboxMessage| {
                handle(number_of(&message.payload), &ledger, &process)
            });
        }
        let provider = FlawedOutbox { inner: self.provider.clone(), flaw: self.flaw };
        let outbox = OutboxDispatcher::new(provider, outbox, settings.clone());
        let inbox = InboxDispatcher::new(self.provider.clone(), inbox, settings);
        self.dispatchers.spawn(outbox.expect("valid settings").run(stop.clone()));
        self.dispatchers.spawn(inbox.expect("valid settings").run(stop));
    }

    /// What tells the dispatchers to stop.
    fn heard_by_dispatchers(&mut self) -> CancellationToken {
        let stop = self.process.stop.clone();
        if self.flaw != Some(Flaw::StopsLate) {
            return stop;
        }
        let heard = CancellationToken::new();
        let late = heard.clone();
        self.dispatchers.spawn(async move {
            stop.cancelled().await;
            sleep_until(Instant::now() + LATE).await;
            late.cancel();
        });
        heard
    }

    async fn enqueue(&mut self, number: u64, queue: Queue, topic_number: u8, end: End) {
        self.outcome.requests += 1;
        if end == End::KillsProcess {
            self.outcome.faults.note(Fault::Poison);
        }
        let text = format!("message {number} of topic {topic_number} in the {queue:?}: {end:?}");
        self.ledger.entries().note(|| text);
        self.ledger.entries().add(number, end);
        self.messages.push((number, queue));
        let payload = Payload::new(number.to_string()).expect("it is short");
        match queue {
            Queue::Outbox => {
                let message = NewOutboxMessage::new(topic(topic_number), payload);
                let enqueued =
                    Outbox::enqueue(&self.provider, message.with_id(message_id(number))).await;
                enqueued.expect("memory answers");
            }
            Queue::Inbox => {
                let message = NewInboxMessage::new(key(number), topic(topic_number), payload);
                let _added = Inbox::enqueue(&self.provider, message).await.expect("memory answers");
            }
        }
    }

    /// Whether everything is finished, or a promise is broken.
    async fn is_over(&self) -> bool {
        if self.ledger.entries().violation().is_some() {
            return true;
        }
        for (number, queue) in &self.messages {
            if self.fate(*number, *queue).await == Fate::Unfinished {
                return false;
            }
        }
        true
    }

    async fn fate(&self, number: u64, queue: Queue) -> Fate {
        match queue {
            Queue::Outbox => {
                let record = self.provider.record(message_id(number)).await;
                match record.expect("memory answers").expect("it was enqueued").status {
                    OutboxStatus::Done { .. } => Fate::Done,
                    OutboxStatus::Dead => Fate::Dead,
                    OutboxStatus::Ready | OutboxStatus::Claimed { .. } => Fate::Unfinished,
                }
            }
            Queue::Inbox => {
                match self.provider.get(&key(number)).await.expect("it was enqueued").status {
                    InboxStatus::Done => Fate::Done,
                    InboxStatus::Dead => Fate::Dead,
                    InboxStatus::Ready | InboxStatus::Claimed { .. } => Fate::Unfinished,
                }
            }
        }
    }
}

/// What every handler does: what its message's plan says.
fn handle(
    number: u64,
    ledger: &Ledger,
    process: &Process,
) -> impl Future<Output = Result<(), HandlerError>> + Send + use<> {
    let (call, end) = ledger.call(number, process);
    let killed = process.killed.clone();
    async move {
        let (after_ms, is_well) = match end {
            End::Well { after_ms } => (after_ms, true),
            End::Badly { after_ms } => (after_ms, false),
            End::KillsProcess => {
                killed.cancel();
                std::future::pending().await
            }
        };
        let after = Duration::from_millis(after_ms);
        let _elapsed = timeout(after, std::future::pending::<()>()).await;
        call.end(is_well);
        if is_well { Ok(()) } else { Err(HandlerError::retry("as planned")) }
    }
}

fn topic(number: u8) -> Topic {
    Topic::new(format!("topic-{number}")).expect("it is a name")
}

fn number_of(payload: &Payload) -> u64 {
    payload.as_text().and_then(|text| text.parse().ok()).expect("we have made it")
}

fn message_id(number: u64) -> MessageId {
    MessageId::from_ulid(Ulid::from_parts(1, u128::from(number)))
}

fn key(number: u64) -> InboxKey {
    InboxKey {
        source: Source::new("source").expect("it is a name"),
        message_id: SourceMessageId::new(number.to_string()).expect("it is a name"),
    }
}

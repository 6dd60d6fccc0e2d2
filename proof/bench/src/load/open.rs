//! An open loop: requests are sent by the clock, whatever the server does.
//!
//! A request's latency counts from the moment when it was due. So a server that stops for a while pays for every request that was due
//! meanwhile, and not only for the one that it held up.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::reply::read_one;
use super::request::Template;
use super::{Latencies, Target, Turn, with_cpu_seconds};
use crate::child::Server;

/// The moments at which requests are due: so many a second, evenly.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    clock: MonotonicClock,
    started_at: Timestamp,
    until: Timestamp,
    every: Duration,
    next: u32,
}

impl Schedule {
    /// From now on, for a turn.
    pub(crate) fn new(clock: &MonotonicClock, per_second: f64, turn: Duration) -> Self {
        let started_at = clock.now();
        let every = Duration::from_secs_f64(1.0 / per_second);
        Self { clock: clock.clone(), started_at, until: started_at.after(turn), every, next: 0 }
    }
}

impl Iterator for Schedule {
    type Item = Timestamp;

    /// Waits until the next request is due. Those that are overdue come at once.
    fn next(&mut self) -> Option<Timestamp> {
        let due_at = self.started_at.after(self.every * self.next);
        if due_at >= self.until {
            return None;
        }
        self.next += 1;
        loop {
            let now = self.clock.now();
            if now >= due_at {
                return Some(due_at);
            }
            thread::park_timeout(due_at.since(now));
        }
    }
}

/// One connection, as the sender and its reader share it.
struct Lane {
    stream: TcpStream,
    /// When the request that is under way was due, in nanoseconds after the beginning.
    due_nanos: Arc<AtomicU64>,
}

/// Sends so many requests a second over at most so many connections.
pub(crate) fn drive(
    server: &Server,
    target: &Target,
    connections: usize,
    requests_per_second: f64,
    turn: Duration,
) -> Turn {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system has room for a runtime");
    let clock = MonotonicClock::new();
    let began_at = clock.now();
    let (free, frees) = mpsc::channel();
    let (finished, all_answered) = oneshot::channel();
    let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let mut readers = JoinSet::new();
    let mut lanes = Vec::with_capacity(connections);
    for number in 0..connections {
        let lane = Lane::open(target).expect("the server accepts connections");
        let due_nanos = Arc::clone(&lane.due_nanos);
        let stream = lane.stream.try_clone().expect("the system has room for a descriptor");
        let (free, answered, clock) = (free.clone(), answered.clone(), clock.clone());
        free.send(number).expect("the receiver is there");
        let replies = target.replies;
        readers.spawn_on(
            async move {
                let mut stream = tokio::net::TcpStream::from_std(stream)?;
                let mut reply = Vec::with_capacity(16 * 1_024);
                loop {
                    read_one(&mut stream, replies, &mut reply).await?;
                    let due_at = Duration::from_nanos(due_nanos.load(Ordering::Acquire));
                    let latency = clock.now().since(began_at).saturating_sub(due_at);
                    // Both are there until every request is answered.
                    let _told = (answered.send(latency), free.send(number));
                }
            },
            runtime.handle(),
        );
        lanes.push(lane);
    }
    let mut latencies = Latencies::new();
    let templates = Arc::clone(&target.templates);
    let schedule = Schedule::new(&clock, requests_per_second, turn);
    let (took, server_seconds) = with_cpu_seconds(server, || {
        let started_at = clock.now();
        let sender = thread::spawn(move || {
            send_all(lanes, schedule, began_at, &frees, &templates);
            finished.send(()).expect("the readers wait for it");
        });
        runtime.block_on(read_all(&mut readers, all_answered));
        sender.join().expect("the sender does not fail");
        clock.now().since(started_at)
    });
    while let Ok(latency) = answers.try_recv() {
        latencies.record(latency);
    }
    latencies.turn(target.reserves_each, took, server_seconds)
}

/// Sends what is due over whichever connection is free, and returns when all is answered.
fn send_all(
    mut lanes: Vec<Lane>,
    schedule: Schedule,
    began_at: Timestamp,
    frees: &mpsc::Receiver<usize>,
    templates: &[Template],
) {
    let clock = schedule.clock.clone();
    let mut request = Vec::new();
    for (due_at, template) in schedule.zip(templates.iter().cycle()) {
        let lane = &mut lanes[frees.recv().expect("a reader frees its connection")];
        template.fill(clock.now(), &mut request, drop);
        let due = u64::try_from(due_at.since(began_at).as_nanos()).expect("a run is short");
        lane.due_nanos.store(due, Ordering::Release);
        lane.stream.write_all(&request).expect("a request fits a socket's buffer");
    }
    // A connection is free again when its last request is answered.
    for _ in 0..lanes.len() {
        frees.recv().expect("a reader frees its connection");
    }
}

async fn read_all(readers: &mut JoinSet<io::Result<()>>, all_answered: oneshot::Receiver<()>) {
    tokio::select! {
        done = all_answered => done.expect("the sender does not fail"),
        Some(ended) = readers.join_next() => {
            ended.expect("a reader does not panic").expect("the server answers");
        }
    }
    readers.shutdown().await;
}

impl Lane {
    fn open(target: &Target) -> io::Result<Self> {
        let stream = TcpStream::connect(target.addr)?;
        stream.set_nodelay(true)?;
        // The reader's half is this one too.
        stream.set_nonblocking(true)?;
        Ok(Self { stream, due_nanos: Arc::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_does_not_wait_for_what_is_late() {
        let clock = MonotonicClock::new();
        let mut schedule = Schedule::new(&clock, 1_000.0, Duration::from_millis(20));
        let first = schedule.next().unwrap();
        // However long the first one takes, the others were due a millisecond apart.
        let rest: Vec<_> = schedule.map(|due_at| due_at.since(first)).collect();
        let expected: Vec<_> = (1..20).map(Duration::from_millis).collect();
        assert_eq!(rest, expected);
    }
}

//! Open loop: requests are sent on a schedule, whatever the server does.
//!
//! Latency counts from the scheduled time (no coordinated omission): a pause of the server counts for every request that
//! was due during the pause, not only for the one it held up.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiterd::load::Latencies;
use testkit::Process;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::reply::read_one;
use super::request::Template;
use super::{Measurement, Target, one_thread, with_cpu_seconds};

/// The times at which requests are due, at a constant rate.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    clock: MonotonicClock,
    started_at: Timestamp,
    until: Timestamp,
    every: Duration,
    next: u32,
}

impl Schedule {
    /// Starts now.
    pub(crate) fn new(clock: &MonotonicClock, per_second: f64, duration: Duration) -> Self {
        let started_at = clock.now();
        let every = Duration::from_secs_f64(1.0 / per_second);
        Self { clock: clock.clone(), started_at, until: started_at.after(duration), every, next: 0 }
    }
}

impl Iterator for Schedule {
    type Item = Timestamp;

    /// Waits until the next request is due. Returns at once if it is overdue.
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

/// The sender's half of a connection.
struct Connection {
    stream: TcpStream,
    /// Due time of the request in flight, in nanoseconds since the start; shared with the reader.
    due_nanos: Arc<AtomicU64>,
}

/// Sends requests at a constant rate over the given number of connections.
pub(crate) fn measure(
    server: &Process,
    target: &Target,
    connections: usize,
    requests_per_second: f64,
    duration: Duration,
) -> Measurement {
    let runtime = one_thread();
    let clock = MonotonicClock::new();
    let opened_at = clock.now();
    let (free, frees) = mpsc::channel();
    let (finished, all_answered) = oneshot::channel();
    let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let mut readers = JoinSet::new();
    let mut open = Vec::with_capacity(connections);
    for number in 0..connections {
        let connection = Connection::open(target).expect("the server accepts connections");
        let due_nanos = Arc::clone(&connection.due_nanos);
        let stream = connection.stream.try_clone().expect("a file descriptor is free");
        let (free, answered, clock) = (free.clone(), answered.clone(), clock.clone());
        free.send(number).expect("the receiver is there");
        let expected = target.reply;
        readers.spawn_on(
            async move {
                let mut stream = tokio::net::TcpStream::from_std(stream)?;
                let mut reply = Vec::with_capacity(16 * 1_024);
                loop {
                    read_one(&mut stream, expected, &mut reply).await?;
                    let due_at = Duration::from_nanos(due_nanos.load(Ordering::Acquire));
                    let latency = clock.now().since(opened_at).saturating_sub(due_at);
                    // Both receivers exist until every request is answered.
                    let _sent = (answered.send(latency), free.send(number));
                }
            },
            runtime.handle(),
        );
        open.push(connection);
    }
    let mut latencies = Latencies::default();
    let templates = Arc::clone(&target.templates);
    let schedule = Schedule::new(&clock, requests_per_second, duration);
    let (took, server_seconds) = with_cpu_seconds(server, || {
        let started_at = clock.now();
        let sender = thread::spawn(move || {
            send_all(open, schedule, opened_at, &frees, &templates);
            finished.send(()).expect("the readers wait for it");
        });
        runtime.block_on(read_all(&mut readers, all_answered));
        sender.join().expect("the sender does not fail");
        clock.now().since(started_at)
    });
    while let Ok(latency) = answers.try_recv() {
        latencies.record(latency);
    }
    Measurement::new(&latencies, target.reserves_per_request, took, server_seconds)
}

/// Sends each request when it is due, on any free connection. Returns when all are answered.
fn send_all(
    mut connections: Vec<Connection>,
    schedule: Schedule,
    opened_at: Timestamp,
    frees: &mpsc::Receiver<usize>,
    templates: &[Template],
) {
    let clock = schedule.clock.clone();
    let mut request = Vec::new();
    for (due_at, template) in schedule.zip(templates.iter().cycle()) {
        let connection = &mut connections[frees.recv().expect("a reader frees its connection")];
        template.fill(clock.now(), &mut request, drop);
        let due = u64::try_from(due_at.since(opened_at).as_nanos()).expect("a run is short");
        connection.due_nanos.store(due, Ordering::Release);
        connection.stream.write_all(&request).expect("a request fits a socket's buffer");
    }
    // A connection is free again when its last request is answered.
    for _ in 0..connections.len() {
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

impl Connection {
    fn open(target: &Target) -> io::Result<Self> {
        let stream = TcpStream::connect(target.addr)?;
        stream.set_nodelay(true)?;
        // The reader shares the socket, and tokio needs it so.
        stream.set_nonblocking(true)?;
        Ok(Self { stream, due_nanos: Arc::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_request_does_not_delay_the_next_ones() {
        let clock = MonotonicClock::new();
        let mut schedule = Schedule::new(&clock, 1_000.0, Duration::from_millis(20));
        let first = schedule.next().unwrap();
        // However late the first one is, the others are due a millisecond apart.
        let rest: Vec<_> = schedule.map(|due_at| due_at.since(first)).collect();
        let expected: Vec<_> = (1..20).map(Duration::from_millis).collect();
        assert_eq!(rest, expected);
    }
}

//! Closed loop: each connection sends its next request when the last one is answered.

use std::io;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::{Decision, LeaseId};
use ratelimiterd::load::{Caller, ClosedLoop, Recorder};
use testkit::Process;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::reply::{BATCH_COMPLETED, read_one};
use super::request::complete_batch;
use super::{Measurement, Target, one_thread, with_cpu_seconds};

/// Larger than any reply.
const REPLY_BYTES_MAX: usize = 64 * 1_024;

/// Measures a server; also returns the leases made.
pub(crate) fn measure(
    server: &Process,
    target: &Target,
    connections: usize,
    duration: Duration,
) -> (Measurement, Vec<LeaseId>) {
    let runtime = one_thread();
    let clock = MonotonicClock::new();
    let connections = runtime.block_on(async {
        let mut open = Vec::with_capacity(connections);
        for number in 0..connections {
            let connection = Connection::open(target, number).await;
            open.push(connection.expect("the server accepts connections"));
        }
        open
    });
    let ((running, connections, took), server_seconds) = with_cpu_seconds(server, || {
        runtime.block_on(async {
            let started_at = clock.now();
            let mut running = ClosedLoop::start(connections, &clock, started_at.after(duration));
            let connections = running.join().await.expect("a connection does not panic");
            (running, connections, clock.now().since(started_at))
        })
    });
    let results = running.results();
    assert_eq!(results.first_failure, None, "the server allows everything");
    let reserves_per_request = target.reserves_per_request;
    let measurement =
        Measurement::new(&results.reserves, reserves_per_request, took, server_seconds);
    (measurement, connections.into_iter().flat_map(|connection| connection.leases).collect())
}

/// Completes leases, so that the next measurement starts from the same state.
pub(crate) fn complete(target: &Target, leases: &[LeaseId]) {
    one_thread().block_on(async {
        let target = Target { reply: BATCH_COMPLETED, ..target.clone() };
        let mut connection = Connection::open(&target, 0).await.expect("the server accepts it");
        for leases in leases.chunks(ratelimiter_wire::BATCH_ITEMS_MAX) {
            connection.request = complete_batch(leases);
            connection.send().await.expect("the server answers");
        }
    });
}

struct Connection {
    stream: TcpStream,
    target: Target,
    next: usize,
    request: Vec<u8>,
    reply: Vec<u8>,
    leases: Vec<LeaseId>,
}

impl Connection {
    /// Connections with different numbers start at different requests.
    async fn open(target: &Target, number: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(target.addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            target: target.clone(),
            next: number % target.templates.len(),
            request: Vec::new(),
            reply: Vec::with_capacity(REPLY_BYTES_MAX),
            leases: Vec::new(),
        })
    }

    async fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.request).await?;
        read_one(&mut self.stream, self.target.reply, &mut self.reply).await
    }
}

impl Caller for Connection {
    async fn call(&mut self, started_at: Timestamp, recorder: &Recorder) -> Option<Timestamp> {
        let template = &self.target.templates[self.next];
        template.fill(started_at, &mut self.request, |lease| self.leases.push(lease));
        self.next = (self.next + 1) % self.target.templates.len();
        let answer = self.send().await;
        let is_answered = answer.is_ok();
        let answer = answer.map(|()| Decision::allowed_at(started_at));
        let answered_at = recorder.reserved(started_at, &answer);
        is_answered.then_some(answered_at)
    }
}

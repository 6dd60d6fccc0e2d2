//! A closed loop: each connection sends its next request when the last one is answered.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use ratelimiter::LeaseId;
use ratelimiter::clock::{Clock, MonotonicClock};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};

use super::reply::{BATCH_COMPLETED, read_one};
use super::request::complete_batch;
use super::{Latencies, Target, Turn, with_cpu_seconds};
use crate::child::Server;

/// More than any reply has.
const REPLY_BYTES_MAX: usize = 64 * 1_024;
/// How many leases are completed by one request.
const COMPLETED_AT_ONCE: usize = ratelimiter_wire::BATCH_ITEMS_MAX;

/// What a turn measured, and the leases that it made.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) turn: Turn,
    pub(crate) leases: Vec<LeaseId>,
}

/// Drives a server with so many connections for so long.
pub(crate) fn drive(
    server: &Server,
    target: &Target,
    connections: usize,
    turn: Duration,
) -> Driven {
    let runtime = one_thread();
    let clock = MonotonicClock::new();
    let leases = Rc::new(RefCell::new(Vec::new()));
    let latencies = Rc::new(RefCell::new(Latencies::new()));
    let open = async {
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            open.push(Connection::open(target).await.expect("the server accepts connections"));
        }
        open
    };
    let open = runtime.block_on(open);
    let (took, server_seconds) = with_cpu_seconds(server, || {
        let started_at = clock.now();
        let until = started_at.after(turn);
        let tasks = LocalSet::new();
        let drive = async {
            let mut running = JoinSet::new();
            for (first, mut connection) in open.into_iter().enumerate() {
                let (target, clock) = (target.clone(), clock.clone());
                let (latencies, leases) = (Rc::clone(&latencies), Rc::clone(&leases));
                running.spawn_local(async move {
                    let mut sent_at = clock.now();
                    for template in target.templates.iter().cycle().skip(first) {
                        template.fill(sent_at, &mut connection.request, |lease| {
                            leases.borrow_mut().push(lease);
                        });
                        connection.ask(&target).await.expect("the server answers");
                        let answered_at = clock.now();
                        latencies.borrow_mut().record(answered_at.since(sent_at));
                        sent_at = answered_at;
                        // At the end, so that however late a turn begins, every connection has had its part in it.
                        if answered_at >= until {
                            break;
                        }
                    }
                });
            }
            while let Some(done) = running.join_next().await {
                done.expect("a connection does not fail");
            }
        };
        runtime.block_on(tasks.run_until(drive));
        clock.now().since(started_at)
    });
    let turn = latencies.borrow().turn(target.reserves_each, took, server_seconds);
    Driven { turn, leases: leases.take() }
}

/// Completes leases, so that the next turn begins as the last one did.
pub(crate) fn complete(target: &Target, leases: &[LeaseId]) {
    one_thread().block_on(async {
        let target = Target { replies: BATCH_COMPLETED, ..target.clone() };
        let mut connection = Connection::open(&target).await.expect("the server accepts it");
        for leases in leases.chunks(COMPLETED_AT_ONCE) {
            connection.request = complete_batch(leases);
            connection.ask(&target).await.expect("the server answers");
        }
    });
}

fn one_thread() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("the system has room for a runtime")
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Connection {
    async fn open(target: &Target) -> io::Result<Self> {
        let stream = TcpStream::connect(target.addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: Vec::new(), reply: Vec::with_capacity(REPLY_BYTES_MAX) })
    }

    async fn ask(&mut self, target: &Target) -> io::Result<()> {
        self.stream.write_all(&self.request).await?;
        read_one(&mut self.stream, target.replies, &mut self.reply).await
    }
}

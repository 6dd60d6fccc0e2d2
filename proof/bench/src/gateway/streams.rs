//! Many streams at a time: when the first byte of each comes, and what each takes of memory.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiterd::load::Latencies;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::calls::chat;
use super::servers::{Endpoint, Rates, bare_proxy, provider, ratelimiterd};
use crate::load::one_thread;
use crate::load::reply::find;
use crate::load::request::post;
use crate::progress::Progress;
use crate::resident::resident_bytes;
use crate::rounds::{Comparison, Rounds, float};
use crate::summary::{Summary, count, number};
use crate::table::Table;

const OURS: &str = "ratelimiterd, four limits";
const DIRECT: &str = "the provider itself";
const BARE: &str = "bare hyper proxy";
/// The end of a chunked answer.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) streams: usize,
    pub(super) chunks: u32,
    pub(super) chunk_ms: u32,
    pub(super) rounds: usize,
}

#[derive(Debug)]
pub(super) struct Measured {
    sizes: Sizes,
    rounds: Rounds<Measurement>,
}

/// One measurement, while all streams are open.
#[derive(Debug, Clone, Copy)]
struct Measurement {
    /// From a request to the first byte of its answer's body, in microseconds.
    first_p50: f64,
    first_p99: f64,
    /// Growth of the process for each stream, in KiB.
    stream_kib: f64,
}

type Value = fn(&Measurement) -> f64;

pub(super) fn measure(sizes: Sizes, folder: &Path, progress: &Progress) -> Measured {
    let arguments = ["--chunk-ms", &sizes.chunk_ms.to_string()].map(str::to_owned);
    let tokens = ["--output-tokens", &sizes.chunks.to_string()].map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().chain(&tokens).map(String::as_str).collect();
    let provider = provider(Rates::unbounded(), &arguments);
    let provider = &provider;
    let mut comparison = Comparison::new();
    comparison.add(DIRECT, || sizes.measure(provider));
    // A new process each time: what one has freed would not be seen to grow.
    comparison.add(BARE, || sizes.measure(&bare_proxy(provider, folder)));
    comparison.add(OURS, || sizes.measure(&ratelimiterd(provider, folder, Rates::unbounded())));
    Measured { sizes, rounds: comparison.run(sizes.rounds, progress, "Gateway, streams") }
}

impl Sizes {
    fn stream_lasts(self) -> Duration {
        Duration::from_millis(u64::from(self.chunk_ms)) * self.chunks
    }

    fn measure(self, endpoint: &Endpoint) -> Measurement {
        one_thread().block_on(self.all_at_a_time(endpoint)).expect("the streams are answered")
    }

    /// Each connection has two streams. The first ones begin evenly spread over the time that one lasts, so the second ones
    /// do too, and while these begin all are open.
    async fn all_at_a_time(self, endpoint: &Endpoint) -> io::Result<Measurement> {
        let more = format!(r#","stream":true,"max_tokens":{}"#, self.chunks);
        let request: Arc<[u8]> = post(endpoint.path, &chat(&more)).into_bytes().into();
        let process = endpoint.process.id();
        Stream::open(endpoint).await?.pass(&request).await?;
        let before = resident_bytes(process);
        let (all_open, all_are_open) = oneshot::channel();
        let mut all_open = Some(all_open);
        let mut running = JoinSet::new();
        let every = self.stream_lasts().div_f64(float(self.streams));
        let mut begin = tokio::time::interval(every);
        for number in 1..=self.streams {
            begin.tick().await;
            let mut stream = Stream::open(endpoint).await?;
            let request = Arc::clone(&request);
            let all_open = all_open.take_if(|_| number == self.streams);
            running.spawn(async move {
                stream.pass(&request).await?;
                // This is the last one: all others have begun their second.
                let told = all_open.map(|all_open| all_open.send(()));
                let first_byte = stream.pass(&request).await;
                assert_ne!(told, Some(Err(())), "the measurement waits for it");
                first_byte
            });
        }
        all_are_open.await.expect("the last one says so, or all end with its error");
        let grown = resident_bytes(process) - before;
        let mut first_bytes = Latencies::default();
        while let Some(first_byte) = running.join_next().await {
            first_bytes.record(first_byte.expect("a stream does not panic")?);
        }
        let micros = |percent| first_bytes.percentile(percent).as_secs_f64() * 1e6;
        Ok(Measurement {
            first_p50: micros(50.0),
            first_p99: micros(99.0),
            stream_kib: grown / 1_024.0 / float(self.streams),
        })
    }
}

struct Stream {
    connection: TcpStream,
    clock: MonotonicClock,
    /// Of the answer, as much as was not looked at.
    bytes: Vec<u8>,
}

impl Stream {
    async fn open(endpoint: &Endpoint) -> io::Result<Self> {
        let connection = TcpStream::connect(endpoint.addr).await?;
        connection.set_nodelay(true)?;
        Ok(Self { connection, clock: MonotonicClock::new(), bytes: Vec::with_capacity(4_096) })
    }

    /// Passes a whole stream. Returns the time to the first byte of its body.
    async fn pass(&mut self, request: &[u8]) -> io::Result<Duration> {
        let sent_at = self.clock.now();
        self.connection.write_all(request).await?;
        self.bytes.clear();
        let mut first_byte = None;
        loop {
            if self.connection.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some(took) = first_byte else {
                let head = find(&self.bytes, b"\r\n\r\n").map(|end| end + 4);
                if head.is_some_and(|head| head < self.bytes.len()) {
                    first_byte = Some(self.clock.now().since(sent_at));
                    if !self.bytes.starts_with(b"HTTP/1.1 200") {
                        let answer = String::from_utf8_lossy(&self.bytes).into_owned();
                        return Err(io::Error::other(answer));
                    }
                }
                continue;
            };
            if self.bytes.ends_with(LAST_CHUNK) {
                return Ok(took);
            }
            let passed = self.bytes.len().saturating_sub(LAST_CHUNK.len());
            self.bytes.drain(..passed);
        }
    }
}

impl Measured {
    /// What ours adds to the p99 of the first byte, in microseconds.
    pub(super) fn added_p99(&self) -> Summary {
        self.rounds.added(OURS, DIRECT, |measured| measured.first_p99)
    }

    pub(super) fn stream_kib(&self) -> Summary {
        self.rounds.summary(OURS, |measured| measured.stream_kib)
    }

    pub(super) fn describe(&self) -> String {
        let Sizes { streams, chunks, chunk_ms, rounds } = self.sizes;
        format!(
            "{} streams at a time, each of {chunks} chunks {chunk_ms} ms apart on a connection of its own, {rounds} rounds; they begin evenly spread. The gateway is a new process in each round: \
             what it grows by until all are open, divided by their number, is the memory of a stream, with both its connections.",
            count(streams),
        )
    }

    pub(super) fn table(&self) -> Table {
        let header = [
            "what",
            "first byte p50 µs",
            "p99 µs",
            "added p50 µs",
            "added p99 µs",
            "KiB per stream",
        ];
        let mut table = Table::new("Streams:", header);
        for who in [DIRECT, BARE, OURS] {
            let median = |value: Value| number(self.rounds.summary(who, value).median);
            let added = |value: Value| self.rounds.added(who, DIRECT, value).to_string();
            let (p50, p99): (Value, Value) = (|it| it.first_p50, |it| it.first_p99);
            let memory = self.rounds.summary(who, |measured| measured.stream_kib);
            table.row([
                who.to_owned(),
                median(p50),
                median(p99),
                added(p50),
                added(p99),
                memory.to_string(),
            ]);
        }
        table
    }
}

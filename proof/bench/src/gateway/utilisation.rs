//! How much of a provider's limits is used by callers that never back off, alone and beside others with the same key.

use std::error::Error;
use std::net::SocketAddr;
use std::ops::Add;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use serde::Deserialize;
use testkit::ask;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::calls::chat;
use super::servers::{Endpoint, RateCounts, Rates, provider, ratelimiterd};
use crate::load::one_thread;
use crate::load::reply::{ANSWERED, find, read_one};
use crate::load::request::post;
use crate::progress::Progress;
use crate::rounds::float;
use crate::summary::{Summary, count, number};
use crate::table::Table;

/// Tokens of an answer, and what the calls reserve for it, in turn.
const OUTPUT_TOKENS: u64 = 600;
const OUTPUT_TOKENS_RESERVED: [u64; 5] = [800, 900, 1_000, 1_100, 1_200];
const WINDOW_SECONDS: f64 = 60.0;
const CALL_SECONDS: f64 = 1.0;
/// The share of the limits that others use, where there are others.
const OTHERS: f64 = 0.3;

#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) callers: usize,
    pub(super) rpm: u64,
    pub(super) tpm: u64,
    pub(super) duration: Duration,
}

#[derive(Debug)]
pub(super) struct Measured {
    sizes: Sizes,
    outcomes: Vec<(Case, Outcome)>,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    counts: RateCounts,
    is_shared: bool,
}

#[derive(Debug, Clone)]
struct Outcome {
    calls: usize,
    /// The share of the limit that others have used.
    of_others: f64,
    /// The share of the rest that our callers have used.
    utilisation: f64,
    /// The share of the rest that exact reservations allow.
    allowed: f64,
    /// For 1 000 calls.
    provider_429s: f64,
    failures: Vec<String>,
}

/// The servers of a case, and what their callers have used.
struct Running {
    case: Case,
    provider: Endpoint,
    gateway: Endpoint,
    ours: Arc<Mutex<Use>>,
    others: Arc<Mutex<Use>>,
}

/// What some callers have used.
#[derive(Debug)]
struct Use {
    clock: MonotonicClock,
    started: Timestamp,
    calls: Vec<Call>,
    failures: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    /// When it ended, in seconds from the start.
    ended: f64,
    /// Tokens that an exact reservation has.
    reserved: f64,
    /// Tokens that the provider counts.
    counted: f64,
}

/// One who makes one call after another.
struct Caller {
    case: Case,
    addr: SocketAddr,
    /// Each with the tokens that it reserves for the output.
    requests: Vec<(u64, String)>,
    using: Arc<Mutex<Use>>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    usage: Usage,
}

#[derive(Debug, Deserialize)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

/// All cases run at once: their callers wait most of the time.
pub(super) fn measure(sizes: Sizes, folder: &Path, progress: &Progress) -> Measured {
    progress.step(format_args!("Gateway, utilisation: {} s", sizes.duration.as_secs()));
    let cases = Case::ALL.map(|case| Running::start(case, sizes, folder));
    one_thread().block_on(async {
        let mut callers = JoinSet::new();
        cases.iter().for_each(|case| case.spawn_callers(sizes, &mut callers));
        // They go on until the time is up.
        let ended = timeout(sizes.duration, callers.join_next()).await;
        assert!(ended.is_err(), "a caller ended: {ended:?}");
        callers.shutdown().await;
    });
    let outcomes = cases.iter().map(|running| (running.case, running.outcome(sizes))).collect();
    Measured { sizes, outcomes }
}

impl Case {
    const ALL: [Self; 4] = [
        Self { counts: RateCounts::Actual, is_shared: false },
        Self { counts: RateCounts::Reserved, is_shared: false },
        Self { counts: RateCounts::Actual, is_shared: true },
        Self { counts: RateCounts::Reserved, is_shared: true },
    ];

    fn name(self) -> String {
        let beside = if self.is_shared { ", shared" } else { "" };
        format!("`rate_counts: {}`{beside}", self.counts.name())
    }

    /// Others make a call a second each, and give up the one that the provider refuses.
    fn count_of_others(self, tpm: u64) -> u64 {
        let output = match self.counts {
            RateCounts::Actual => OUTPUT_TOKENS,
            RateCounts::Reserved => OUTPUT_TOKENS_RESERVED[OUTPUT_TOKENS_RESERVED.len() / 2],
        };
        let per_second = OTHERS * tokens(tpm) / WINDOW_SECONDS / tokens(output);
        (1..).take_while(|&number| tokens(number) <= per_second).count() as u64
    }
}

impl Running {
    fn start(case: Case, sizes: Sizes, folder: &Path) -> Self {
        let rates = Rates { rpm: sizes.rpm, tpm: sizes.tpm, counts: case.counts };
        let latency = (CALL_SECONDS * 1e3).to_string();
        let output = OUTPUT_TOKENS.to_string();
        let provider = provider(rates, &["--latency-ms", &latency, "--output-tokens", &output]);
        let gateway = ratelimiterd(&provider, folder, rates);
        let [ours, others] = [(); 2].map(|()| Arc::new(Mutex::new(Use::start())));
        Self { case, provider, gateway, ours, others }
    }

    fn spawn_callers(&self, sizes: Sizes, callers: &mut JoinSet<()>) {
        for _ in 0..sizes.callers {
            callers.spawn(Caller::new(self.case, &self.gateway, &self.ours).run(None));
        }
        if self.case.is_shared {
            for _ in 0..self.case.count_of_others(sizes.tpm) {
                let mut second = interval(Duration::from_secs_f64(CALL_SECONDS));
                second.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let other = Caller::new(self.case, &self.provider, &self.others);
                callers.spawn(other.run(Some(second)));
            }
        }
    }

    fn outcome(&self, sizes: Sizes) -> Outcome {
        let Use { calls, failures, .. } = &*lock(&self.ours);
        let weighted = |calls: &[Call], value: fn(&Call) -> f64| -> f64 {
            calls.iter().map(|call| sizes.weight(call.ended) * value(call)).fold(0.0, f64::add)
        };
        let limit = 2.0 * sizes.third() / WINDOW_SECONDS * tokens(sizes.tpm);
        let counted = weighted(calls, |call| call.counted);
        let others = weighted(&lock(&self.others).calls, |call| call.counted);
        let excess = weighted(calls, |call| call.reserved) / counted - 1.0;
        let (status, metrics) = ask(self.gateway.addr, "GET", "/metrics", "").expect("an answer");
        assert_eq!(status, 200, "{metrics}");
        Outcome {
            calls: calls.len(),
            of_others: others / limit,
            utilisation: counted / (limit - others),
            allowed: WINDOW_SECONDS / (WINDOW_SECONDS + CALL_SECONDS * excess),
            provider_429s: provider_429s(&metrics) * 1e3 / float(calls.len()),
            failures: failures.clone(),
        }
    }
}

impl Sizes {
    /// A third of the time that is measured, which is the last three windows if there is as much.
    fn third(self) -> f64 {
        WINDOW_SECONDS.min(self.duration.as_secs_f64() / 3.0)
    }

    /// How much use counts at a time: from nothing to all of it over the first third, and back over the last. What is used in bursts
    /// that come back after a window so counts the same whenever they come.
    fn weight(self, seconds: f64) -> f64 {
        let end = self.duration.as_secs_f64();
        let begin = end - 3.0 * self.third();
        ((seconds - begin).min(end - seconds) / self.third()).clamp(0.0, 1.0)
    }
}

impl Use {
    fn start() -> Self {
        let clock = MonotonicClock::new();
        Self { started: clock.now(), clock, calls: Vec::new(), failures: Vec::new() }
    }
}

impl Caller {
    fn new(case: Case, endpoint: &Endpoint, using: &Arc<Mutex<Use>>) -> Self {
        let request = |reserved| {
            let more = format!(r#","max_tokens":{reserved}"#);
            (reserved, post(endpoint.path, &chat(&more)))
        };
        let requests = OUTPUT_TOKENS_RESERVED.map(request).to_vec();
        Self { case, addr: endpoint.addr, requests, using: Arc::clone(using) }
    }

    /// Makes calls for ever, at most so often.
    async fn run(self, mut at_most_every: Option<Interval>) {
        let mut connection = None;
        for (reserved, request) in self.requests.iter().cycle() {
            if let Some(every) = &mut at_most_every {
                every.tick().await;
            }
            let answer = self.call(&mut connection, request).await;
            let mut using = lock(&self.using);
            let ended = using.clock.now().since(using.started).as_secs_f64();
            match answer {
                Ok(Usage { prompt_tokens, completion_tokens }) => {
                    let reserved = tokens(prompt_tokens + reserved);
                    let counted = match self.case.counts {
                        RateCounts::Actual => tokens(prompt_tokens + completion_tokens),
                        RateCounts::Reserved => reserved,
                    };
                    using.calls.push(Call { ended, reserved, counted });
                }
                Err(failure) => {
                    connection = None;
                    using.failures.push(failure.to_string());
                }
            }
        }
    }

    async fn call(
        &self,
        connection: &mut Option<TcpStream>,
        request: &str,
    ) -> Result<Usage, Box<dyn Error + Send + Sync>> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(TcpStream::connect(self.addr).await?),
        };
        connection.write_all(request.as_bytes()).await?;
        let mut reply = Vec::new();
        read_one(connection, ANSWERED, &mut reply).await?;
        let head = find(&reply, b"\r\n\r\n").ok_or("a reply has a head")?;
        let Answer { usage } = serde_json::from_slice(&reply[head..])?;
        Ok(usage)
    }
}

fn lock(using: &Mutex<Use>) -> MutexGuard<'_, Use> {
    using.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of all models, by the metrics of a server.
fn provider_429s(metrics: &str) -> f64 {
    let of = |line: &str| {
        let line = line.strip_prefix("ratelimiter_gateway_provider_429s_total{")?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    metrics.lines().filter_map(of).sum()
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53")]
fn tokens(count: u64) -> f64 {
    count as f64
}

impl Measured {
    /// Of what exact reservations allow, in the worst case.
    pub(super) fn utilisation(&self) -> Summary {
        let of = |outcome: &Outcome| outcome.utilisation / outcome.allowed;
        Summary::of(&[self.outcomes().map(of).fold(f64::INFINITY, f64::min)])
    }

    /// The provider's 429s for 1 000 calls, in the worst case.
    pub(super) fn provider_429s(&self) -> Summary {
        Summary::of(&[self.outcomes().map(|outcome| outcome.provider_429s).fold(0.0, f64::max)])
    }

    /// Failed calls, in all cases.
    pub(super) fn failed(&self) -> Summary {
        Summary::of(&[self.outcomes().map(|outcome| float(outcome.failures.len())).sum()])
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().map(|(_, outcome)| outcome)
    }

    pub(super) fn describe(&self) -> String {
        let Sizes { callers, rpm, tpm, duration, .. } = self.sizes;
        let mut text = format!(
            "{callers} callers make one call after another for {} s, against a provider that enforces {rpm} requests and {tpm} tokens a minute. A call takes {CALL_SECONDS} s, reserves {} to {} tokens of \
             output and uses {OUTPUT_TOKENS}. *Shared*: others call the provider with the same key, and take what they get. The provider's limits fill up again evenly, as those of real ones do, so that after a pause it \
             gives more than its limit for a while. Use counts in the last three windows, less in the first and the last of them, so that \
             bursts that come back after a window count the same whenever they come. Exact reservations allow window ÷ (window + call × (reserved ÷ counted − 1)) of it.",
            duration.as_secs(),
            OUTPUT_TOKENS_RESERVED[0],
            OUTPUT_TOKENS_RESERVED[OUTPUT_TOKENS_RESERVED.len() - 1],
        );
        if let Some(failure) = self.outcomes().find_map(|outcome| outcome.failures.first()) {
            text += &format!(" **A call failed**: `{failure}`.");
        }
        text
    }

    pub(super) fn table(&self) -> Table {
        let header = [
            "tokens that the provider counts",
            "calls",
            "used by others, %",
            "of the rest used, %",
            "exact reservations allow, %",
            "provider's 429s per 1 000 calls",
            "failed",
        ];
        let mut table = Table::new("Utilisation:", header);
        for (case, outcome) in &self.outcomes {
            table.row([
                case.name(),
                count(outcome.calls),
                number(100.0 * outcome.of_others),
                number(100.0 * outcome.utilisation),
                number(100.0 * outcome.allowed),
                number(outcome.provider_429s),
                count(outcome.failures.len()),
            ]);
        }
        table
    }
}

//! Calls with a plain answer: how much a gateway adds to each, and how many it passes in a second.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::litellm;
use super::servers::{Endpoint, MODEL, Rates, bare_proxy, provider, ratelimiterd};
use crate::load::reply::ANSWERED;
use crate::load::request::{Template, post};
use crate::load::{Measurement, Target, closed};
use crate::progress::Progress;
use crate::rounds::{Comparison, Rounds};
use crate::summary::{Summary, number};
use crate::table::Table;

const OURS: &str = "ratelimiterd, four limits";
const DIRECT: &str = "the provider itself";
const BARE: &str = "bare hyper proxy";
const LITELLM: &str = "LiteLLM proxy";
/// Characters of the prompt.
const PROMPT_CHARACTERS: usize = 200;

#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// One, and many.
    pub(super) connections: [usize; 2],
    pub(super) duration: Duration,
    pub(super) rounds: usize,
}

#[derive(Debug)]
pub(super) struct Measured {
    sizes: Sizes,
    rounds: Rounds<Measurement>,
}

pub(super) fn measure(sizes: Sizes, folder: &Path, progress: &Progress) -> Measured {
    let provider = provider(Rates::unbounded(), &[]);
    let bare = bare_proxy(&provider, folder);
    let ours = ratelimiterd(&provider, folder, Rates::unbounded());
    let litellm = litellm::find().map(|program| litellm::start(&program, &provider, folder));
    let mut contestants = vec![(DIRECT, &provider), (BARE, &bare), (OURS, &ours)];
    contestants.extend(litellm.iter().map(|litellm| (LITELLM, litellm)));
    let mut comparison = Comparison::new();
    for connections in sizes.connections {
        for &(who, endpoint) in &contestants {
            let target = target(endpoint);
            comparison.add(name(who, connections), move || {
                closed::measure(&endpoint.process, &target, connections, sizes.duration).0
            });
        }
    }
    Measured { sizes, rounds: comparison.run(sizes.rounds, progress, "Gateway, calls") }
}

fn name(who: &str, connections: usize) -> String {
    format!("{who}, {connections} connections")
}

fn target(endpoint: &Endpoint) -> Target {
    let request = post(endpoint.path, &chat(""));
    Target {
        addr: endpoint.addr,
        templates: Arc::new([Template::of_bytes(request.into_bytes())]),
        reply: ANSWERED,
        reserves_per_request: 1,
    }
}

/// The body of a call, with more fields, each of which begins with a comma.
pub(super) fn chat(more: &str) -> String {
    let prompt = "Say it. ".repeat(PROMPT_CHARACTERS / 8);
    format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"{prompt}"}}]{more}}}"#)
}

impl Measured {
    /// Processor time of ours, × that of the bare proxy.
    pub(super) fn processor(&self) -> Summary {
        let [_, many] = self.sizes.connections;
        let value = |measured: &Measurement| measured.server_micros;
        self.rounds.ratio(&name(OURS, many), &name(BARE, many), value)
    }

    /// What ours adds to the p99 of one connection, in microseconds.
    pub(super) fn added_p99(&self) -> Summary {
        let [one, _] = self.sizes.connections;
        self.rounds.added(&name(OURS, one), &name(DIRECT, one), |measured| measured.p99)
    }

    /// Calls a second of ours, × those of LiteLLM.
    pub(super) fn rate_to_litellm(&self) -> Option<Summary> {
        let [_, many] = self.sizes.connections;
        let litellm = name(LITELLM, many);
        let ratio = || self.rounds.ratio(&name(OURS, many), &litellm, |measured| measured.rate);
        self.rounds.has(&litellm).then(ratio)
    }

    pub(super) fn describe(&self) -> String {
        let Sizes { rounds, duration, .. } = self.sizes;
        let litellm = match self.rounds.has(&name(LITELLM, self.sizes.connections[0])) {
            true => "one worker, without limits.",
            false => "**it was not measured**, because `LITELLM_BIN` does not name its program.",
        };
        format!(
            "Calls of `chat/completions` with a prompt of {PROMPT_CHARACTERS} characters and a plain answer of the mock provider; {rounds} rounds of {} ms for each row, one call at a time per \
             connection. Provider, gateway and load generator share the machine. *{OURS}*: requests, tokens, concurrency and money of a day; without the feature `openai-tokenizer`, whose \
             time comes on top. The provider's headers say what remains, and are compared. *{BARE}*: it looks at nothing. *{LITELLM}*: {litellm} Processor time is that of the gateway alone, or of the provider itself.",
            duration.as_millis(),
        )
    }

    pub(super) fn table(&self) -> Table {
        let header = [
            "connections",
            "what",
            "calls/s",
            "p50 µs",
            "p99 µs",
            "added p50 µs",
            "added p99 µs",
            "processor µs per call",
            "× bare proxy",
        ];
        let mut table = Table::new("Calls:", header);
        for connections in self.sizes.connections {
            let (direct, bare) = (name(DIRECT, connections), name(BARE, connections));
            for who in [DIRECT, BARE, OURS, LITELLM] {
                let name = name(who, connections);
                if !self.rounds.has(&name) {
                    continue;
                }
                let median = |value: fn(&Measurement) -> f64| {
                    number(self.rounds.summary(&name, value).median)
                };
                let added = |value: fn(&Measurement) -> f64| {
                    self.rounds.added(&name, &direct, value).to_string()
                };
                table.row([
                    connections.to_string(),
                    who.to_owned(),
                    median(|measured| measured.rate),
                    median(|measured| measured.p50),
                    median(|measured| measured.p99),
                    added(|measured| measured.p50),
                    added(|measured| measured.p99),
                    median(|measured| measured.server_micros),
                    self.rounds.ratio(&name, &bare, |measured| measured.server_micros).to_string(),
                ]);
            }
        }
        table
    }
}

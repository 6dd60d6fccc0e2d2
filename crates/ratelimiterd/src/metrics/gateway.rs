//! Metrics of the gateway's calls (`GW-12`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimiter::LimitKey;
use ratelimiter_gateway::{CallOutcome, CallReport, Observer, Settings};

use super::histogram::Histogram;
use super::text::Text;

/// The most limits that are shown beside the provider's. Those of models that callers name may be any number.
const COMPARED_MAX: usize = 1_000;
/// Stands for all models that are not listed.
const OTHER: &str = "other";

/// Counts the calls of each model.
#[derive(Debug)]
pub(crate) struct GatewayMetrics {
    providers: Vec<ProviderCounters>,
    open_streams: Arc<AtomicUsize>,
    compared: Mutex<BTreeMap<LimitKey, ComparedLimit>>,
}

/// A limit of ours beside what the provider says.
#[derive(Debug, Clone, Copy, Default)]
struct ComparedLimit {
    /// Our capacity and the provider's, if they differ.
    differing: Option<[u64; 2]>,
    /// Shown from the first time on, so that it is seen to end.
    held_back: Option<u64>,
}

impl ComparedLimit {
    fn is_over(self) -> bool {
        self.differing.is_none() && self.held_back.unwrap_or_default() == 0
    }
}

#[derive(Debug)]
struct ProviderCounters {
    name: Box<str>,
    /// Those that are listed, and `other`.
    models: Vec<ModelCounters>,
    waits: Histogram,
    first_bytes: Histogram,
    durations: Histogram,
}

#[derive(Debug, Default)]
struct ModelCounters {
    name: Box<str>,
    outcomes: [AtomicU64; CallOutcome::ALL.len()],
    input_tokens: AtomicU64,
    cached_input_tokens: AtomicU64,
    output_tokens: AtomicU64,
    cost: AtomicU64,
    limited: AtomicU64,
}

impl GatewayMetrics {
    pub(crate) fn new(settings: &Settings) -> Self {
        let providers = settings.providers.iter().map(|provider| {
            let listed = provider.models.iter().flatten().map(|model| model.name.as_str());
            let counters = |name: &str| ModelCounters { name: name.into(), ..Default::default() };
            ProviderCounters {
                name: provider.name.as_str().into(),
                models: listed.chain([OTHER]).map(counters).collect(),
                waits: Histogram::default(),
                first_bytes: Histogram::default(),
                durations: Histogram::default(),
            }
        });
        let compared = Mutex::default();
        Self { providers: providers.collect(), open_streams: Arc::default(), compared }
    }

    /// The number of open streams, which the gateway keeps.
    pub(crate) fn open_streams(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.open_streams)
    }

    /// Everything in Prometheus' text format.
    pub(crate) fn render(&self) -> String {
        let mut text = Text::default();
        let calls = "ratelimiter_gateway_requests_total";
        text.family(calls, "counter", "Calls of LLM providers by how they ended.");
        for (provider, model) in self.each() {
            for (outcome, count) in CallOutcome::ALL.iter().zip(&model.outcomes) {
                let (outcome, count) = (outcome.label(), count.load(Ordering::Relaxed));
                if count > 0 {
                    let labels =
                        [("provider", provider), ("model", &*model.name), ("outcome", outcome)];
                    text.sample(calls, &labels, count);
                }
            }
        }
        for (name, help, of) in FAMILIES {
            text.family(name, "counter", help);
            for (provider, model) in self.each() {
                let labels = [("provider", provider), ("model", &*model.name)];
                text.sample(name, &labels, of(model).load(Ordering::Relaxed));
            }
        }
        for (name, help, of) in HISTOGRAMS {
            text.family(name, "histogram", help);
            for provider in &self.providers {
                text.histogram(name, ("provider", &provider.name), of(provider));
            }
        }
        let streams = "ratelimiter_gateway_open_streams";
        text.family(streams, "gauge", "Streams that are being passed on.");
        text.sample(streams, &[], self.open_streams.load(Ordering::Relaxed));
        self.render_compared(&mut text);
        text.into_string()
    }

    fn render_compared(&self, text: &mut Text) {
        let compared = self.compared();
        let differing = "ratelimiter_gateway_differing_limit";
        text.family(
            differing,
            "gauge",
            "Limits that differ from what the provider says, as ours and the provider's.",
        );
        for (key, limit) in compared.iter() {
            for (of, capacity) in
                ["ours", "provider"].into_iter().zip(limit.differing.into_iter().flatten())
            {
                text.sample(differing, &[("key", key.as_str()), ("of", of)], capacity);
            }
        }
        let held_back = "ratelimiter_gateway_held_back";
        text.family(
            held_back,
            "gauge",
            "What is held back of a limit because the provider has less.",
        );
        for (key, limit) in compared.iter() {
            if let Some(amount) = limit.held_back {
                text.sample(held_back, &[("key", key.as_str())], amount);
            }
        }
    }

    fn compared(&self) -> MutexGuard<'_, BTreeMap<LimitKey, ComparedLimit>> {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is shown of a limit. Without anything to show it is dropped; those that are over make room for others.
    fn change_compared(&self, key: &LimitKey, change: impl FnOnce(&mut ComparedLimit)) {
        let mut compared = self.compared();
        let mut limit = compared.get(key).copied().unwrap_or_default();
        change(&mut limit);
        if limit.differing.is_none() && limit.held_back.is_none() {
            compared.remove(key);
            return;
        }
        if compared.len() >= COMPARED_MAX && !compared.contains_key(key) {
            compared.retain(|_, limit| !limit.is_over());
        }
        if compared.len() < COMPARED_MAX || compared.contains_key(key) {
            compared.insert(key.clone(), limit);
        }
    }

    fn model(
        &self,
        provider: &str,
        model: Option<&str>,
    ) -> Option<(&ProviderCounters, &ModelCounters)> {
        let provider = self.providers.iter().find(|own| &*own.name == provider)?;
        let model = model.unwrap_or(OTHER);
        let model = provider.models.iter().find(|own| &*own.name == model)?;
        Some((provider, model))
    }

    /// All models with the names of their providers.
    fn each(&self) -> impl Iterator<Item = (&str, &ModelCounters)> {
        self.providers
            .iter()
            .flat_map(|provider| provider.models.iter().map(|model| (&*provider.name, model)))
    }
}

type Family<T, V> = (&'static str, &'static str, fn(&T) -> &V);

const FAMILIES: [Family<ModelCounters, AtomicU64>; 5] = [
    (
        "ratelimiter_gateway_input_tokens_total",
        "Input tokens of settled calls, with what was read from a cache.",
        |model| &model.input_tokens,
    ),
    (
        "ratelimiter_gateway_cached_input_tokens_total",
        "Input tokens that the provider read from its cache.",
        |model| &model.cached_input_tokens,
    ),
    ("ratelimiter_gateway_output_tokens_total", "Output tokens of settled calls.", |model| {
        &model.output_tokens
    }),
    (
        "ratelimiter_gateway_cost_micro_dollars_total",
        "Cost of settled calls of models with a price.",
        |model| &model.cost,
    ),
    (
        "ratelimiter_gateway_provider_429s_total",
        "Answers 429 of the provider, with those of calls that were then repeated.",
        |model| &model.limited,
    ),
];

const HISTOGRAMS: [Family<ProviderCounters, Histogram>; 3] = [
    ("ratelimiter_gateway_wait_seconds", "Time that calls waited for room.", |provider| {
        &provider.waits
    }),
    (
        "ratelimiter_gateway_first_byte_seconds",
        "From sending a call to the first byte of its answer.",
        |provider| &provider.first_bytes,
    ),
    ("ratelimiter_gateway_upstream_seconds", "From sending a call to its end.", |provider| {
        &provider.durations
    }),
];

impl Observer for GatewayMetrics {
    fn call_ended(&self, report: &CallReport<'_>) {
        let CallReport { provider, model, outcome, usage, cost, waited, first_byte_after, took } =
            *report;
        let Some((provider, model)) = self.model(provider, model) else { return };
        provider.waits.record(waited);
        first_byte_after.inspect(|after| provider.first_bytes.record(*after));
        took.inspect(|took| provider.durations.record(*took));
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
        let at = CallOutcome::ALL.iter().position(|other| *other == outcome);
        add(&model.outcomes[at.expect("all outcomes are listed")], 1);
        add(&model.cost, cost);
        if let Some(usage) = usage {
            add(&model.input_tokens, usage.all_input());
            add(&model.cached_input_tokens, usage.cache_read);
            add(&model.output_tokens, usage.output);
        }
    }

    fn call_limited(&self, provider: &str, model: Option<&str>) {
        if let Some((_, model)) = self.model(provider, model) {
            model.limited.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn limit_compared(&self, key: &LimitKey, capacity: u64, provider_capacity: u64) {
        let differing = (capacity != provider_capacity).then_some([capacity, provider_capacity]);
        self.change_compared(key, |limit| limit.differing = differing);
    }

    fn held_back(&self, key: &LimitKey, amount: u64) {
        self.change_compared(key, |limit| limit.held_back = Some(amount));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GW-12
    #[test]
    fn gw_12_limits_that_are_no_longer_held_back_make_room_for_others() {
        let metrics = GatewayMetrics {
            providers: Vec::new(),
            open_streams: Arc::default(),
            compared: Mutex::default(),
        };
        let hold_back = |number: usize, amount| {
            let key = LimitKey::new(format!("global:llm:openai:{number}:rpm")).unwrap();
            metrics.held_back(&key, amount);
        };
        let count = |text: &str| metrics.render().matches(text).count();
        (0..=COMPARED_MAX).for_each(|number| hold_back(number, 1));
        assert_eq!(count("gateway_held_back{"), COMPARED_MAX, "all that are shown go on");
        (0..10).for_each(|number| hold_back(number, 0));
        assert_eq!(count(":rpm\"} 0\n"), 10, "they are seen to end");
        hold_back(COMPARED_MAX, 7);
        assert_eq!(count(":rpm\"} 7\n"), 1);
        assert_eq!(count("gateway_held_back{"), COMPARED_MAX - 9);
    }
}

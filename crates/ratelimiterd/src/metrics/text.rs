//! Writer of Prometheus' text format.

use std::fmt::{Display, Write};

use ratelimiter::{LimitKey, LimitState};

use super::histogram::{Histogram, HistogramSnapshot};
use super::key_counters::KeyCounters;
use super::{Outcome, OutcomeCounters};

/// Metrics in Prometheus' text format.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            self.0.push(open);
            self.0.push_str(label);
            self.0.push_str("=\"");
            self.escaped(text);
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.line(format_args!(" {value}"));
    }

    /// A counter per outcome of a call.
    pub(super) fn outcomes(
        &mut self,
        call: &str,
        title: &str,
        counters: &OutcomeCounters,
        outcomes: &[Outcome],
    ) {
        let name = format!("ratelimiter_{call}_total");
        self.family(&name, "counter", &format!("{title} responses by outcome."));
        for outcome in outcomes {
            self.sample(&name, &[("outcome", outcome.label())], counters.get(*outcome));
        }
    }

    /// A counter per key. The empty key counts all others.
    pub(super) fn keys(
        &mut self,
        name: &str,
        help: &str,
        counters: &KeyCounters,
        shows_key: &dyn Fn(&LimitKey) -> bool,
    ) {
        self.family(name, "counter", help);
        for (key, count) in counters.counts() {
            if !key.as_ref().is_none_or(shows_key) {
                continue;
            }
            let key = key.as_ref().map_or("", LimitKey::as_str);
            self.sample(name, &[("key", key)], count);
        }
    }

    /// Capacity and usage of each limit. A template has no usage of its own.
    pub(crate) fn limits(&mut self, states: &[LimitState]) {
        self.family("ratelimiter_limit_capacity", "gauge", "Capacity in force.");
        for state in states {
            let key = state.limit.key.as_str();
            self.sample("ratelimiter_limit_capacity", &[("key", key)], state.limit.capacity);
        }
        self.family("ratelimiter_limit_used", "gauge", "Units in live reservations or holds.");
        for state in states.iter().filter(|state| !state.limit.key.is_template()) {
            let key = state.limit.key.as_str();
            self.sample("ratelimiter_limit_used", &[("key", key)], state.usage.used);
        }
        self.family(
            "ratelimiter_overage_units_total",
            "counter",
            "Units used beyond what was reserved, when no capacity was left to cover them.",
        );
        for state in states {
            let labels =
                [("key", state.limit.key.as_str()), ("policy", state.limit.overage.name())];
            self.sample("ratelimiter_overage_units_total", &labels, state.usage.uncovered);
        }
    }

    pub(crate) fn histogram(&mut self, name: &str, label: (&str, &str), histogram: &Histogram) {
        let HistogramSnapshot { buckets, sum_seconds, count } = histogram.snapshot();
        for (bound, count) in buckets {
            self.sample(&format!("{name}_bucket"), &[label, ("le", &bound)], count);
        }
        self.sample(&format!("{name}_sum"), &[label], sum_seconds);
        self.sample(&format!("{name}_count"), &[label], count);
    }

    fn escaped(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes every text");
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

//! How many tokens a byte of text has, learned from settled calls of each model.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The most models whose ratio is known; beyond them, models keep the ratio on the safe side.
const MODELS_MAX: usize = 1_000;
/// So many calls are remembered of each model.
const CALLS_REMEMBERED: usize = 64;
/// Before so many calls, the ratio stays on the safe side.
const CALLS_MIN: usize = 8;
/// Calls with less text say little: what a provider adds to each outweighs it.
const BYTES_MIN: u64 = 200;
/// Millionths of a token for a byte.
const ONE: u64 = 1_000_000;

/// Tokens for a byte of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio(u64);

/// The ratios of models, by provider and name.
#[derive(Debug, Default)]
pub(crate) struct Ratios {
    models: Mutex<HashMap<(usize, Box<str>), Recent>>,
}

/// The ratios of a model's last calls.
#[derive(Debug, Default)]
struct Recent {
    ratios: Vec<u64>,
    next: usize,
    highest: u64,
}

impl Ratio {
    /// A token has at least one byte.
    pub(crate) const SAFE: Self = Self(ONE);
    /// To count text whose tokens nobody knows: above that of prose, below that of code.
    pub(crate) const TYPICAL: Self = Self(ONE / 3);

    /// The tokens of so many bytes, rounded up.
    pub(crate) fn tokens(self, bytes: u64) -> u64 {
        let tokens = (u128::from(bytes) * u128::from(self.0)).div_ceil(u128::from(ONE));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }
}

impl Ratios {
    /// The ratio for a model's next call.
    pub(crate) fn get(&self, provider: usize, model: &str) -> Ratio {
        self.learned(provider, model).unwrap_or(Ratio::SAFE)
    }

    /// A tenth above the highest ratio of a model's last calls; `None` before there were some.
    pub(crate) fn learned(&self, provider: usize, model: &str) -> Option<Ratio> {
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = models.get(&(provider, Box::from(model)))?;
        let highest = recent.highest;
        let is_known = recent.ratios.len() >= CALLS_MIN;
        is_known.then(|| Ratio((highest + highest.div_ceil(10)).min(ONE)))
    }

    /// A call of a model with so many bytes of text used so many tokens of input.
    pub(crate) fn learn(&self, provider: usize, model: &str, bytes: u64, tokens: u64) {
        if bytes < BYTES_MIN {
            return;
        }
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = models.len() < MODELS_MAX;
        let name = (provider, Box::from(model));
        if !has_room && !models.contains_key(&name) {
            return;
        }
        let ratio = u128::from(tokens) * u128::from(ONE) / u128::from(bytes);
        models.entry(name).or_default().add(u64::try_from(ratio).unwrap_or(ONE).min(ONE));
    }
}

impl Recent {
    fn add(&mut self, ratio: u64) {
        if self.ratios.len() < CALLS_REMEMBERED {
            self.ratios.push(ratio);
        } else {
            self.ratios[self.next] = ratio;
        }
        self.next = (self.next + 1) % CALLS_REMEMBERED;
        self.highest = self.ratios.iter().copied().max().unwrap_or(ONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GW-03
    #[test]
    fn gw_03_a_ratio_is_on_the_safe_side_until_it_is_learned() {
        let ratios = Ratios::default();
        for _ in 0..CALLS_MIN {
            assert_eq!(ratios.get(0, "m"), Ratio::SAFE);
            ratios.learn(0, "m", 1_000, 250);
        }
        assert_eq!(ratios.get(0, "m").tokens(1_000), 275);
        assert_eq!(ratios.get(1, "m"), Ratio::SAFE, "another provider's model is another model");
        ratios.learn(0, "m", 1_000, 500);
        assert_eq!(ratios.get(0, "m").tokens(1_000), 550, "one dense text raises it at once");
        for _ in 0..CALLS_REMEMBERED {
            ratios.learn(0, "m", 1_000, 250);
        }
        assert_eq!(ratios.get(0, "m").tokens(1_000), 275, "and is forgotten in time");
    }

    /// GW-03
    #[test]
    fn gw_03_short_texts_teach_nothing() {
        let ratios = Ratios::default();
        for _ in 0..CALLS_MIN {
            ratios.learn(0, "m", BYTES_MIN - 1, 1);
        }
        assert_eq!(ratios.get(0, "m"), Ratio::SAFE);
    }

    #[test]
    fn the_models_that_are_remembered_are_bounded() {
        let ratios = Ratios::default();
        for model in 0..=MODELS_MAX {
            for _ in 0..CALLS_MIN {
                ratios.learn(0, &model.to_string(), 1_000, 250);
            }
        }
        assert_ne!(ratios.get(0, &(MODELS_MAX - 1).to_string()), Ratio::SAFE);
        assert_eq!(ratios.get(0, &MODELS_MAX.to_string()), Ratio::SAFE);
    }
}

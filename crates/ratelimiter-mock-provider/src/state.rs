//! What all calls of one provider share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::HeaderMap;

use crate::call::Identity;
use crate::calls::CallLog;
use crate::charge::SharedLimits;
use crate::fault::Fault;
use crate::options::MockOptions;

/// Which random numbers decide about faults.
const FAULT_PURPOSE: u64 = 2;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: MockOptions,
    pub(crate) calls: Arc<CallLog>,
    pub(crate) limits: Arc<SharedLimits>,
    pub(crate) output_tokens: AtomicU64,
    faults: Mutex<Vec<Fault>>,
    headers: Mutex<HeaderMap>,
}

impl State {
    pub(crate) fn new(options: MockOptions) -> Self {
        Self {
            calls: Arc::default(),
            limits: Arc::new(SharedLimits::new(&options)),
            output_tokens: AtomicU64::new(options.output_tokens),
            faults: Mutex::new(options.faults.clone()),
            headers: Mutex::default(),
            options,
        }
    }

    pub(crate) fn set_faults(&self, faults: Vec<Fault>) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    pub(crate) fn set_headers(&self, headers: HeaderMap) {
        *self.headers.lock().unwrap_or_else(PoisonError::into_inner) = headers;
    }

    /// Puts the headers that all answers have in place of those that this one has.
    pub(crate) fn replace_headers(&self, headers: &mut HeaderMap) {
        let of_all = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in &*of_all {
            headers.insert(name, value.clone());
        }
    }

    pub(crate) fn output_tokens(&self) -> u64 {
        self.output_tokens.load(Ordering::Relaxed)
    }

    /// The fault that hits a call.
    pub(crate) fn fault_of(&self, identity: Identity) -> Option<Fault> {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        draw(identity, &faults, self.options.fault_rate)
    }
}

fn draw(identity: Identity, faults: &[Fault], fault_rate: f64) -> Option<Fault> {
    let mut rng = identity.rng(FAULT_PURPOSE);
    let is_hit = rng.f64() < fault_rate;
    let fault = rng.choice(faults).copied();
    fault.filter(|_| is_hit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(seed: u64, fault_rate: f64) -> Vec<Option<Fault>> {
        let faults = [Fault::Cut, Fault::Reset];
        (1..=1_000).map(|number| draw(Identity { seed, number }, &faults, fault_rate)).collect()
    }

    /// GW-14
    #[test]
    fn the_calls_that_faults_hit_follow_from_the_seed() {
        assert_eq!(hits(1, 0.3), hits(1, 0.3));
        assert_ne!(hits(1, 0.3), hits(2, 0.3));
        let hit = hits(1, 0.3).into_iter().flatten().collect::<Vec<_>>();
        assert!((250..350).contains(&hit.len()), "{}", hit.len());
        assert!(hit.contains(&Fault::Cut) && hit.contains(&Fault::Reset));
    }

    #[test]
    fn a_share_of_faults_is_none_to_all() {
        assert!(hits(1, 0.0).iter().all(Option::is_none));
        assert!(hits(1, 1.0).iter().all(Option::is_some));
    }
}

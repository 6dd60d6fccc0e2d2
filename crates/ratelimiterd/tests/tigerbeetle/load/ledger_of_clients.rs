//! What the clients together know that they hold. It is never more than is really held: units are noted after they were
//! given, and crossed out before they are given back. So if the clients' sum passes a limit, units were given twice.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use ratelimiter::LeaseId;

/// Both ends of a window are cut to milliseconds on the wire.
const ROUNDING_MS: u64 = 2;

pub struct ClientLedger {
    slots_max: u64,
    rate_max: u64,
    window_ms: u64,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    slots: HashMap<LeaseId, u64>,
    slots_held: u64,
    /// How often more slots were held than there are.
    slots_over: u64,
    /// When each lease was admitted, in milliseconds of the cluster's time.
    admitted_at_ms: Vec<u64>,
}

impl ClientLedger {
    pub fn new(slots_max: u64, rate_max: u64, window: Duration) -> Self {
        let window_ms = u64::try_from(window.as_millis()).unwrap();
        Self { slots_max, rate_max, window_ms, noted: Mutex::default() }
    }

    pub fn reserved(&self, lease: LeaseId, slots: u64, at_ms: u64) {
        let mut noted = self.noted.lock().unwrap();
        assert!(noted.slots.insert(lease, slots).is_none(), "a lease is allowed once");
        noted.slots_held += slots;
        noted.slots_over += u64::from(noted.slots_held > self.slots_max);
        noted.admitted_at_ms.push(at_ms);
    }

    pub fn released(&self, lease: LeaseId) {
        let mut noted = self.noted.lock().unwrap();
        noted.slots_held -= noted.slots.remove(&lease).expect("it was reserved");
    }

    /// How often more was given out than there is.
    pub fn over_admissions(&self) -> u64 {
        let mut noted = self.noted.lock().unwrap();
        noted.admitted_at_ms.sort_unstable();
        let moments = &noted.admitted_at_ms;
        let rate_max = usize::try_from(self.rate_max).unwrap();
        // Of so many admissions in a row and one more, the last must come after the window of the first.
        let is_over = |first_and_last: &[u64]| {
            let (first, last) = (first_and_last[0], first_and_last[rate_max]);
            last - first + ROUNDING_MS < self.window_ms
        };
        let rate_over = moments.windows(rate_max + 1).filter(|moments| is_over(moments)).count();
        noted.slots_over + rate_over as u64
    }
}

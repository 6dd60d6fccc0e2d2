//! Renews, in plans that were made without them. They have a generator of their own.

use super::super::EventKind;
use super::Generator;

/// The largest amount that a renew asks for.
const AMOUNT_MAX: u64 = 9;

impl Generator {
    /// Lets some leases be renewed, in some plans.
    pub(super) fn renews(&mut self, seed: u64) {
        let own = fastrand::Rng::with_seed(seed.rotate_left(24) ^ 0x3E4E_5EED);
        let before = std::mem::replace(&mut self.random, own);
        if self.percent(40) {
            let mut seen = Vec::new();
            for event in self.events.clone() {
                if let EventKind::Reserve { lease, needs, .. } = event.kind
                    && !seen.contains(&lease)
                {
                    seen.push(lease);
                    if self.percent(50) {
                        self.renew_lease(lease, event.client, event.at_ms, &needs);
                    }
                }
            }
        }
        self.random = before;
    }

    /// Renews a lease a few times. Some renews are repeated, and some overtake others.
    fn renew_lease(&mut self, lease: usize, client: usize, from_ms: u64, needs: &[(usize, u64)]) {
        let mut at_ms = from_ms;
        for number in 1..=self.random.u64(1..=4) {
            at_ms += self.random.u64(1..=1_500);
            let mut amounts = Vec::new();
            for (limit, _) in needs {
                if self.percent(70) {
                    amounts.push((*limit, self.random.u64(..=AMOUNT_MAX)));
                }
            }
            let mut again_ms = at_ms;
            loop {
                let (server, amounts) = (self.server(), amounts.clone());
                let kind = EventKind::Renew { server, lease, number, amounts };
                self.event(again_ms, client, kind);
                if !self.percent(30) {
                    break;
                }
                again_ms += self.random.u64(1..=2_000);
            }
        }
    }
}

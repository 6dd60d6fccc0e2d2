//! Renews, in plans that were made without them. They have a generator of their own.

use super::super::{EventKind, LimitsEvent, SetupKind};
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
                if let EventKind::Reserve { server, lease, needs, .. } = event.kind
                    && !seen.contains(&lease)
                {
                    seen.push(lease);
                    if self.percent(50) {
                        self.renew_lease(lease, event.client, event.at_ms, &needs);
                    } else if self.percent(50) {
                        self.complete_twice(server, lease, event.client, event.at_ms, &needs);
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

    /// A renew at another server asks for a whole limit, which is denied if anybody else has some of it. Then the lease is completed
    /// here and, once its hold would have lapsed, there.
    fn complete_twice(
        &mut self,
        server: usize,
        lease: usize,
        client: usize,
        from_ms: u64,
        needs: &[(usize, u64)],
    ) {
        let mut kinds = needs.iter().map(|(limit, _)| (*limit, self.limits[*limit].kind));
        let hold = kinds.clone().find_map(|(_, kind)| match kind {
            SetupKind::Concurrency { seconds } => Some(seconds),
            SetupKind::Rolling { .. } | SetupKind::Calendar { .. } => None,
        });
        let rolling = kinds.find(
            |(_, kind)| matches!(kind, SetupKind::Rolling { seconds } if Some(*seconds) > hold),
        );
        let (Some(hold_seconds), Some((rolling, _))) = (hold, rolling) else {
            return;
        };
        let is_complete = |event: &LimitsEvent| matches!(event.kind, EventKind::Complete { lease: of, .. } if of == lease);
        self.events.retain(|event| !is_complete(event));
        let other = (server + 1) % self.servers;
        let mut at_ms = from_ms + self.random.u64(20..=300);
        let amounts = vec![(rolling, self.limits[rolling].capacity)];
        self.event(at_ms, client, EventKind::Renew { server: other, lease, number: 1, amounts });
        at_ms += self.random.u64(20..=300);
        let actuals = Vec::new();
        self.event(at_ms, client, EventKind::Complete { server, lease, actuals });
        at_ms = from_ms + 1_000 * hold_seconds + self.random.u64(100..=600);
        let actuals = self.actuals(needs);
        self.event(at_ms, client, EventKind::Complete { server: other, lease, actuals });
    }
}

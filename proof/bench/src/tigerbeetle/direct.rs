//! The limit: the same chains, straight through the client crate.

use std::time::Duration;

use ::tigerbeetle as tb;
use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{LeaseId, LimitKey};
use ratelimiter_tigerbeetle::ids::{self, TransferRole};
use ratelimiter_tigerbeetle::ledger::LEDGER_LIMITS;
use testkit::tigerbeetle::{Mode, TestCluster};

use super::servers::SECONDS_MIN;
use crate::load::open::Schedule;
use crate::load::{Latencies, Turn};
use crate::rounds::float;
use crate::workload::{LIMITS_PER_CALL, models, requirements};

/// As many as a request of our server may have with batching on.
const CHAINS_PER_REQUEST: usize = 2_000;
/// More chains than TigerBeetle takes in a second, on a machine like any of today's.
const CHAINS_PER_SECOND: usize = 150_000;
const CODE_LIMIT: u16 = 1;

/// A client of its own, and what it sends for each model.
pub(super) struct Direct {
    clock: MonotonicClock,
    runtime: tokio::runtime::Runtime,
    client: tb::Client,
    chains: Vec<Vec<Reservation>>,
    chains_per_request: usize,
}

/// What a reservation is before it has a lease.
struct Reservation {
    key: LimitKey,
    account: u128,
    amount: u128,
    timeout_seconds: u32,
}

impl Direct {
    pub(super) fn open(cluster: &TestCluster, mode: Mode, model_count: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("the system has room for a runtime");
        let client = tb::Client::new(cluster.cluster_id(), &cluster.addresses()[0]);
        let client = client.expect("the client starts");
        // A session's first request takes long.
        runtime.block_on(client.lookup_accounts(&[1])).expect("the cluster answers");
        let chains = models(model_count).into_iter().map(reservations).collect();
        let chains_per_request = match mode {
            Mode::Production => CHAINS_PER_REQUEST,
            // A development server takes 253 transfers a request.
            Mode::Development => 60,
        };
        Self { clock: MonotonicClock::new(), runtime, client, chains, chains_per_request }
    }

    /// Chains per second, one full request after the other. They are made before the clock starts.
    pub(super) fn flat_out(&self, turn: Duration) -> f64 {
        let each = self.chains_per_request;
        let per_turn = float(CHAINS_PER_SECOND) * turn.as_secs_f64();
        let requests: Vec<_> = std::iter::repeat_with(|| self.request(each))
            .scan(0.0, |made, request| {
                let before = *made;
                *made += float(each);
                (before < per_turn).then_some(request)
            })
            .collect();
        let started_at = self.clock.now();
        let mut sent = 0;
        for request in requests {
            self.send(&request);
            sent += each;
            if self.clock.now().since(started_at) >= turn {
                break;
            }
        }
        float(sent) / self.clock.now().since(started_at).as_secs_f64()
    }

    /// Requests of so many chains, evenly, as many chains a second as told; each counts from the moment when it was due.
    pub(super) fn paced(&self, chains: usize, chains_per_second: f64, turn: Duration) -> Turn {
        let mut latencies = Latencies::new();
        let started_at = self.clock.now();
        let mut next = self.request(chains);
        for due_at in Schedule::new(&self.clock, chains_per_second / float(chains), turn) {
            self.send(&next);
            latencies.record(self.clock.now().since(due_at));
            // While nothing is due, so that it is not part of a latency.
            next = self.request(chains);
        }
        latencies.turn(chains, self.clock.now().since(started_at), 0.0)
    }

    fn send(&self, request: &[tb::Transfer]) {
        let results = self.runtime.block_on(self.client.create_transfers(request));
        let results = results.expect("the cluster answers");
        let is_created =
            |result: &tb::CreateTransferResult| result.status == tb::CreateTransferStatus::Created;
        assert!(results.iter().all(is_created), "the limits have room for everything");
    }

    fn request(&self, chains: usize) -> Vec<tb::Transfer> {
        let mut request = Vec::with_capacity(chains * LIMITS_PER_CALL);
        for _ in 0..chains {
            let reservations = &self.chains[fastrand::usize(..self.chains.len())];
            let lease = LeaseId::generate(self.clock.now());
            let last = reservations.len() - 1;
            let transfer = |(at, reservation): (usize, &Reservation)| tb::Transfer {
                id: ids::transfer(TransferRole::Reserve, lease, &reservation.key).get(),
                debit_account_id: reservation.account,
                credit_account_id: ids::operator_account().get(),
                amount: reservation.amount,
                user_data_128: lease.as_u128(),
                timeout: reservation.timeout_seconds,
                ledger: LEDGER_LIMITS,
                code: CODE_LIMIT,
                flags: if at == last {
                    tb::TransferFlags::Pending
                } else {
                    tb::TransferFlags::Pending | tb::TransferFlags::Linked
                },
                ..tb::Transfer::default()
            };
            request.extend(reservations.iter().enumerate().map(transfer));
        }
        request
    }
}

fn reservations(model: usize) -> Vec<Reservation> {
    let requirements = requirements(model);
    let mut needs: Vec<_> = requirements.iter().collect();
    needs.sort_by(|a, b| a.key.cmp(&b.key));
    let reservation = |need: &ratelimiter::Requirement| Reservation {
        key: need.key.clone(),
        account: ids::limit_account(&need.key).get(),
        amount: need.amount.get().into(),
        timeout_seconds: u32::try_from(SECONDS_MIN).expect("an hour"),
    };
    needs.into_iter().map(reservation).collect()
}

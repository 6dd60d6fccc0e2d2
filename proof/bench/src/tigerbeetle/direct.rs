//! The ceiling: the same chains through the client crate alone.

use std::time::Duration;

use ::tigerbeetle as tb;
use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{LeaseId, LimitKey};
use ratelimiter_tigerbeetle::ids::{self, TransferRole};
use ratelimiter_tigerbeetle::ledger::LEDGER_LIMITS;
use ratelimiterd::load::Latencies;
use testkit::tigerbeetle::{Mode, TestCluster};

use super::servers::SECONDS_MIN;
use crate::load::Measurement;
use crate::load::open::Schedule;
use crate::rounds::float;
use crate::workload::{LIMITS_PER_CALL, models, workload};

/// The most that a server with batching on sends.
const CHAINS_PER_REQUEST: usize = 2_000;
/// More than TigerBeetle creates in a second on any current machine.
const CHAINS_PER_SECOND_MAX: usize = 150_000;
const CODE_LIMIT: u16 = 1;

/// A client and the chains it sends, one per model.
pub(super) struct Direct {
    clock: MonotonicClock,
    runtime: tokio::runtime::Runtime,
    client: tb::Client,
    chains: Vec<Vec<Reservation>>,
    pub(super) chains_per_request: usize,
}

/// A reservation without a lease.
struct Reservation {
    key: LimitKey,
    account: u128,
    amount: u128,
    timeout_seconds: u32,
}

impl Direct {
    pub(super) fn open(cluster: &TestCluster, mode: Mode, model_count: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime starts");
        let client = tb::Client::new(cluster.cluster_id(), &cluster.addresses()[0]);
        let client = client.expect("the client starts");
        // The first request of a session is slow.
        runtime.block_on(client.lookup_accounts(&[1])).expect("the cluster answers");
        let chains = models(model_count).into_iter().map(reservations).collect();
        let chains_per_request = match mode {
            Mode::Production => CHAINS_PER_REQUEST,
            // A development server accepts 253 transfers per request.
            Mode::Development => 60,
        };
        Self { clock: MonotonicClock::new(), runtime, client, chains, chains_per_request }
    }

    /// Chains per second, one full request after the other. The requests are prepared.
    pub(super) fn flat_out(&self, duration: Duration) -> f64 {
        let each = self.chains_per_request;
        let per_turn = float(CHAINS_PER_SECOND_MAX) * duration.as_secs_f64();
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
            if self.clock.now().since(started_at) >= duration {
                break;
            }
        }
        float(sent) / self.clock.now().since(started_at).as_secs_f64()
    }

    /// Requests of `chains` chains at a constant rate; latency counts from the scheduled time.
    pub(super) fn paced(
        &self,
        chains: usize,
        chains_per_second: f64,
        duration: Duration,
    ) -> Measurement {
        let mut latencies = Latencies::default();
        let started_at = self.clock.now();
        let mut next = self.request(chains);
        for due_at in Schedule::new(&self.clock, chains_per_second / float(chains), duration) {
            self.send(&next);
            latencies.record(self.clock.now().since(due_at));
            // Prepared while nothing is due, so that it is not part of a latency.
            next = self.request(chains);
        }
        Measurement::new(&latencies, chains, self.clock.now().since(started_at), 0.0)
    }

    /// Median latency in microseconds of one chain per request, one request after the other.
    pub(super) fn lone_p50(&self, duration: Duration) -> f64 {
        let mut latencies = Latencies::default();
        let until = self.clock.now().after(duration);
        while self.clock.now() < until {
            let request = self.request(1);
            let started_at = self.clock.now();
            self.send(&request);
            latencies.record(self.clock.now().since(started_at));
        }
        latencies.percentile(50.0).as_secs_f64() * 1e6
    }

    fn send(&self, request: &[tb::Transfer]) {
        let results = self.runtime.block_on(self.client.create_transfers(request));
        let results = results.expect("the cluster answers");
        let is_created =
            |result: &tb::CreateTransferResult| result.status == tb::CreateTransferStatus::Created;
        assert!(results.iter().all(is_created), "the limits never deny");
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
    let requirements = workload(SECONDS_MIN).call(model).requirements;
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

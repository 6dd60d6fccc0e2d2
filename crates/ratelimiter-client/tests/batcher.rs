//! The batcher on a memory limiter.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{
    Actuals, BatchOptions, Batcher, Capacity, CompleteError, CompleteRequest, Decision, LeaseId,
    Limit, LimitKey, LimitKind, Limiter, MemoryLimiter, Refused, Requirements, ReserveError,
    ReserveRequest, Wait, Window, clock::FakeClock,
};
use tokio::sync::Semaphore;

/// A limiter in memory that writes down the leases of every batch, and answers when it is let.
#[derive(Debug, Clone)]
struct Recorded {
    memory: MemoryLimiter,
    /// Requests that may wait get no answer.
    lets_wait: bool,
    batches: Arc<Mutex<Vec<Vec<u128>>>>,
    let_through: Arc<Semaphore>,
}

impl Recorded {
    /// A limit `k` of this capacity. Batches are answered at once.
    fn new(capacity: u64) -> Self {
        let memory = MemoryLimiter::with_options(MemoryOptions::for_tests(FakeClock::new()));
        let window = Window::from_seconds(60).unwrap();
        let capacity = Capacity::new(capacity).unwrap();
        let limit = Limit::new(key(), LimitKind::Rolling { window }, capacity);
        memory.define_now(limit).unwrap();
        Self {
            memory,
            lets_wait: false,
            batches: Arc::default(),
            let_through: Arc::new(Semaphore::new(1_000)),
        }
    }

    async fn enter(&self, leases: impl Iterator<Item = LeaseId>) {
        let leases = leases.map(LeaseId::as_u128).collect();
        self.batches.lock().unwrap().push(leases);
        self.let_through.acquire().await.unwrap().forget();
    }

    fn batches(&self) -> Vec<Vec<u128>> {
        self.batches.lock().unwrap().clone()
    }

    fn sizes(&self) -> Vec<usize> {
        self.batches().iter().map(Vec::len).collect()
    }
}

impl Limiter for Recorded {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        let answer = self.memory.reserve(request).await;
        match request.wait {
            Some(_) => std::future::pending().await,
            None => answer,
        }
    }

    fn can_wait(&self) -> bool {
        self.lets_wait
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.memory.complete(request).await
    }

    async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<Decision, ReserveError>> {
        self.enter(requests.iter().map(|request| request.lease)).await;
        self.memory.reserve_batch(requests).await
    }

    async fn complete_batch(&self, requests: &[CompleteRequest]) -> Vec<Result<(), CompleteError>> {
        self.enter(requests.iter().map(|request| request.lease)).await;
        self.memory.complete_batch(requests).await
    }
}

fn key() -> LimitKey {
    LimitKey::new("k").unwrap()
}

fn reserve(lease: u128) -> ReserveRequest {
    let requirements = Requirements::of([(key(), 1)]).unwrap();
    ReserveRequest::new(LeaseId::from_u128(lease), requirements)
}

fn complete(lease: u128) -> CompleteRequest {
    CompleteRequest::new(LeaseId::from_u128(lease), Actuals::none())
}

/// CLI-02
#[tokio::test(start_paused = true)]
async fn cli_02_concurrent_reserves_go_in_one_batch_in_their_order() {
    let recorded = Recorded::new(7);
    let batcher = Batcher::new(recorded.clone());
    let answers = join_all((0..10).map(|lease| {
        let batcher = batcher.clone();
        async move { batcher.reserve(&reserve(lease)).await.unwrap() }
    }));
    let allowed: Vec<_> = answers.await.iter().map(Decision::is_allowed).collect();
    assert_eq!(recorded.batches(), [(0..10).collect::<Vec<_>>()]);
    assert_eq!(allowed, [&[true; 7][..], &[false; 3]].concat(), "each its own answer");
}

/// CLI-02
#[tokio::test(start_paused = true)]
async fn cli_02_a_batch_has_at_most_128_items() {
    let recorded = Recorded::new(1_000);
    let batcher = Batcher::new(recorded.clone());
    let requests: Vec<_> = (0..128 + 129).map(reserve).collect();
    join_all(requests.iter().map(|request| batcher.reserve(request))).await;
    assert_eq!(recorded.sizes(), [128, 128, 1]);
}

/// CLI-02
#[tokio::test(start_paused = true)]
async fn cli_02_a_batch_waits_for_2_ms_after_its_first_item() {
    let recorded = Recorded::new(1_000);
    let batcher = Batcher::new(recorded.clone());
    let first = reserve(1);
    let second = reserve(2);
    let third = reserve(3);
    let later = async |request: &ReserveRequest, micros| {
        tokio::time::advance(Duration::from_micros(micros)).await;
        batcher.reserve(request).await
    };
    let (a, b) = tokio::join!(batcher.reserve(&first), later(&second, 1_900));
    assert!(a.is_ok() && b.is_ok());
    assert!(later(&third, 10_000).await.is_ok());
    assert_eq!(recorded.batches(), [vec![1, 2], vec![3]]);
}

/// CLI-02
#[tokio::test(start_paused = true)]
async fn cli_02_reserves_and_completes_are_separate_batches() {
    let recorded = Recorded::new(1_000);
    let batcher = Batcher::new(recorded.clone());
    let (reserve, complete) = (reserve(1), complete(2));
    let answers = tokio::join!(batcher.reserve(&reserve), batcher.complete(&complete));
    assert!(answers.0.is_ok() && answers.1.is_ok());
    let mut batches = recorded.batches();
    batches.sort();
    assert_eq!(batches, [[1], [2]]);
}

/// CLI-02
#[tokio::test(start_paused = true)]
async fn cli_02_shutdown_sends_waiting_items_and_accepts_no_more() {
    let recorded = Recorded::new(1_000);
    let options = BatchOptions { wait_max: Duration::from_secs(3_600), ..BatchOptions::default() };
    let batcher = Batcher::with_options(recorded.clone(), &options);
    let waiting: Vec<_> = (0..3)
        .map(|lease| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.complete(&complete(lease)).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let begun = tokio::time::Instant::now();
    batcher.shutdown().await;
    assert_eq!(begun.elapsed(), Duration::ZERO, "without waiting for the hour");
    for one in join_all(waiting).await {
        assert_eq!(one.unwrap(), Ok(()));
    }
    assert_eq!(recorded.batches(), [[0, 1, 2]]);
    let refused = batcher.reserve(&reserve(9)).await.unwrap_err();
    assert!(matches!(refused, ReserveError::Refused(Refused { .. })));
    assert_eq!(recorded.batches().len(), 1);
}

/// WAIT-08, CLI-02
#[tokio::test(start_paused = true)]
async fn wait_08_a_request_that_may_wait_joins_no_batch_and_a_shutdown_takes_it_back() {
    let recorded = Recorded { lets_wait: true, ..Recorded::new(1_000) };
    let batcher = Batcher::new(recorded.clone());
    let wait = Some(Wait::new(Duration::from_secs(60), "acme").unwrap());
    let request = ReserveRequest { wait, ..reserve(1) };
    let waiting = {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.reserve(&request).await })
    };
    assert!(batcher.reserve(&reserve(2)).await.unwrap().is_allowed());
    assert_eq!(recorded.batches(), [[2]]);
    assert_eq!(recorded.memory.open_leases(), 2);
    let begun = tokio::time::Instant::now();
    batcher.shutdown().await;
    assert_eq!(begun.elapsed(), Duration::ZERO, "without waiting for the minute");
    let refused = waiting.await.unwrap().unwrap_err();
    assert!(matches!(refused, ReserveError::Refused(Refused { .. })), "{refused:?}");
    assert_eq!(recorded.memory.open_leases(), 1, "what it may have got is returned");
}

/// WAIT-08: a limiter where nothing waits gets such requests in batches too.
#[tokio::test(start_paused = true)]
async fn wait_08_where_nothing_waits_all_requests_join_batches() {
    let recorded = Recorded::new(1_000);
    let batcher = Batcher::new(recorded.clone());
    let wait = Some(Wait::new(Duration::from_secs(60), "acme").unwrap());
    let request = ReserveRequest { wait, ..reserve(1) };
    assert!(batcher.reserve(&request).await.unwrap().is_allowed());
    assert_eq!(recorded.batches(), [[1]]);
}

/// CLI-02
#[tokio::test(start_paused = true)]
async fn cli_02_dropping_the_batcher_sends_waiting_items() {
    let recorded = Recorded::new(1_000);
    let batcher = Batcher::new(recorded.clone());
    let closing = {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.complete(&complete(1)).await })
    };
    drop(batcher);
    assert_eq!(closing.await.unwrap(), Ok(()));
    assert_eq!(recorded.batches(), [[1]]);
}

/// CLI-02
#[tokio::test(start_paused = true)]
async fn cli_02_a_caller_that_goes_away_reserves_nothing_but_completes() {
    let recorded = Recorded::new(1_000);
    let batcher = Batcher::new(recorded.clone());
    let impatient = Duration::from_millis(1);
    let request = reserve(1);
    let given_up = tokio::time::timeout(impatient, batcher.reserve(&request)).await;
    assert!(given_up.is_err());
    let request = complete(2);
    let given_up = tokio::time::timeout(impatient, batcher.complete(&request)).await;
    assert!(given_up.is_err());
    batcher.shutdown().await;
    assert_eq!(recorded.batches(), [[2]]);
}

/// CLI-02
#[tokio::test(start_paused = true)]
async fn cli_02_the_batches_in_flight_are_bounded() {
    let recorded = Recorded::new(1_000);
    recorded.let_through.forget_permits(1_000);
    let options = BatchOptions { items_max: 1, calls_max: 2, ..BatchOptions::default() };
    let batcher = Batcher::with_options(recorded.clone(), &options);
    let waiting: Vec<_> = (0..5)
        .map(|lease| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.reserve(&reserve(lease)).await })
        })
        .collect();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(recorded.batches(), [[0], [1]]);
    recorded.let_through.add_permits(5);
    for one in join_all(waiting).await {
        assert!(one.unwrap().unwrap().is_allowed());
    }
    assert_eq!(recorded.batches(), [[0], [1], [2], [3], [4]], "begun in order");
}

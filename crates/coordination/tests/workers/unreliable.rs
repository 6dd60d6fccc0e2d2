//! Hooks for providers that lose answers, are slow, or stop in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use coordination::{Answer, Leases, MemoryProvider, ProviderError, Result};
use testkit::coordination::{Between, Call, Hook};
use tokio::sync::Semaphore;

/// A memory provider with a hook around its calls.
pub(crate) type Hooked<H> = Between<MemoryProvider, H>;

/// Carries calls out, and loses answers or is slow.
#[derive(Debug, Clone)]
pub(crate) struct Unreliable {
    calls: Arc<AtomicUsize>,
    lost_every: usize,
    beginnings: Arc<AtomicUsize>,
    slow_beginnings: usize,
    slow_beginning_takes: Duration,
    reaping_ends: bool,
}

impl Unreliable {
    fn reliable() -> Unreliable {
        Unreliable {
            calls: Arc::default(),
            lost_every: usize::MAX,
            beginnings: Arc::default(),
            slow_beginnings: 0,
            slow_beginning_takes: Duration::ZERO,
            reaping_ends: true,
        }
    }

    pub(crate) fn every_third_answer_is_lost(inner: MemoryProvider) -> Hooked<Unreliable> {
        let hook = Unreliable { lost_every: 3, ..Unreliable::reliable() };
        Between { inner, hook }
    }

    pub(crate) fn first_beginning_takes(
        inner: MemoryProvider,
        span: Duration,
    ) -> Hooked<Unreliable> {
        let slow = Unreliable { slow_beginnings: 1, ..Unreliable::reliable() };
        Between { inner, hook: Unreliable { slow_beginning_takes: span, ..slow } }
    }

    pub(crate) fn every_beginning_takes(
        inner: MemoryProvider,
        span: Duration,
    ) -> Hooked<Unreliable> {
        let slow = Unreliable { slow_beginnings: usize::MAX, ..Unreliable::reliable() };
        Between { inner, hook: Unreliable { slow_beginning_takes: span, ..slow } }
    }

    pub(crate) fn reaping_never_ends(inner: MemoryProvider) -> Hooked<Unreliable> {
        Between { inner, hook: Unreliable { reaping_ends: false, ..Unreliable::reliable() } }
    }

    /// How often an attempt was said to begin.
    pub(crate) fn beginnings(&self) -> usize {
        self.beginnings.load(Ordering::SeqCst)
    }
}

impl Hook for Unreliable {
    async fn around<T: Send + 'static, E: From<ProviderError> + Send>(
        &self,
        call: Call<'_>,
        answer: impl Answer<T, E>,
    ) -> Result<T, E> {
        if !self.reaping_ends && matches!(call, Call::OutboxReap | Call::ReapTimers) {
            std::future::pending::<()>().await;
        }
        let answer = answer.await?;
        if let Call::OutboxBegin { .. } = call
            && self.beginnings.fetch_add(1, Ordering::SeqCst) < self.slow_beginnings
        {
            crate::pass(self.slow_beginning_takes).await;
        }
        let count = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if count.is_multiple_of(self.lost_every) {
            return Err(ProviderError::new("test", "the answer was lost").into());
        }
        Ok(answer)
    }
}

/// Carries out the first of these calls and then keeps its caller waiting until it is let go.
#[derive(Debug, Clone)]
pub(crate) struct Stuck {
    is_stuck: fn(Call<'_>) -> bool,
    count: Arc<AtomicUsize>,
    pub(crate) let_go: Arc<Semaphore>,
}

impl Stuck {
    pub(crate) fn after_enqueue(inner: MemoryProvider) -> Hooked<Stuck> {
        Stuck::after(inner, |call| matches!(call, Call::OutboxEnqueue { .. }))
    }

    pub(crate) fn after_ack(inner: MemoryProvider) -> Hooked<Stuck> {
        Stuck::after(inner, |call| matches!(call, Call::AckTimers { .. }))
    }

    fn after(inner: MemoryProvider, is_stuck: fn(Call<'_>) -> bool) -> Hooked<Stuck> {
        let let_go = Arc::new(Semaphore::new(0));
        Between { inner, hook: Stuck { is_stuck, count: Arc::default(), let_go } }
    }

    /// How many such calls were carried out.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

impl Hook for Stuck {
    async fn around<T: Send + 'static, E: From<ProviderError> + Send>(
        &self,
        call: Call<'_>,
        answer: impl Answer<T, E>,
    ) -> Result<T, E> {
        let answer = answer.await;
        if (self.is_stuck)(call) && self.count.fetch_add(1, Ordering::SeqCst) == 0 {
            self.let_go.acquire().await.expect("never closed").forget();
        }
        answer
    }
}

/// Does not answer so many renewals of leases.
#[derive(Debug, Clone)]
pub(crate) struct Silent {
    pub(crate) unanswered: Arc<AtomicUsize>,
}

impl Hook for Silent {
    async fn around<T: Send + 'static, E: From<ProviderError> + Send>(
        &self,
        call: Call<'_>,
        answer: impl Answer<T, E>,
    ) -> Result<T, E> {
        let less_one = |count: usize| count.checked_sub(1);
        if matches!(call, Call::Renew { .. })
            && self.unanswered.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less_one).is_ok()
        {
            return Err(ProviderError::new("lease renewal", "no connection").into());
        }
        answer.await
    }
}

/// Loses the lease at its next renewal once told so.
#[derive(Debug, Clone)]
pub(crate) struct Losable {
    inner: MemoryProvider,
    pub(crate) lose: Arc<AtomicBool>,
}

impl Losable {
    pub(crate) fn around_leases(inner: MemoryProvider) -> Hooked<Losable> {
        Between { inner: inner.clone(), hook: Losable { inner, lose: Arc::default() } }
    }
}

impl Hook for Losable {
    async fn around<T: Send + 'static, E: From<ProviderError> + Send>(
        &self,
        call: Call<'_>,
        answer: impl Answer<T, E>,
    ) -> Result<T, E> {
        if let Call::Renew { tenure, .. } = call
            && self.lose.swap(false, Ordering::SeqCst)
        {
            self.inner.release(tenure).await?;
        }
        answer.await
    }
}

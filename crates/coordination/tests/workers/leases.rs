//! A singleton under a lease: its work stops when the lease is lost, and a provider that does not
//! answer is asked again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordination::{Leases, ResourceName, Result};
use testkit::coordination::Between;

use crate::unreliable::{Hooked, Silent};
use crate::{lease, pass, provider};

/// Leases whose renewals get no answer, so many times.
fn silent(unanswered: usize) -> Hooked<Silent> {
    let unanswered = Arc::new(AtomicUsize::new(unanswered));
    Between { inner: provider(), hook: Silent { unanswered } }
}

fn resource() -> ResourceName {
    ResourceName::new("singleton").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_gets_no_answer_is_tried_again_while_there_is_time() {
    let leases = silent(3);
    let held = leases.acquire(&resource(), lease(30), None).await.unwrap().unwrap();
    let held = held.renewed_automatically();
    pass(Duration::from_secs(300)).await;
    assert_eq!(held.ensure_held(), Ok(()));
    assert_eq!(leases.hook.unanswered.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_provider_is_gone_is_lost_at_its_end_and_not_before() {
    let leases = silent(usize::MAX);
    let held = leases.acquire(&resource(), lease(30), None).await.unwrap().unwrap();
    let held = held.renewed_automatically();
    pass(Duration::from_secs(29)).await;
    assert_eq!(held.ensure_held(), Ok(()));
    pass(Duration::from_millis(1010)).await;
    assert!(held.lost().is_cancelled(), "it fired by itself");
    assert!(held.ensure_held().is_err());
}

#[tokio::test(start_paused = true)]
async fn the_effects_of_a_singleton_stop_with_its_lease() {
    let memory = provider();
    let held = memory.acquire(&resource(), lease(10), None).await.unwrap().unwrap();
    let effects = AtomicUsize::new(0);
    let work = async {
        loop {
            effects.fetch_add(1, Ordering::SeqCst);
            pass(Duration::from_secs(3)).await;
        }
    };
    let lost: Result<(), _> = held.run(work).await;
    assert!(lost.is_err());
    assert_eq!(effects.load(Ordering::SeqCst), 4, "at 0, 3, 6 and 9 s");
    let next = memory.acquire(&resource(), lease(10), None).await.unwrap().unwrap();
    assert!(next.fencing_token() > held.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn a_lease_dropped_by_a_provider_with_io_is_given_up_on_a_task() {
    let leases = silent(0);
    let held = leases.acquire(&resource(), lease(3600), None).await.unwrap().unwrap();
    drop(held);
    pass(Duration::from_millis(1)).await;
    assert!(leases.acquire(&resource(), lease(10), None).await.unwrap().is_some());
}

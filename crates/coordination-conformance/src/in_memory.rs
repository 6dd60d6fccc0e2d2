//! What a provider in memory is: its process's alone.

use coordination::{Leases, Outbox};

use crate::Fixture;
use crate::fixture::lease;
use crate::outbox::claim_ids;
use crate::sample::{outbox_message, resource};
use crate::scenario::{answer, suite};

suite! {
    $
    /// One test per property of a provider in memory. Durable providers have `durable_suite!`
    /// instead.
    macro in_memory_suite, module in_memory, fixture Fixture,
    "GEN-001" gen_001_state_is_local_and_not_durable:
        "State is process-local and non-durable: a new provider knows nothing of another's.";
    "GEN-002" gen_002_two_providers_coordinate_nothing:
        "For local development and tests, not for coordination between processes: two providers grant the same resource at once.";
}

/// PRIM-INMEMORY-GEN-001
pub async fn gen_001_state_is_local_and_not_durable<F: Fixture>(fixture: F) {
    answer(fixture.outbox().enqueue(outbox_message("1"))).await;
    let other = F::fresh().await;
    assert_eq!(claim_ids(&other, "a").await, []);
    drop(fixture);
    let after = F::fresh().await;
    assert_eq!(claim_ids(&after, "a").await, []);
}

/// PRIM-INMEMORY-GEN-002
pub async fn gen_002_two_providers_coordinate_nothing<F: Fixture>(fixture: F) {
    let other = F::fresh().await;
    let mut held = Vec::new();
    for fixture in [&fixture, &other] {
        let acquired =
            answer(fixture.leases().acquire(&resource("one"), lease::<F>(10), None)).await;
        held.push(acquired.expect("each grants it on its own"));
    }
    assert_eq!(held[0].ensure_held(), Ok(()));
    assert_eq!(held[1].ensure_held(), Ok(()));
}

//! `DEF-08` and `COM-07`: state that survives a server.

use ratelimiter::{Capacity, Limit, LimitStatus, Note};

use crate::context::TestContext;

/// DEF-08
pub(crate) async fn def_08_definitions_survive_a_restart(on: &mut TestContext) {
    let rate = Limit {
        unit: Note::new("tokens").expect("a short note"),
        description: Note::new("two \"words\"\nand a line").expect("a short note"),
        ..on.limit("rate rolling 60s 5 deny")
    };
    assert_eq!(on.world.define(rate.clone()).await, Ok(LimitStatus::Active));
    on.run(
        "limit slots concurrency 60s 5
         limit slots concurrency 30s 7
         limit gone rolling 60s 5
         delete gone
         restart",
    )
    .await;
    assert_eq!(on.state("rate").await.limit, rate);
    on.run(
        "defined slots concurrency 30s 7
         undefined gone
         reserve A rate=5 slots=7",
    )
    .await;
}

/// DEF-08
pub(crate) async fn def_08_a_decrease_survives_a_restart(on: &mut TestContext) {
    on.run(
        "limit slots concurrency 60s 10
         reserve A slots=8
         limit slots concurrency 60s 5 -> decreasing to 5
         restart",
    )
    .await;
    // A limiter that loses its leases with the process has room for the decrease now.
    let state = on.state("slots").await;
    let target = match state.status {
        LimitStatus::Active => state.limit.capacity,
        LimitStatus::Paused => Capacity::ZERO,
        LimitStatus::Decreasing { to } => to,
    };
    assert_eq!(target.get(), 5);
    on.run(
        "complete A
         wait slots
         capacity slots=5
         reserve B slots=5",
    )
    .await;
}

scripts! {
    /// COM-07
    fn com_07_complete_after_a_restart_releases_and_reconciles: "
        limit tokens rolling 3600s 100; limit slots concurrency 3600s 1
        reserve A tokens=50 slots=1; restart
        used tokens=50 slots=1
        complete A tokens=20
        used tokens=20 slots=0
        reserve B tokens=80 slots=1
    ";

    /// COM-07
    fn com_07_complete_at_another_server_releases_and_reconciles: "
        limit tokens rolling 3600s 100; limit slots concurrency 3600s 1
        reserve A tokens=50 slots=1; move
        used tokens=50
        complete A tokens=20
        used tokens=20 slots=0
        reserve B tokens=80 slots=1
    ";

    /// COM-07, RES-04, RES-05, RES-09
    fn com_07_leases_are_known_after_a_restart: "
        limit tokens rolling 3600s 100
        reserve open tokens=50
        reserve denied tokens=51 -> denied
        reserve ended tokens=1; complete ended tokens=0; restart
        reserve open tokens=50 -> allowed as before
        reserve open tokens=49 -> conflict
        reserve denied tokens=51 -> denied
        reserve ended tokens=1 -> ended
        used tokens=50
    ";
}

/// COM-05, COM-07
pub(crate) async fn com_05_the_first_complete_stands_at_another_server(on: &mut TestContext) {
    on.run(
        "limit tokens rolling 3600s 1000
         limit slots concurrency 3600s 10
         reserve none tokens=50 slots=1
         reserve equal tokens=50 slots=1
         reserve less tokens=50 slots=1
         reserve more tokens=50 slots=1
         complete none
         complete equal tokens=50
         complete less tokens=20
         complete more tokens=70
         used tokens=190
         move",
    )
    .await;
    for first in ["none", "equal", "less", "more"] {
        for later in ["", "tokens=0", "tokens=50", "tokens=90"] {
            on.run(&format!("complete {first} {later}\nused tokens=190")).await;
        }
    }
}

//! The list of limits, as the admin API pages through it.

use ratelimiter::{LimitState, Page};

use crate::context::TestContext;

const FIVE_LIMITS: &str = "
    limit b:2 rolling 60s 1
    limit a:1 rolling 60s 1
    limit c rolling 60s 1
    limit b:1 rolling 60s 1
    limit b:3 rolling 60s 1
";

async fn states(on: &TestContext, page: Page) -> Vec<LimitState> {
    on.world.states(&page).await.expect("a working limiter returns its states")
}

async fn list(on: &TestContext, prefix: &str, after: Option<&str>, max: usize) -> String {
    let page = Page {
        prefix: format!("{}{prefix}", on.prefix),
        after: after.map(|name| on.key(name)),
        count_max: Some(max),
        template: None,
    };
    let states = states(on, page).await;
    states.iter().map(|state| on.name(&state.limit.key)).collect::<Vec<_>>().join(" ")
}

/// The admin API: `GET /v1/admin/limits`
pub(crate) async fn admin_limits_are_listed_sorted_by_key(on: &mut TestContext) {
    on.run(FIVE_LIMITS).await;
    assert_eq!(list(on, "", None, 9).await, "a:1 b:1 b:2 b:3 c");
    on.run("delete b:2").await;
    assert_eq!(list(on, "", None, 9).await, "a:1 b:1 b:3 c");
}

/// The admin API: `GET /v1/admin/limits`
pub(crate) async fn admin_a_page_is_a_part_of_the_list(on: &mut TestContext) {
    on.run(FIVE_LIMITS).await;
    assert_eq!(list(on, "b:", None, 9).await, "b:1 b:2 b:3");
    assert_eq!(list(on, "b:", None, 2).await, "b:1 b:2");
    assert_eq!(list(on, "b:", Some("b:2"), 2).await, "b:3");
    assert_eq!(list(on, "b:", Some("a:9"), 9).await, "b:1 b:2 b:3");
    assert_eq!(list(on, "b:", Some("c"), 9).await, "");
    assert_eq!(list(on, "x", None, 9).await, "");
}

/// The admin API: `GET /v1/admin/limits`
pub(crate) async fn admin_the_list_and_the_single_state_agree(on: &mut TestContext) {
    on.run(
        "limit rate rolling 60s 10
         limit slots concurrency 60s 10
         reserve A rate=3 slots=8
         limit slots concurrency 60s 5 -> decreasing to 5",
    )
    .await;
    let page = Page { prefix: on.prefix.clone(), ..Page::default() };
    assert_eq!(states(on, page).await, [on.state("rate").await, on.state("slots").await]);
}

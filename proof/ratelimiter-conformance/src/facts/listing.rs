//! The list of limits, as the admin API pages through it.

use ratelimiter::Page;

use crate::context::TestContext;

async fn list(on: &TestContext, prefix: &str, after: Option<&str>, max: usize) -> String {
    let page = Page {
        prefix: format!("{}{prefix}", on.prefix()),
        after: after.map(|name| on.key(name)),
        count_max: Some(max),
    };
    let states = on.states(&page).await;
    let name = |state: &ratelimiter::LimitState| {
        let key = state.limit.key.as_str();
        key.strip_prefix(on.prefix()).unwrap_or(key).to_owned()
    };
    states.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// The admin API: `GET /v1/admin/limits`
pub(crate) async fn admin_limits_are_listed_sorted_by_key(on: &TestContext) {
    for name in ["b:2", "a:1", "c", "b:1", "b:3"] {
        on.rolling(name, 60, 1).await;
    }
    assert_eq!(list(on, "", None, 9).await, "a:1 b:1 b:2 b:3 c");
    assert_eq!(on.delete("b:2").await, Ok(()));
    assert_eq!(list(on, "", None, 9).await, "a:1 b:1 b:3 c");
}

/// The admin API: `GET /v1/admin/limits`
pub(crate) async fn admin_a_page_is_a_part_of_the_list(on: &TestContext) {
    for name in ["b:2", "a:1", "c", "b:1", "b:3"] {
        on.rolling(name, 60, 1).await;
    }
    assert_eq!(list(on, "b:", None, 9).await, "b:1 b:2 b:3");
    assert_eq!(list(on, "b:", None, 2).await, "b:1 b:2");
    assert_eq!(list(on, "b:", Some("b:2"), 2).await, "b:3");
    assert_eq!(list(on, "b:", Some("a:9"), 9).await, "b:1 b:2 b:3");
    assert_eq!(list(on, "b:", Some("c"), 9).await, "");
    assert_eq!(list(on, "x", None, 9).await, "");
}

/// The admin API: `GET /v1/admin/limits`
pub(crate) async fn admin_the_list_and_the_single_state_agree(on: &TestContext) {
    on.rolling("rate", 60, 10).await;
    on.concurrency("slots", 60, 10).await;
    on.reserve("A", [("rate", 3), ("slots", 8)]).await.is_allowed();
    on.decrease(on.concurrency_limit("slots", 60, 5)).await;
    let page = Page { prefix: on.prefix().to_owned(), ..Page::default() };
    let states = on.states(&page).await;
    assert_eq!(states, [on.state("rate").await, on.state("slots").await]);
}

//! One model name for several keys or regions (`GW-08`).

use std::collections::BTreeMap;

use hyper::HeaderMap;
use hyper::header::{HeaderValue, RETRY_AFTER};
use ratelimiter_mock_provider::{Fault, MockProvider};
use serde_json::json;
use testkit::eventually;

use super::{GatewayTest, MODEL, Operation, mock};

/// A gateway whose model stands for one at each of two providers, of which `east` gets most calls.
struct Deployed {
    test: GatewayTest,
    west: MockProvider,
}

impl Deployed {
    async fn start() -> Self {
        let west = mock().await;
        let (west_url, price) = (west.base_url_openai(), json!({"input": 1.0, "output": 2.0}));
        let test = GatewayTest::start_with(|section| {
            let providers = section["providers"].as_array_mut().unwrap();
            let east_url = providers[0]["base_url"].clone();
            providers[0]["models"] = json!({MODEL: {
                "price": price,
                "deployments": [
                    {"provider": "east", "model": "gpt-4o-east", "weight": 1000},
                    {"provider": "west", "model": "gpt-4o-west"},
                ],
            }});
            providers.extend([
                json!({"name": "east", "api": "openai", "base_url": east_url, "api_key": "key-east",
                    "models": {"gpt-4o-east": {}}}),
                json!({"name": "west", "api": "openai", "base_url": west_url, "api_key": "key-west"}),
            ]);
        })
        .await;
        Self { test, west }
    }

    /// The calls that each provider got.
    fn counts(&self) -> (usize, usize) {
        (self.test.mock.calls().len(), self.west.calls().len())
    }

    /// The statuses of so many calls, one after another.
    async fn statuses(&self, count: usize, headers: &[(&str, &str)]) -> BTreeMap<u16, usize> {
        let mut statuses = BTreeMap::new();
        for _ in 0..count {
            let answer = self.test.call(Operation::Chat, false, headers).await;
            *statuses.entry(answer.status).or_default() += 1;
        }
        statuses
    }
}

/// Longer than any test.
fn later() -> HeaderMap {
    HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("300"))])
}

const EAST_RPM: &str = "global:llm:east:gpt-4o-east:rpm";
const WEST_RPM: &str = "global:llm:west:gpt-4o-west:rpm";
const EAST_CONCURRENCY: &str = "global:llm:east:gpt-4o-east:concurrency";
const WEST_CONCURRENCY: &str = "global:llm:west:gpt-4o-west:concurrency";
const AT_ONCE: [(&str, &str); 1] = [("x-ratelimiter-wait-ms", "0")];

/// GW-08
#[tokio::test]
async fn gw_08_a_call_goes_to_a_deployment_with_its_model_key_and_limits() {
    let deployed = Deployed::start().await;
    for key in [EAST_RPM, "global:llm:east:gpt-4o-east:daily_cost", "global:llm:openai:gpt-4o:rpm"]
    {
        deployed.test.server.define_rolling(key, 1_000_000).await;
    }
    let mut stream = deployed.test.call(Operation::Chat, true, &[]).await;
    // One in a thousand goes west.
    while deployed.counts().0 == 0 {
        stream = deployed.test.call(Operation::Chat, true, &[]).await;
    }
    assert_eq!(stream.status, 200);
    let call = &deployed.test.mock.calls()[0];
    let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
    assert_eq!(body["model"], "gpt-4o-east");
    assert_eq!(body["stream_options"]["include_usage"], true);
    assert_eq!(call.headers["authorization"], "Bearer key-east");
    let used = |key: &str| deployed.test.used(key);
    assert_eq!((used(EAST_RPM), used("global:llm:openai:gpt-4o:rpm")), (1, 0));
    assert!(
        used("global:llm:east:gpt-4o-east:daily_cost") > 0,
        "by the price of the model that was named"
    );
    let metrics = deployed.test.server.get("/metrics").await.body;
    let counted = r#"requests_total{provider="east",model="gpt-4o-east",outcome="answered"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}

/// GW-08
#[tokio::test]
async fn gw_08_a_call_goes_where_there_is_room_now() {
    let deployed = Deployed::start().await;
    deployed.test.server.define_rolling(EAST_RPM, 3).await;
    deployed.test.server.define_rolling(WEST_RPM, 2).await;
    assert_eq!(deployed.statuses(6, &AT_ONCE).await, BTreeMap::from([(200, 5), (429, 1)]));
    assert_eq!(deployed.counts(), (3, 2));
}

/// GW-08
#[tokio::test]
async fn gw_08_a_call_that_waits_goes_where_there_is_room_first() {
    let deployed = Deployed::start().await;
    let test = &deployed.test;
    for key in [EAST_CONCURRENCY, WEST_CONCURRENCY] {
        test.server.define_concurrency(key, 1).await;
    }
    // Each provider has one call, which does not end by itself.
    let stalls = [("x-mock-fault", "stall")];
    let streams = [
        test.begin(Operation::Chat, true, &stalls).await,
        test.begin(Operation::Chat, true, &stalls).await,
    ];
    assert_eq!(deployed.counts(), (1, 1));
    let waits = test.call(Operation::Chat, false, &[]);
    let ends = async {
        eventually("it waits for both", async || {
            test.server.get("/metrics").await.body.contains("ratelimiter_waiters 2\n")
        })
        .await;
        let [first, second] = streams;
        // The first went east or west.
        drop(first);
        second
    };
    let (answer, second) = tokio::join!(waits, ends);
    assert_eq!(answer.status, 200);
    eventually("the other wait is over", async || {
        test.server.get("/metrics").await.body.contains("ratelimiter_waiters 0\n")
    })
    .await;
    drop(second);
    eventually("nothing is left", async || test.server.memory.open_leases() == 0).await;
}

/// GW-08
#[tokio::test]
async fn gw_08_a_call_that_one_deployment_refuses_goes_to_another_at_once() {
    for fault in [Fault::TooManyRequests, Fault::Unavailable] {
        let deployed = Deployed::start().await;
        deployed.test.mock.set_faults(vec![fault]);
        deployed.test.mock.set_headers(later());
        assert_eq!(deployed.statuses(5, &AT_ONCE).await, BTreeMap::from([(200, 5)]), "{fault}");
        // It is left out for a while.
        assert_eq!(deployed.counts(), (1, 5), "{fault}");
    }
}

/// GW-08
#[tokio::test]
async fn gw_08_a_deployment_that_fails_is_left_out_by_calls_that_are_not_repeated_too() {
    let deployed = Deployed::start().await;
    deployed.test.mock.set_faults(vec![Fault::Unavailable]);
    deployed.test.mock.set_headers(later());
    let once = [("x-ratelimiter-retries", "0")];
    let statuses = deployed.statuses(3, &once).await;
    assert_eq!(statuses, BTreeMap::from([(200, 2), (503, 1)]));
}

/// GW-08
#[tokio::test]
async fn gw_08_what_cannot_be_connected_is_left_out() {
    let mut deployed = Deployed::start().await;
    let east = std::mem::replace(&mut deployed.test.mock, mock().await);
    east.stop().await;
    assert_eq!(deployed.statuses(5, &[]).await, BTreeMap::from([(200, 5)]));
    assert_eq!(deployed.west.calls().len(), 5);
}

/// GW-08
#[tokio::test]
async fn gw_08_a_call_waits_for_a_deployment_that_refused_it_if_the_others_have_no_room() {
    for fault in [Fault::TooManyRequests, Fault::Unavailable] {
        let deployed = Deployed::start().await;
        let Deployed { test, west } = &deployed;
        // West is paused.
        test.server.define_rolling(WEST_RPM, 0).await;
        test.mock.set_faults(vec![fault]);
        let recovers = async {
            test.mock.wait_for_ended(1).await;
            test.mock.set_faults(Vec::new());
        };
        let (answer, ()) = tokio::join!(test.call(Operation::Chat, false, &[]), recovers);
        assert_eq!(answer.status, 200, "{fault}: {answer:?}");
        assert_eq!(west.calls().len(), 0);
        eventually("nothing is left", async || test.server.memory.open_leases() == 0).await;
    }
}

/// GW-08
#[tokio::test]
async fn gw_08_a_call_that_had_waited_and_is_refused_goes_on_waiting_for_the_others() {
    for fault in [Fault::TooManyRequests, Fault::Unavailable] {
        let deployed = Deployed::start().await;
        let test = &deployed.test;
        for key in [EAST_RPM, WEST_RPM] {
            test.server.define_rolling(key, 0).await;
        }
        test.mock.set_faults(vec![fault]);
        test.mock.set_headers(later());
        let room_comes = async {
            eventually("it waits for both", async || {
                test.server.get("/metrics").await.body.contains("ratelimiter_waiters 2\n")
            })
            .await;
            test.server.define_rolling(EAST_RPM, 10).await;
            test.mock.wait_for_ended(1).await;
            test.server.define_rolling(WEST_RPM, 10).await;
        };
        let (answer, ()) = tokio::join!(test.call(Operation::Chat, false, &[]), room_comes);
        assert_eq!(answer.status, 200, "{fault}: {answer:?}");
        assert_eq!(deployed.counts(), (1, 1));
        eventually("nothing is left", async || test.server.memory.open_leases() == 0).await;
    }
}

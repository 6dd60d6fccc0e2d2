//! A server that stops (`GW-13`).

use http_body_util::BodyExt;
use testkit::eventually;

use super::{GatewayTest, Operation, whole};

/// GW-13
#[tokio::test]
async fn gw_13_open_streams_may_finish() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let mut answer = test.begin(Operation::Chat, true, &[("x-mock-output-tokens", "50")]).await;
    let first = answer.body_mut().frame().await.unwrap().unwrap();
    assert!(!first.data_ref().unwrap().is_empty());
    let GatewayTest { server, mock: _mock, client: _client } = test;
    let memory = server.memory.clone();
    let (rest, ()) = tokio::join!(whole(answer), server.server.stop());
    assert!(rest.body.ends_with("data: [DONE]\n\n"), "{}", rest.body);
    assert_eq!(memory.open_leases(), 0);
}

/// GW-13
#[tokio::test]
async fn gw_13_what_is_cut_is_settled() {
    let test = GatewayTest::start_stopping_at_once().await;
    test.define_limits().await;
    let mut answer = test.begin(Operation::Chat, true, &[("x-mock-fault", "stall")]).await;
    answer.body_mut().frame().await.unwrap().unwrap();
    let key = ratelimiter::LimitKey::new(Operation::Chat.key("rpm")).unwrap();
    let GatewayTest { server, mock: _mock, client: _client } = test;
    let memory = server.memory.clone();
    assert_eq!(memory.open_leases(), 1);
    server.server.stop().await;
    eventually("it is settled", async || memory.open_leases() == 0).await;
    assert_eq!(memory.state_now(&key).unwrap().usage.used, 1);
}

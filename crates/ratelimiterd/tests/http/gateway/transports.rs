//! TLS to a provider (`GW-16`), and callers over HTTP/2.

use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratelimiter_mock_provider::{CallEnd, MockProvider};
use serde_json::json;
use testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::{GatewayTest, MODEL, Operation, client, mock, section, send, set_gateway, whole};
use crate::certificates::Pair;
use crate::harness::TestServer;

/// A provider with a certificate, which is another gateway.
async fn encrypted(pair: &Pair, mock: &MockProvider) -> TestServer {
    TestServer::start_with(|config| {
        let folder = config.registry.path.parent().unwrap().parent().unwrap();
        config.server.tls = pair.write(folder);
        set_gateway(config, section(mock));
    })
    .await
}

/// GW-16
#[tokio::test]
async fn gw_16_a_provider_is_reached_over_tls_if_its_authority_is_trusted() {
    let (pair, stranger, mock) = (Pair::new(), Pair::new(), mock().await);
    let inner = encrypted(&pair, &mock).await;
    let folder = tempfile::tempdir().unwrap();
    for (authority, statuses) in [(&pair, [200, 200]), (&stranger, [502, 502])] {
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, &authority.cert_pem).unwrap();
        let base_url = format!("https://localhost:{}/openai/v1", inner.addr().port());
        let outer = json!({"wait_ms": 0, "providers": [
            {"name": "openai", "api": "openai", "base_url": base_url, "ca_file": ca_file},
        ]});
        let outer = TestServer::start_with(|config| set_gateway(config, outer)).await;
        outer.define_rolling(&Operation::Chat.key("rpm"), 10).await;
        let uri = format!("http://{}{}", outer.addr(), Operation::Chat.path());
        for (is_stream, status) in [false, true].into_iter().zip(statuses) {
            let body = Operation::Chat.body(is_stream).to_string();
            let answer = whole(send(&client(), Method::POST, &uri, &[], body.into()).await).await;
            assert_eq!(answer.status, status, "{answer:?}");
        }
        assert_eq!(outer.memory.open_leases(), 0);
    }
    assert_eq!(mock.calls().len(), 2, "who is not trusted gets nothing");
}

/// GW-05, GW-08
#[tokio::test]
async fn gw_05_a_call_whose_connection_is_never_made_is_made_elsewhere() {
    // It accepts, and never shakes hands.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, Pair::new().cert_pem).unwrap();
    let test = GatewayTest::start_with(|section| {
        let providers = section["providers"].as_array_mut().unwrap();
        let mut good = providers[0].clone();
        good["name"] = json!("good");
        providers[0]["models"][MODEL]["deployments"] = json!([
            {"provider": "silent", "model": MODEL, "weight": 1000},
            {"provider": "good", "model": MODEL},
        ]);
        providers.extend([
            good,
            json!({"name": "silent", "api": "openai", "base_url": format!("https://localhost:{port}/v1"),
                "ca_file": ca_file, "upstream_timeout_ms": 100}),
        ]);
    })
    .await;
    let rpm = |provider| format!("global:llm:{provider}:{MODEL}:rpm");
    for provider in ["good", "silent"] {
        test.server.define_rolling(&rpm(provider), 10).await;
    }
    for is_stream in [false, true] {
        let answer = test.call(Operation::Chat, is_stream, &[]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let body = Operation::Chat.body(false).to_string();
    let alone = test.request(
        Method::POST,
        "/silent/v1/chat/completions",
        &[("x-ratelimiter-retries", "0")],
        body,
    );
    let (_, message) = alone.await.error();
    assert_eq!(message, "the provider silent cannot be reached; see the server's log");
    eventually("all are settled", async || test.server.memory.open_leases() == 0).await;
    assert_eq!((test.used(&rpm("good")), test.used(&rpm("silent"))), (2, 0));
}

/// Opens tunnels for whoever knows the password, and notes to where.
async fn connect_proxy(seen: Arc<Mutex<Vec<String>>>) -> std::net::SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await?);
                }
                let head = String::from_utf8(head).unwrap();
                if !head.to_lowercase().contains("proxy-authorization: basic dxnlcjpwqhnz") {
                    return client.write_all(b"HTTP/1.1 407 Who\r\n\r\n").await;
                }
                let target = head.split_ascii_whitespace().nth(1).unwrap().to_owned();
                let mut provider = TcpStream::connect(&target).await?;
                seen.lock().unwrap().push(target);
                client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
                copy_bidirectional(&mut client, &mut provider).await.map(drop)
            });
        }
    });
    addr
}

/// GW-16
#[tokio::test]
async fn gw_16_a_provider_is_reached_through_a_proxy() {
    let (pair, mock, seen) = (Pair::new(), mock().await, Arc::default());
    let proxy = connect_proxy(Arc::clone(&seen)).await;
    let inner = encrypted(&pair, &mock).await;
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, &pair.cert_pem).unwrap();
    let host = format!("localhost:{}", inner.addr().port());
    for (user, status) in [("user:p%40ss", 200), ("user:wrong", 502)] {
        let outer = json!({"wait_ms": 0, "providers": [
            {"name": "openai", "api": "openai", "base_url": format!("https://{host}/openai/v1"), "ca_file": ca_file,
                "https_proxy": format!("http://{user}@{proxy}")},
        ]});
        let outer = TestServer::start_with(|config| set_gateway(config, outer)).await;
        let uri = format!("http://{}{}", outer.addr(), Operation::Chat.path());
        let body = Operation::Chat.body(false).to_string();
        let answer = whole(send(&client(), Method::POST, &uri, &[], body.into()).await).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(!answer.body.contains("p%40ss"), "{answer:?}");
    }
    assert_eq!(*seen.lock().unwrap(), [host]);
}

/// GW-04, GW-05: over HTTP/2 streams pass too, and a caller that goes away is settled.
#[tokio::test]
async fn gw_05_a_caller_over_http_2_that_goes_away_is_settled() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Full<Bytes>>();
    let call = async |fault: &str| {
        let uri = format!("http://{}{}", test.server.addr(), Operation::Chat.path());
        let body = Operation::Chat.body(true).to_string();
        let request = Request::post(uri).header("x-mock-fault", fault).body(Full::from(body));
        client.request(request.unwrap()).await.unwrap()
    };
    let mut stalled = call("stall").await;
    assert_eq!(stalled.version(), Version::HTTP_2);
    stalled.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(test.server.memory.open_leases(), 1);
    drop(stalled);
    let (requests, _, _) = test.settled(Operation::Chat).await;
    assert_eq!(requests, 1);
    eventually("the provider's call is cancelled", async || {
        test.mock.calls()[0].ended == CallEnd::ClientGone
    })
    .await;
    let whole = whole(call("no-usage").await).await;
    assert!(whole.body.ends_with("data: [DONE]\n\n"), "{whole:?}");
}

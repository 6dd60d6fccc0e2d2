//! DEF-08: definitions survive a restart; one that cannot be stored is not applied.

use ratelimiter_wire::read_limits_file;
use testkit::eventually;

use crate::harness::{KEY, TestServer, limits_path};

#[tokio::test]
async fn def_08_definitions_survive_a_restart_a_decrease_included() {
    let server = TestServer::start().await;
    server.define_rolling("a", 7).await;
    server.define_rolling(KEY, 10).await;
    server.reserve(1, &[(KEY, 8)]).await;
    server.define_rolling(KEY, 5).await;
    let file = std::fs::read_to_string(limits_path(&server.folder)).unwrap();
    assert!(
        file.contains("\"status\": \"decreasing\"") && file.contains("\"pending_decrease_to\": 5"),
        "{file}"
    );
    let server = server.restart().await;
    let limits = server.get("/v1/admin/limits").await.json()["limits"].clone();
    assert_eq!(limits.as_array().unwrap().len(), 2);
    // The restart lost the reservations, so the decrease fits.
    eventually("the decrease is applied", async || {
        let limit = server.get(&format!("/v1/admin/limits/{KEY}")).await.json()["limit"].clone();
        limit["capacity"] == 5 && limit["status"] == "active"
    })
    .await;
}

#[tokio::test]
async fn def_08_a_deletion_survives_a_restart() {
    let server = TestServer::start().await;
    server.define_rolling("a", 7).await;
    server.define_rolling("b", 7).await;
    server.request("DELETE", "/v1/admin/limits/a", "", "").await;
    let server = server.restart().await;
    let limits = server.get("/v1/admin/limits").await.json()["limits"].clone();
    assert_eq!(limits.as_array().unwrap().len(), 1);
}

/// DEF-07, DEF-08: without traffic.
#[tokio::test]
async fn def_07_def_08_a_decrease_ends_without_traffic_in_force_and_on_disk() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 10).await;
    server.reserve(1, &[(KEY, 8)]).await;
    server.define_rolling(KEY, 5).await;
    let path = limits_path(&server.folder);
    let capacity = || {
        let registry = read_limits_file(&std::fs::read(&path).unwrap()).unwrap();
        registry.iter().next().unwrap().limit.capacity.get()
    };
    assert_eq!(capacity(), 10);
    server.clock.advance(std::time::Duration::from_secs(60));
    eventually("the file follows", async || capacity() == 5).await;
    let limit = server.get(&format!("/v1/admin/limits/{KEY}")).await.json()["limit"].clone();
    assert_eq!((&limit["capacity"], &limit["status"]), (&5.into(), &"active".into()));
}

/// DEF-07: a decrease that fits at once is never shown as decreasing, also not on disk.
#[tokio::test]
async fn def_07_a_decrease_into_free_room_is_on_disk_at_once() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 10).await;
    assert_eq!(server.define_rolling(KEY, 5).await.json()["status"], "active");
    let file = std::fs::read_to_string(limits_path(&server.folder)).unwrap();
    assert!(file.contains("\"capacity\": 5") && !file.contains("decreasing"), "{file}");
}

/// DEF-08: the folder of the limits file was replaced by a file.
#[tokio::test]
async fn def_08_a_change_that_cannot_be_stored_is_not_applied() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 10).await;
    let folder = limits_path(&server.folder).parent().unwrap().to_owned();
    let aside = server.folder.path().join("aside");
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::write(&folder, "a file").unwrap();
    for body in [
        format!(r#"{{"key":"{KEY}","kind":"rolling","capacity":20,"window_seconds":60}}"#),
        r#"{"key":"new","kind":"rolling","capacity":20,"window_seconds":60}"#.to_owned(),
    ] {
        let answer = server.put(&body).await;
        assert_eq!(answer.line(), r#"503 {"error":"backend_error","ok":false}"#);
        assert!(answer.body.contains("the registry cannot be written"), "{}", answer.body);
    }
    let answer = server.request("DELETE", &format!("/v1/admin/limits/{KEY}"), "", "").await;
    assert_eq!(answer.line(), r#"503 {"error":"backend_error","ok":false}"#);
    let limits = server.get("/v1/admin/limits").await.json()["limits"].clone();
    assert_eq!((limits.as_array().unwrap().len(), &limits[0]["capacity"]), (1, &10.into()));

    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    assert_eq!(
        server.define_rolling(KEY, 20).await.status,
        200,
        "when the disk is back, so is the server"
    );
    let server = server.restart().await;
    assert_eq!(
        server.get(&format!("/v1/admin/limits/{KEY}")).await.json()["limit"]["capacity"],
        20
    );
}

/// DEF-08: a change completes even if the client disconnects.
#[tokio::test]
async fn def_08_a_change_completes_after_its_caller_disconnects() {
    use tokio::io::AsyncWriteExt;
    let server = TestServer::start().await;
    for capacity in 1..=20 {
        let body = format!(
            r#"{{"key":"{KEY}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#
        );
        let length = body.len();
        let request = format!(
            "PUT /v1/admin/limits HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let mut stream = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        drop(stream);
    }
    // Whichever of them arrived, backend and file agree.
    server.define_rolling("last", 1).await;
    let registry = read_limits_file(&std::fs::read(limits_path(&server.folder)).unwrap()).unwrap();
    for registered in registry.iter() {
        let key = &registered.limit.key;
        let state = server.get(&format!("/v1/admin/limits/{key}")).await.json();
        assert_eq!(state["limit"]["capacity"], registered.limit.capacity.get(), "{key}");
    }
}

//! Redis servers for tests: their life, their files, their replies.
//!
//! Without a server binary the tests count as ignored.

#![allow(clippy::unwrap_used, missing_docs, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

use testkit::redis::{Fixture, Persistence, TestRedis, suite};
use testkit::{eventually, run};

/// Names each test after its function.
macro_rules! suite {
    ($name:literal: $($test:ident),* $(,)?) => {
        suite($name)$(.test(stringify!($test), $test))*
    };
}

fn main() -> ExitCode {
    suite!("testkit":
        a_shared_server_is_the_same_for_all_tests,
        an_error_is_text,
        arguments_reach_the_server,
        debug_commands_are_allowed,
        persistence_is_what_was_asked_for,
        data_outlives_a_kill_if_each_answer_is_synced,
        without_persistence_a_kill_loses_all_data,
        a_paused_server_stops_and_goes_on,
        a_taken_port_is_noticed,
        a_replica_has_the_data_of_its_primary_and_can_become_one,
        a_replica_whose_link_is_cut_keeps_what_it_has,
        a_dropped_server_is_gone_with_its_files,
    )
    .run()
}

fn a_shared_server_is_the_same_for_all_tests(fixture: &Fixture) {
    let server = fixture.shared();
    assert_eq!(server.command(&["PING"]), "PONG");
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.addr().port()));
    assert_eq!(fixture.shared().addr(), server.addr());
}

fn an_error_is_text(fixture: &Fixture) {
    let reply = fixture.shared().command(&["EVALSHA", "no such script", "0"]);
    assert!(reply.starts_with("-NOSCRIPT "), "{reply}");
}

fn arguments_reach_the_server(_: &Fixture) {
    let server = TestRedis::start_with(Persistence::None, &["--requirepass", "secret"]);
    let reply = server.command(&["PING"]);
    assert!(reply.starts_with("-NOAUTH "), "{reply}");
    let server = TestRedis::start_with(Persistence::None, &["--maxmemory", "10mb"]);
    assert_eq!(setting(&server, "maxmemory"), "10485760");
}

fn debug_commands_are_allowed(fixture: &Fixture) {
    assert_eq!(fixture.shared().command(&["DEBUG", "SLEEP", "0"]), "OK");
}

fn persistence_is_what_was_asked_for(_: &Fixture) {
    let cases = [
        (Persistence::None, "no", None),
        (Persistence::AofAlways, "yes", Some("always")),
        (Persistence::AofEverySecond, "yes", Some("everysec")),
    ];
    for (persistence, appendonly, appendfsync) in cases {
        let server = TestRedis::start(persistence);
        assert_eq!(setting(&server, "appendonly"), appendonly);
        assert_eq!(setting(&server, "save"), "");
        if let Some(appendfsync) = appendfsync {
            assert_eq!(setting(&server, "appendfsync"), appendfsync);
        }
    }
}

fn data_outlives_a_kill_if_each_answer_is_synced(_: &Fixture) {
    assert_eq!(value_after_a_kill(Persistence::AofAlways), "value");
}

fn without_persistence_a_kill_loses_all_data(_: &Fixture) {
    assert_eq!(value_after_a_kill(Persistence::None), "(nil)");
}

fn value_after_a_kill(persistence: Persistence) -> String {
    let mut server = TestRedis::start(persistence);
    let addr = server.addr();
    assert_eq!(server.command(&["SET", "key", "value"]), "OK");
    server.kill();
    server.restart();
    assert_eq!(server.addr(), addr);
    server.command(&["GET", "key"])
}

fn a_paused_server_stops_and_goes_on(_: &Fixture) {
    let server = TestRedis::start(Persistence::None);
    let stat = process_folder(&server).join("stat");
    server.pause();
    run(eventually("the server stops", async || {
        fs::read_to_string(&stat).unwrap().contains(") T ")
    }));
    server.resume();
    assert_eq!(server.command(&["PING"]), "PONG");
}

fn a_taken_port_is_noticed(_: &Fixture) {
    let mut server = TestRedis::start(Persistence::None);
    server.kill();
    let _taker = TcpListener::bind(server.addr()).unwrap();
    assert!(!server.try_restart());
}

fn a_replica_has_the_data_of_its_primary_and_can_become_one(_: &Fixture) {
    run(async {
        let mut primary = TestRedis::start(Persistence::None);
        assert_eq!(primary.command(&["SET", "key", "value"]), "OK");
        let replica = primary.start_replica(Persistence::None).await;
        assert_ne!(primary.replication("master_repl_offset"), "0", "something was sent");
        assert_eq!(primary.command(&["SET", "key", "later"]), "OK");
        replica.catch_up(&primary).await;
        assert_eq!(replica.command(&["GET", "key"]), "later");
        let reply = replica.command(&["SET", "key", "value"]);
        assert!(reply.starts_with("-READONLY "), "{reply}");
        primary.kill();
        replica.promote();
        assert_eq!(replica.replication("role"), "master");
        assert_eq!(replica.command(&["GET", "key"]), "later");
        assert_eq!(replica.command(&["SET", "key", "value"]), "OK");
        // It can have a replica in its turn.
        let next = replica.start_replica(Persistence::None).await;
        assert_eq!(next.command(&["GET", "key"]), "value");
    });
}

fn a_replica_whose_link_is_cut_keeps_what_it_has(_: &Fixture) {
    run(async {
        let primary = TestRedis::start(Persistence::None);
        let replica = primary.start_replica(Persistence::None).await;
        assert_eq!(primary.command(&["SET", "key", "before"]), "OK");
        replica.catch_up(&primary).await;
        replica.cut_replication();
        let is_alone = async || primary.replication("connected_slaves") == "0";
        eventually("the primary is alone", is_alone).await;
        assert_eq!(primary.command(&["SET", "key", "after"]), "OK");
        assert_eq!(replica.command(&["GET", "key"]), "before");
        assert_eq!(replica.replication("role"), "slave");
        replica.follow(&primary).await;
        assert_eq!(replica.command(&["GET", "key"]), "after");
    });
}

fn a_dropped_server_is_gone_with_its_files(_: &Fixture) {
    let server = TestRedis::start(Persistence::AofAlways);
    let (process, files) = (process_folder(&server), PathBuf::from(setting(&server, "dir")));
    assert!(process.exists() && files.join("appendonlydir").exists());
    server.pause();
    drop(server);
    assert!(!process.exists(), "a paused server is ended too");
    assert!(!files.exists());
}

fn setting(server: &TestRedis, name: &str) -> String {
    let reply = server.command(&["CONFIG", "GET", name]);
    reply.split_once('\n').unwrap().1.to_owned()
}

fn process_folder(server: &TestRedis) -> PathBuf {
    PathBuf::from(format!("/proc/{}", server.process().id()))
}

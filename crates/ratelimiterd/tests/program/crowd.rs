//! Many idle connections and clients that never read: others are served, and memory is bounded.
//!
//! `RATELIMITER_FAULTS=long` opens 10 000 idle and 1 000 slow connections, for which `ulimit -n` must be 12 000 or more.

use std::io::{Read, Write};
use std::net::TcpStream;

use ratelimiter::clock::{Clock, MonotonicClock};
use testkit::{eventually, run};

use crate::process::{Process, program};

const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n";
/// Far more than a connection with its buffered request and response needs.
const MEMORY_EACH_KIB: u64 = 256;

fn is_long() -> bool {
    std::env::var("RATELIMITER_FAULTS").is_ok_and(|form| form == "long")
}

/// A field of `/proc/<id>/status` in KiB.
fn memory_kib(server: &Process) -> u64 {
    let path = format!("/proc/{}/status", server.id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn open_files(server: &Process) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count()
}

/// A connection that sends one request and is silent afterwards.
fn idle(server: &Process) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr).unwrap();
    stream.write_all(ASK).unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    stream
}

/// A connection that requests more than the buffers of both ends hold, and reads nothing.
fn slow(server: &Process) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr).unwrap();
    let ask = b"GET /openapi.json HTTP/1.1\r\nhost: t\r\n\r\n".repeat(300);
    stream.write_all(&ask).unwrap();
    stream
}

#[test]
fn idle_and_slow_connections_do_not_affect_others() {
    let (idle_count, slow_count) = if is_long() { (10_000, 1_000) } else { (400, 50) };
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command
        .args(["--listen", "127.0.0.1:0"])
        .env("RATELIMITER_SERVER__CONNECTIONS_MAX", "12000")
        .env("RATELIMITER_SERVER__HEADER_READ_TIMEOUT_MS", "600000")
        .env("RATELIMITER_SERVER__WRITE_TIMEOUT_MS", "600000");
    let server = Process::start_as(command, folder.path());
    assert_eq!(server.put("k", 1).unwrap().0, 200);
    let (files_before, memory_before) = (open_files(&server), memory_kib(&server));
    let slow: Vec<_> = (0..slow_count).map(|_| slow(&server)).collect();
    let idle: Vec<_> = (0..idle_count).map(|_| idle(&server)).collect();
    let clock = MonotonicClock::new();
    let begun = clock.now();
    for capacity in 2..12 {
        assert_eq!(server.put("k", capacity).unwrap().0, 200, "the others are served");
    }
    let took = clock.now().since(begun) / 10;
    let memory = memory_kib(&server) - memory_before;
    let count = idle_count + slow_count;
    println!(
        "{idle_count} idle and {slow_count} slow connections: {memory} KiB, a definition takes {took:?}"
    );
    assert!(memory < count * MEMORY_EACH_KIB, "{memory} KiB for {count} connections");
    drop((idle, slow));
    let are_closed = async || open_files(&server) <= files_before;
    run(eventually("their connections are closed", are_closed));
    assert_eq!(server.ask("GET", "/healthz", "").unwrap().0, 200);
}

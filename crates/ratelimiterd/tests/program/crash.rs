//! DEF-08: a crash at any moment leaves the old or the new limits file.

use std::time::Duration;

use ratelimiter_wire::read_limits_file;
use testkit::RunSeed;

use crate::process::Process;

/// Number of kills.
const ROUNDS: u64 = 40;

/// DEF-08: the server is killed at random points of many PUTs. The file then holds the last capacity that was answered, or the
/// one that was being put, and a server that starts on it reports the same.
#[test]
fn def_08_a_kill_at_any_moment_leaves_the_old_or_the_new_file() {
    if let Ok(seed) = std::env::var("RATELIMITER_TEST_SEED") {
        return kill_at_any_moment(seed.parse().unwrap(), ROUNDS);
    }
    // A fixed seed; the timing of the machine adds enough variation.
    kill_at_any_moment(1, ROUNDS);
    let own = RunSeed::for_command("cargo test -p ratelimiterd --test program def_08");
    for seed in own.seeds(1) {
        kill_at_any_moment(seed, ROUNDS / 4);
    }
}

#[expect(clippy::print_stdout, reason = "who repeats the run needs its seed")]
fn kill_at_any_moment(seed: u64, rounds: u64) {
    println!("RATELIMITER_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/limits.json");
    let mut answered = 0;
    let mut puts_cut_short = 0;
    for _ in 0..rounds {
        let server = Process::start(folder.path());
        if let Some(on_disk) = capacity_on_disk(&path) {
            let (_, state) = server.ask("GET", "/v1/admin/limits/k", "").unwrap();
            assert!(state.contains(&format!("\"capacity\":{on_disk},")), "{state} / {on_disk}");
            answered = on_disk;
        }
        let after = Duration::from_micros(random.u64(0..30_000));
        let mut putting = answered;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Not a wait for a condition: the random moment is the point.
                std::thread::park_timeout(after);
                server.signal("KILL");
            });
            loop {
                putting += 1;
                match server.put("k", putting) {
                    Some((200, _)) => answered = putting,
                    Some(other) => panic!("{other:?}"),
                    None => break,
                }
            }
        });
        server.wait();
        let on_disk = capacity_on_disk(&path).unwrap_or(0);
        assert!(
            on_disk == answered || on_disk == putting,
            "{on_disk}, not {answered} or {putting}"
        );
        puts_cut_short += u64::from(on_disk == putting);
    }
    println!(
        "{rounds} kills, {answered} definitions kept, {puts_cut_short} kept without an answer"
    );
}

/// If the file exists, it must be complete.
fn capacity_on_disk(path: &std::path::Path) -> Option<u64> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        read => read.unwrap(),
    };
    let registry = read_limits_file(&bytes).unwrap();
    let mut capacities = registry.iter().map(|registered| registered.limit.capacity.get());
    Some(capacities.next().expect("one limit"))
}

//! stub
use simulation::run::{Until, run};
use simulation::worlds::{MemoryWorld, TigerBeetleWorld};
#[allow(clippy::print_stdout)]
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let first: u64 = args.get(2).map_or(0, |s| s.parse().unwrap());
    let n: u64 = args.get(3).map_or(200, |s| s.parse().unwrap());
    let s = if args[1] == "memory" { run(&MemoryWorld { flaw: None }, first, Until::Seeds(n)) } else { run(&TigerBeetleWorld { flaw: None }, first, Until::Seeds(n)) };
    println!("{} seeds {} requests {} checks {} faults {:?}", s.seeds, s.requests, s.checks, s.faults.total(), s.took);
    if let Some(f) = s.failure { println!("seed {} {:?}\n{}", f.seed, f.events, f.trace); }
}

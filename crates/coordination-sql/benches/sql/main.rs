//! Benchmarks of the SQL providers against a baseline in the same run.
//!
//! `cargo bench -p coordination-sql`; with an argument only the parts whose name contains it:
//! `end-to-end`, `growth`, `sqlite`, `wake`. PostgreSQL is a private cluster. Contestants take
//! turns; the median is shown with the 10th and 90th percentile. Nothing asserts a time: read the
//! ratio. `docs/performance/coordination.md` has results.

#![allow(missing_docs, reason = "a benchmark is a program")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

mod bare;
mod end_to_end;
mod growth;
mod queue;
mod rounds;
mod sqlite;
mod wake;

use testkit::postgres::{Durability, TestCluster, find_binaries};

fn main() {
    // Cargo adds `--bench`.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let is_wanted =
        |part: &str| wanted.as_ref().is_none_or(|wanted| part.contains(wanted.as_str()));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    if is_wanted("sqlite") {
        runtime.block_on(sqlite::run());
    }
    if is_wanted("growth") {
        runtime.block_on(growth::on_sqlite());
    }
    if find_binaries().is_none() {
        println!("no installed PostgreSQL server: the rest was not measured");
        return;
    }
    for durability in [Durability::ServerCrash, Durability::PowerCut] {
        if is_wanted("end-to-end") {
            let cluster = TestCluster::start(durability);
            runtime.block_on(end_to_end::run(&cluster, durability));
        }
    }
    if is_wanted("wake") {
        let cluster = TestCluster::start(Durability::ServerCrash);
        runtime.block_on(wake::run(&cluster));
    }
    if is_wanted("growth") {
        let cluster = TestCluster::start(Durability::ServerCrash);
        runtime.block_on(growth::on_postgres(&cluster));
    }
}

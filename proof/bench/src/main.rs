//! The program; see the library.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// The allocator of `ratelimiterd`, for every contestant.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    bench::run()
}

//! The program. All it does is in the library.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// That of `ratelimiterd`, for every contestant.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    bench::run()
}

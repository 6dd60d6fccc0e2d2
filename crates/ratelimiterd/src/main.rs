//! The `ratelimiterd` program; see the library.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A batch makes hundreds of small allocations, for which mimalloc is faster than the system's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ratelimiterd::cli::run()
}

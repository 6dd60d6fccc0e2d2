//! The program. All it does is in the library.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A batch takes and gives back hundreds of small pieces of memory, which this one does faster than the system's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ratelimiterd::cli::run()
}

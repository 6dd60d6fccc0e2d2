//! Location of the server's binary.

use std::env;
use std::path::{Path, PathBuf};

/// Environment variable with the path of the server's binary, if it is not the `tigerbeetle` on the
/// `PATH`.
pub const BINARY_VARIABLE: &str = "TIGERBEETLE_BIN";

/// The server's binary: `TIGERBEETLE_BIN`, else `tigerbeetle` on the `PATH`.
pub fn find_binary() -> Option<PathBuf> {
    let named = env::var_os(BINARY_VARIABLE).map(PathBuf::from);
    named.or_else(|| find_in(&env::var_os("PATH")?)).filter(|path| path.is_file())
}

fn find_in(path: &std::ffi::OsStr) -> Option<PathBuf> {
    let candidates = env::split_paths(path).map(|directory| directory.join("tigerbeetle"));
    candidates.into_iter().find(|candidate| Path::is_file(candidate))
}

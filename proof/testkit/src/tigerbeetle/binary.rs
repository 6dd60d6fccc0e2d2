//! Location of the server's binary.

use std::path::PathBuf;

use crate::binary;

/// Environment variable with the path of the server's binary, if it is not the `tigerbeetle` on the
/// `PATH`.
pub const BINARY_VARIABLE: &str = "TIGERBEETLE_BIN";

/// The server's binary: `TIGERBEETLE_BIN`, else `tigerbeetle` on the `PATH`.
pub fn find_binary() -> Option<PathBuf> {
    binary::find(BINARY_VARIABLE, &["tigerbeetle"])
}

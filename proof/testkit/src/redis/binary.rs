//! Location of the server's binary.

use std::path::PathBuf;

use crate::binary;

/// Environment variable with the path of the server's binary, if it is not on the `PATH`.
pub const BINARY_VARIABLE: &str = "REDIS_SERVER_BIN";

/// The server's binary: `REDIS_SERVER_BIN`, else `redis-server` or `valkey-server` on the `PATH`.
pub fn find_binary() -> Option<PathBuf> {
    binary::find(BINARY_VARIABLE, &["redis-server", "valkey-server"])
}

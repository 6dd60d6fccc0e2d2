//! The I/O errors inside those of the client.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::RedisError;

/// The server has closed the connection. The client's own `is_connection_dropped` also holds for errors that never had one.
pub(crate) fn is_hung_up(error: &RedisError) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    io_error_in(error).is_some_and(|error| {
        matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
    })
}

pub(crate) fn io_error_in(error: &RedisError) -> Option<&io::Error> {
    error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?.downcast_ref()
}

//! The one server that the tests of a process share.

use std::env;
use std::sync::{Mutex, PoisonError};

use super::cluster::{Durability, TestCluster};

/// Names the database to test with. Its user must be allowed to make schemas.
pub const URL_VARIABLE: &str = "DATABASE_URL";

static CLUSTER: Mutex<Option<TestCluster>> = Mutex::new(None);

/// Where the tests of this process connect: `DATABASE_URL`, else a private cluster that is started
/// when it is first asked for and ends with the process.
///
/// # Panics
/// With neither a `DATABASE_URL` nor an installed server, or when the server does not start.
pub fn server_url() -> String {
    given_url().unwrap_or_else(|| {
        let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.get_or_insert_with(|| TestCluster::start(Durability::ServerCrash)).url()
    })
}

pub(super) fn given_url() -> Option<String> {
    env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty())
}

/// Stops the private cluster when it is dropped, if there is one, and waits until it has gone.
#[derive(Debug)]
pub struct PrivateCluster;

impl Drop for PrivateCluster {
    fn drop(&mut self) {
        drop(CLUSTER.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

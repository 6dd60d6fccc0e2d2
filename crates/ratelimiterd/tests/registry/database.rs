//! The database under test.

use tempfile::TempDir;
use testkit::Proxy;

/// A registry of a test's own in a database. What is special to one kind of database is not here.
pub trait Database: Sized {
    /// How its URLs begin.
    const SCHEME: &'static str;

    /// On a server that other tests may share.
    async fn new() -> Self;

    /// On a server of the test's own, which can be crashed.
    async fn on_own_server() -> Self;

    /// The URL of the registry, for the connection of a server with this name.
    fn url(&self, name: &str) -> String;

    /// The same for a user of that name, who is created. Only on a server of the test's own.
    async fn url_of_user(&self, user: &str) -> String;

    /// The same through a proxy. Only on a server of the test's own.
    fn behind_proxy(&self) -> Proxied;

    /// Ends the connections of a user, who cannot connect any more.
    async fn lock_out(&self, user: &str);

    async fn let_in(&self, user: &str);

    /// Makes a server with this name lose the lock of its change.
    async fn take_lock_from(&self, name: &str);

    /// Ends the ownership of servers that were killed or cut off, if it would last for a while.
    async fn end_ownership(&self) {}

    fn crash(&mut self);

    fn start_again(&mut self);

    /// Whether nothing was ever stored.
    async fn is_untouched(&self) -> bool;

    async fn document(&self) -> String;

    async fn version(&self) -> i64;

    async fn is_staged(&self) -> bool;

    /// As a person would do it.
    async fn write_by_hand(&self, document: &str);

    async fn damage(&self, damage: Damage);

    async fn back_up(&self);

    /// As of the backup.
    async fn restore(&self);
}

/// What may happen to a document.
#[derive(Debug, Clone, Copy)]
pub enum Damage {
    Unreadable,
    NoText,
    Nothing,
}

/// A registry behind a proxy.
pub struct Proxied {
    pub proxy: Proxy,
    pub url: String,
    /// The socket, if it is one in a folder.
    pub _folder: Option<TempDir>,
}

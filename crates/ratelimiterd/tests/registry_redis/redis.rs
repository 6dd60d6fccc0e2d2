//! Redis: a server of each test's own.

use testkit::Proxy;
use testkit::redis::{Persistence, TestRedis};

use crate::registry::database::{Damage, Database, Proxied};

/// The keys of a registry with the default prefix.
pub const DOCUMENT: &str = "{ratelimiter}:document";
pub const STAGED: &str = "{ratelimiter}:document:staged";
pub const OWNERS: &str = "{ratelimiter}:document:owners";
pub const CHANGE: &str = "{ratelimiter}:document:change";
pub const WAITING: &str = "{ratelimiter}:document:waiting";
const BACKUP: &str = "backup";

pub struct RedisDatabase {
    pub redis: TestRedis,
}

impl RedisDatabase {
    pub fn start(persistence: Persistence, arguments: &[&str]) -> Self {
        Self { redis: TestRedis::start_with(persistence, arguments) }
    }

    /// Sends a command that succeeds.
    pub fn command(&self, words: &[&str]) -> String {
        let answer = self.redis.command(words);
        let is_error = answer.strip_prefix('-').is_some_and(|rest| rest.parse::<u64>().is_err());
        assert!(!is_error, "{words:?}: {answer}");
        answer
    }

    /// The key with the lock of the only server that owns the registry.
    pub fn owner_key(&self) -> String {
        format!("{{ratelimiter}}:document:owner:{}", self.command(&["HKEYS", OWNERS]))
    }

    /// The connections that are idle longest first: for how many seconds, and their IDs.
    pub fn idle_clients(&self) -> Vec<(u64, String)> {
        let field = |line: &str, name: &str| {
            line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap().to_owned()
        };
        let list = self.command(&["CLIENT", "LIST"]);
        let clients = list.lines().filter(|line| line.starts_with("id="));
        let mut clients: Vec<_> = clients
            .map(|line| (field(line, "idle=").parse().unwrap(), field(line, "id=")))
            .collect();
        clients.sort_by(|one, other| other.cmp(one));
        clients
    }

    /// How many keys have ended with their TTL.
    pub fn expired_keys(&self) -> String {
        self.stat("stats", "expired_keys:")
    }

    /// How many scripts have run.
    pub fn script_calls(&self) -> u64 {
        let calls = self.stat("commandstats", "cmdstat_evalsha:calls=");
        calls.split(',').next().unwrap().parse().unwrap()
    }

    fn stat(&self, section: &str, name: &str) -> String {
        let info = self.command(&["INFO", section]);
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0").trim().to_owned()
    }

    pub fn exists(&self, key: &str) -> bool {
        self.command(&["EXISTS", key]) == "1"
    }
}

impl Database for RedisDatabase {
    const SCHEME: &'static str = "redis://";

    async fn new() -> Self {
        Self::start(Persistence::None, &[])
    }

    async fn on_own_server() -> Self {
        Self::start(Persistence::AofAlways, &[])
    }

    /// Redis does not name connections.
    fn url(&self, _: &str) -> String {
        self.redis.url()
    }

    async fn url_of_user(&self, user: &str) -> String {
        self.command(&["ACL", "SETUSER", user, "on", ">s3cret", "~*", "&*", "+@all"]);
        format!("redis://{user}:s3cret@{}", self.redis.addr())
    }

    fn behind_proxy(&self) -> Proxied {
        let (addr, proxy) = Proxy::tcp(self.redis.addr());
        Proxied { proxy, url: format!("redis://{addr}"), _folder: None }
    }

    async fn lock_out(&self, user: &str) {
        self.command(&["ACL", "SETUSER", user, "off"]);
        self.command(&["CLIENT", "KILL", "USER", user]);
    }

    async fn let_in(&self, user: &str) {
        self.command(&["ACL", "SETUSER", user, "on"]);
    }

    async fn take_lock_from(&self, _: &str) {
        self.command(&["DEL", CHANGE]);
    }

    /// Deletes the locks, which last two minutes in these tests.
    async fn end_ownership(&self) {
        self.command(&["DEL", OWNERS, CHANGE]);
    }

    fn crash(&mut self) {
        self.redis.kill();
    }

    fn start_again(&mut self) {
        self.redis.restart();
    }

    async fn is_untouched(&self) -> bool {
        self.command(&["DBSIZE"]) == "0"
    }

    async fn document(&self) -> String {
        self.command(&["HGET", DOCUMENT, "text"])
    }

    async fn version(&self) -> i64 {
        self.command(&["HGET", DOCUMENT, "version"]).parse().unwrap_or(0)
    }

    async fn is_staged(&self) -> bool {
        self.exists(STAGED)
    }

    async fn write_by_hand(&self, document: &str) {
        self.command(&["HSET", DOCUMENT, "text", document]);
        self.command(&["HDEL", DOCUMENT, "written_as"]);
        self.command(&["HINCRBY", DOCUMENT, "version", "1"]);
    }

    async fn damage(&self, damage: Damage) {
        match damage {
            Damage::Unreadable => self.write_by_hand("[ {").await,
            Damage::NoText => {
                self.command(&["HDEL", DOCUMENT, "text"]);
            }
            Damage::Nothing => {
                self.command(&["DEL", DOCUMENT]);
            }
        }
    }

    async fn back_up(&self) {
        self.command(&["COPY", DOCUMENT, BACKUP]);
    }

    async fn restore(&self) {
        self.command(&["COPY", BACKUP, DOCUMENT, "REPLACE"]);
    }
}

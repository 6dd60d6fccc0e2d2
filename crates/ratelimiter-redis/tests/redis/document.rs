//! The document in which other backends keep their definitions (`REG-01`).

use std::sync::Arc;

use ratelimiter::Backend;
use ratelimiter_redis::{
    DocumentAccess, DocumentError, DocumentLock, DocumentPeek, Ownership, RedisConfig,
    RedisDocument, RedisSettings,
};
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::{Suite, eventually, run};

use crate::calls::rolling;
use crate::context::{ANSWER_MS, TestContext, Time};

/// Keys without the prefix.
const DOCUMENT: &str = "document";
const STAGED: &str = "document:staged";
const OWNERS: &str = "document:owners";
const CHANGE: &str = "document:change";
const WAITING: &str = "document:waiting";

/// Adds the tests of this file, each named after its function.
pub fn add_to(mut tests: Suite<Fixture>) -> Suite<Fixture> {
    macro_rules! add {
        ($($test:ident,)+) => {
            $(tests = tests.test(stringify!($test), $test);)+
        };
    }
    add! {
        reg_01_a_document_is_replaced_in_two_steps,
        reg_01_nothing_is_written_with_a_lock_that_was_lost,
        reg_01_a_lost_lock_is_noticed,
        reg_01_locks_are_extended,
        reg_01_an_earlier_lock_of_the_same_server_ends,
        reg_01_ops_06_a_document_has_one_owner_or_several_that_share_it,
        reg_01_ops_06_an_owner_does_not_shorten_the_ownership_of_others,
        reg_01_who_finds_the_document_locked_is_next,
        reg_01_rds_06_a_full_redis_takes_no_text_and_commits_what_is_staged,
        reg_01_a_text_that_is_not_utf_8_is_reported,
        reg_01_rds_04_a_document_and_a_limiter_with_one_prefix_do_not_meet,
    }
    tests
}

/// A document of a test's own.
struct TestDocument<'r> {
    redis: &'r TestRedis,
    context: TestContext,
}

impl<'r> TestDocument<'r> {
    fn on(redis: &'r TestRedis) -> Self {
        Self { redis, context: TestContext::new(redis, Time::Real) }
    }

    /// A server's view of it.
    fn server(&self) -> Arc<RedisDocument> {
        document_at(&self.redis.url(), self.context.prefix())
    }

    /// That of a server whose locks end sooner.
    fn impatient_server(&self) -> Arc<RedisDocument> {
        document_with(&self.redis.url(), self.context.prefix(), ANSWER_MS / 3)
    }

    /// A command on one of its keys.
    fn command(&self, name: &str, key: &str, rest: &[&str]) -> String {
        let key = format!("{{{}}}:{key}", self.context.prefix());
        self.redis.command(&[&[name, key.as_str()], rest].concat())
    }

    /// All that writes can change.
    fn content(&self) -> [String; 2] {
        [DOCUMENT, STAGED].map(|key| self.command("HGETALL", key, &[]))
    }

    /// The key with the lock of the only owner.
    fn owner_key(&self) -> String {
        let owners = self.command("HGETALL", OWNERS, &[]);
        format!("document:owner:{}", owners.lines().next().unwrap())
    }
}

pub fn document_at(url: &str, prefix: &str) -> Arc<RedisDocument> {
    document_with(url, prefix, ANSWER_MS)
}

fn document_with(url: &str, prefix: &str, request_timeout_ms: u64) -> Arc<RedisDocument> {
    let prefix = prefix.to_owned();
    let settings = RedisSettings { prefix, request_timeout_ms, ..RedisSettings::new(url) };
    RedisDocument::new(RedisConfig::new(&settings).unwrap())
}

async fn own(document: &Arc<RedisDocument>, access: DocumentAccess) -> Option<DocumentLock> {
    match document.own(access, "PID 1 on a").await.unwrap() {
        Ownership::Owned(lock) => Some(lock),
        Ownership::InUse { .. } => None,
    }
}

/// Owns and locks a document.
async fn lock(document: &Arc<RedisDocument>) -> [DocumentLock; 2] {
    let owner = own(document, DocumentAccess::Shared).await.unwrap();
    [owner, document.try_lock().await.unwrap().unwrap()]
}

async fn replace(document: &RedisDocument, text: &str) -> Result<(), DocumentError> {
    let staged = document.stage(text, &document.held_locks()).await?;
    document.commit(staged, &document.held_locks()).await
}

/// Every operation on a document.
pub async fn every_operation(document: &Arc<RedisDocument>) {
    let locks = lock(document).await;
    replace(document, "one").await.unwrap();
    let held = document.held_locks();
    let staged = document.stage("two", &held).await.unwrap();
    let content = document.read().await.unwrap();
    let (version, text) = content.document.unwrap();
    assert_eq!((version.number, text.as_str()), (1, "one"));
    assert!(document.is_own(&version.written_as.clone().unwrap()));
    assert_eq!(content.staged, Some((staged.name().to_owned(), "two".to_owned())));
    let staged_as = Some(staged.name().to_owned());
    let version = Some(version);
    let peeked = DocumentPeek { version: version.clone(), staged_as };
    assert_eq!(document.peek().await, Ok(peeked));
    document.discard(Some("another"), &held).await.unwrap();
    document.discard(Some(staged.name()), &held).await.unwrap();
    assert_eq!(document.peek().await, Ok(DocumentPeek { version, staged_as: None }));
    let gone = document.commit(staged, &held).await;
    assert_eq!(gone, Err(DocumentError::Changed), "it is not staged any more");
    assert!(locks.iter().all(DocumentLock::is_held));
    document.release_all().await;
    assert!(!locks.iter().any(DocumentLock::is_held));
}

/// REG-01
pub fn reg_01_a_document_is_replaced_in_two_steps(servers: &Fixture) {
    run(async {
        let test = TestDocument::on(servers.shared());
        every_operation(&test.server()).await;
        let names = test.context.names(servers.shared());
        assert_eq!(names, [format!("{{{}}}:document", test.context.prefix())], "and no lock");
        assert_eq!(test.command("PTTL", DOCUMENT, &[]), "-1", "it never expires");
    });
}

/// REG-01: whatever took the lock away.
pub fn reg_01_nothing_is_written_with_a_lock_that_was_lost(servers: &Fixture) {
    run(async {
        for at in 0..3 {
            let test = TestDocument::on(servers.shared());
            let document = test.server();
            let locks = lock(&document).await;
            replace(&document, "one").await.unwrap();
            let staged = document.stage("two", &document.held_locks()).await.unwrap();
            let (before, held) = (test.content(), document.held_locks());
            let lost = [CHANGE.to_owned(), OWNERS.to_owned(), test.owner_key()];
            match at {
                0 => test.command("SET", &lost[at], &["another"]),
                _ => test.command("DEL", &lost[at], &[]),
            };
            // The tokens of before, as of a server that was paused.
            let lost = Err(DocumentError::LockLost);
            assert_eq!(document.commit(staged, &held).await, lost);
            assert_eq!(document.stage("three", &held).await.map(drop), lost);
            assert_eq!(document.discard(None, &held).await, lost);
            assert_eq!(document.discard(None, &document.held_locks()).await, lost, "without one");
            assert_eq!(test.content(), before);
            assert!(!locks.iter().any(DocumentLock::is_held), "it knows");
        }
    });
}

/// REG-01: nobody writes, and it notices all the same.
pub fn reg_01_a_lost_lock_is_noticed(servers: &Fixture) {
    run(async {
        let test = TestDocument::on(servers.shared());
        let document = test.server();
        let [owner, change] = lock(&document).await;
        test.command("DEL", CHANGE, &[]);
        document.peek().await.unwrap();
        assert!(owner.is_held() && !change.is_held());
        test.command("DEL", &test.owner_key(), &[]);
        eventually("it is noticed in the background", async || !owner.is_held()).await;
    });
}

/// REG-01: a change may take longer than a lock lasts without its holder.
pub fn reg_01_locks_are_extended(servers: &Fixture) {
    run(async {
        let test = TestDocument::on(servers.shared());
        let document = test.server();
        let _locks = lock(&document).await;
        for key in [CHANGE.to_owned(), OWNERS.to_owned(), test.owner_key()] {
            test.command("PEXPIRE", &key, &["30000"]);
            let ttl_ms = || test.command("PTTL", &key, &[]).parse::<u64>().unwrap();
            eventually("it lasts longer again", async || ttl_ms() > ANSWER_MS).await;
        }
    });
}

/// REG-01: a server that takes its lock again ends what it sent before.
pub fn reg_01_an_earlier_lock_of_the_same_server_ends(servers: &Fixture) {
    run(async {
        let test = TestDocument::on(servers.shared());
        let document = test.server();
        let owner = own(&document, DocumentAccess::Exclusive).await.unwrap();
        let held = document.held_locks();
        let staged = document.stage("one", &held).await.unwrap();
        let again = own(&document, DocumentAccess::Exclusive).await.unwrap();
        assert!(!owner.is_held() && again.is_held());
        assert_eq!(document.commit(staged, &held).await, Err(DocumentError::LockLost));
        assert!(again.is_held(), "only the earlier one is lost");
        drop(owner);
        replace(&document, "two").await.unwrap();
    });
}

/// REG-01, OPS-06
pub fn reg_01_ops_06_a_document_has_one_owner_or_several_that_share_it(servers: &Fixture) {
    run(async {
        let test = TestDocument::on(servers.shared());
        let [first, second] = [test.server(), test.server()];
        let only = own(&first, DocumentAccess::Exclusive).await.unwrap();
        for access in [DocumentAccess::Exclusive, DocumentAccess::Shared] {
            match second.own(access, "PID 2 on b").await.unwrap() {
                Ownership::Owned(lock) => panic!("{lock:?}"),
                Ownership::InUse { description, for_ms } => {
                    assert_eq!(description.as_deref(), Some("PID 1 on a"));
                    let lock_ttl_max = RedisDocument::LOCK_TTL_MAX.as_millis();
                    assert!((1..=lock_ttl_max).contains(&for_ms.into()), "{for_ms}");
                }
            }
        }
        first.release_all().await;
        drop(only);
        let shared = [&first, &second].map(|server| own(server, DocumentAccess::Shared));
        let shared = futures::future::join_all(shared).await;
        assert!(shared.iter().all(Option::is_some));
        let third = test.server();
        match third.own(DocumentAccess::Exclusive, "PID 3 on c").await.unwrap() {
            Ownership::Owned(lock) => panic!("{lock:?}"),
            Ownership::InUse { description, .. } => assert_eq!(description, None),
        }
        drop(shared);
        eventually("they are released", async || {
            own(&third, DocumentAccess::Exclusive).await.is_some()
        })
        .await;
    });
}

/// REG-01, OPS-06: servers may have different timeouts, by which their locks last.
pub fn reg_01_ops_06_an_owner_does_not_shorten_the_ownership_of_others(servers: &Fixture) {
    run(async {
        let test = TestDocument::on(servers.shared());
        let [patient, impatient] = [test.server(), test.impatient_server()];
        let _owner = own(&patient, DocumentAccess::Shared).await.unwrap();
        let _other = own(&impatient, DocumentAccess::Shared).await.unwrap();
        impatient.peek().await.unwrap();
        let lasts_ms: u64 = test.command("PTTL", OWNERS, &[]).parse().unwrap();
        assert!(lasts_ms > ANSWER_MS, "{lasts_ms}");
    });
}

/// REG-01
pub fn reg_01_who_finds_the_document_locked_is_next(servers: &Fixture) {
    run(async {
        let test = TestDocument::on(servers.shared());
        let [first, second] = [test.server(), test.server()];
        let lock = first.try_lock().await.unwrap().unwrap();
        assert!(first.try_lock().await.unwrap().is_none(), "also at the same server");
        assert!(second.try_lock().await.unwrap().is_none());
        // However slow this test is.
        let is_next = || test.command("PERSIST", WAITING, &[]) == "1";
        eventually("the second is next", async || {
            assert!(second.try_lock().await.unwrap().is_none());
            is_next()
        })
        .await;
        first.release_all().await;
        drop(lock);
        assert!(first.try_lock().await.unwrap().is_none(), "it is not its turn");
        assert!(second.try_lock().await.unwrap().is_some());
        assert_eq!(test.command("EXISTS", WAITING, &[]), "0");
    });
}

/// REG-01, RDS-06: a text is refused before anything else happens, and what is staged needs no more memory.
pub fn reg_01_rds_06_a_full_redis_takes_no_text_and_commits_what_is_staged(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    run(async {
        let test = TestDocument::on(&redis);
        let document = test.server();
        let owner = own(&document, DocumentAccess::Exclusive).await.unwrap();
        let staged = document.stage("one", &document.held_locks()).await.unwrap();
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
        document.commit(staged, &document.held_locks()).await.unwrap();
        let refused = document.stage("two", &document.held_locks()).await;
        let Err(DocumentError::Problem(problem)) = &refused else { panic!("{refused:?}") };
        assert_eq!(problem.kind, "memory");
        assert!(owner.is_held() && document.is_connected(), "Redis has answered");
        let content = document.read().await.unwrap();
        assert_eq!((content.document.unwrap().1.as_str(), content.staged), ("one", None));
    });
}

/// REG-01: somebody wrote it by hand.
pub fn reg_01_a_text_that_is_not_utf_8_is_reported(servers: &Fixture) {
    run(async {
        let test = TestDocument::on(servers.shared());
        let key = format!("{{{}}}:{DOCUMENT}", test.context.prefix());
        let write = r"return redis.call('HSET', KEYS[1], 'text', '\255')";
        servers.shared().command(&["EVAL", write, "1", &key]);
        let error = test.server().read().await.unwrap_err();
        assert_eq!(error.to_string(), "the text is not UTF-8");
    });
}

/// REG-01, RDS-04
pub fn reg_01_rds_04_a_document_and_a_limiter_with_one_prefix_do_not_meet(servers: &Fixture) {
    run(async {
        let test = TestDocument::on(servers.shared());
        let limiter = test.context.limiter();
        limiter.define(rolling("tokens", 60, 10)).await.unwrap();
        let of_limiter = test.context.names(servers.shared());
        let document = test.server();
        let _locks = lock(&document).await;
        replace(&document, "one").await.unwrap();
        assert_eq!(limiter.registry().await.unwrap().len(), 1);
        let mut names = test.context.names(servers.shared());
        names.retain(|name| !name.contains("}:document"));
        assert_eq!(names, of_limiter);
    });
}

//! Migrations of a SQLite file.

use std::path::Path;
use std::time::Duration;

use coordination::{
    BatchSize, Inbox, LeaseDuration, NewOutboxMessage, Outbox, OwnerToken, Payload, Topic,
};
use coordination_sql::{NEWEST_MIGRATION, OpenError, SqliteConfig, SqliteProvider, sqlx};
use sqlx::{ConnectOptions, Connection};
use tokio::task::JoinSet;

use crate::{DATA_OF_VERSION_1, check_data, version_1};

pub(crate) async fn opening_again_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("work.sqlite");
    let first = SqliteProvider::open(&path).await.unwrap();
    let message = NewOutboxMessage::new(Topic::new("t").unwrap(), Payload::empty());
    let id = Outbox::enqueue(&first, message).await.unwrap();
    let second = SqliteProvider::open(&path).await.unwrap();
    assert!(second.record(id).await.unwrap().is_some(), "the message is there");
    let versions = sqlx::query_scalar("SELECT COUNT(*) FROM coordination_migrations");
    let versions: i64 = versions.fetch_one(second.pool()).await.unwrap();
    assert_eq!(versions, NEWEST_MIGRATION, "each migration once");
}

pub(crate) async fn many_that_open_a_new_file_at_once_all_do() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("work.sqlite");
        let mut opening = JoinSet::new();
        for _ in 0..8 {
            let path = path.clone();
            let busy_timeout = Duration::from_secs(120);
            let config = SqliteConfig { busy_timeout, ..SqliteConfig::default() };
            opening.spawn(async move { SqliteProvider::open_with(path, config).await });
        }
        for opened in opening.join_all().await {
            let provider = opened.unwrap();
            assert_eq!(Outbox::oldest_ready_age(&provider).await.unwrap(), None);
        }
    }
}

/// Creates a file with the tables of version 1 and these rows.
async fn make_version_1(path: &Path, rows: &str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    let tables = ["outbox", "inbox", "join_members", "joins", "jobs"];
    let rows = tables.iter().fold(rows.to_owned(), |text, table| {
        text.replace(&format!("{{{table}}}"), &format!("coordination_{table}"))
    });
    for text in [version_1(&SqliteProvider::migration_sql(0)), rows] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
}

pub(crate) async fn a_file_of_version_1_is_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("work.sqlite");
    make_version_1(&path, DATA_OF_VERSION_1).await;
    check_data(&SqliteProvider::open(&path).await.unwrap()).await;
}

/// `CRD-02`
pub(crate) async fn crd_02_what_was_claimed_and_not_handled_has_all_its_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("work.sqlite");
    let rows = "INSERT INTO {inbox} (id, state, due_at, topic, payload, attempts)
                VALUES ('shop' || CHAR(9) || '1', 'due', 0, 'order', x'78', 9)";
    make_version_1(&path, rows).await;
    let provider = SqliteProvider::open(&path).await.unwrap();
    let minute = LeaseDuration::new(Duration::from_secs(60)).unwrap();
    let owner = OwnerToken::random();
    let mut claimed = provider.claim(&owner, minute, BatchSize::ONE).await.unwrap();
    let message = claimed.remove(0);
    assert_eq!((message.attempts, message.lost_attempts), (9, 0));
    assert_eq!(message.attempts_since_revival(), 0);
}

pub(crate) async fn a_newer_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("work.sqlite");
    let provider = SqliteProvider::open(&path).await.unwrap();
    let newer = "INSERT INTO coordination_migrations VALUES (1000, 'from the future', 0)";
    sqlx::query(newer).execute(provider.pool()).await.unwrap();
    provider.close().await;
    let refused = SqliteProvider::open(&path).await.unwrap_err();
    assert!(
        matches!(refused, OpenError::TooNew { found: 1000, known: NEWEST_MIGRATION, .. }),
        "{refused:?}"
    );
    let text = refused.to_string();
    assert!(text.starts_with("migration_too_new: ") && text.contains("work.sqlite"), "{text}");
}

pub(crate) async fn a_file_that_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "these are notes, and longer than a header would be").unwrap();
    let refused = SqliteProvider::open(&path).await.unwrap_err();
    assert!(matches!(refused, OpenError::Unavailable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("notes.txt"), "{refused}");
}

pub(crate) async fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = SqliteProvider::open(folder.path().join("gone/work.sqlite")).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.starts_with("database_unavailable: ") && text.contains("gone/work"), "{text}");
}

//! Statements on the row and its locks.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::failure::Failure;
use super::session::Session;
use crate::disk::LockMode;
use crate::medium::Version;

const PEEK: &str = "SELECT version, written_as, staged_as, document IS NOT NULL AS has_document, \
     pg_backend_pid() AS backend FROM ratelimiter_registry WHERE id = 1";
const READ: &str = "SELECT version, written_as, document, staged_as, staged FROM ratelimiter_registry WHERE id = 1";
const OWNER: &str = "SELECT owner FROM ratelimiter_registry WHERE id = 1";
const SET_OWNER: &str = "UPDATE ratelimiter_registry \
     SET owner = $1 || coalesce(', connected from ' || host(inet_client_addr()), '') WHERE id = 1 RETURNING owner";
const LOCK_IN_TURN: &str = "SELECT pg_advisory_lock($1)";
const LOCK: &str = "SELECT pg_try_advisory_lock($1)";
const LOCK_SHARED: &str = "SELECT pg_try_advisory_lock_shared($1)";
const UNLOCK: &str = "SELECT pg_advisory_unlock($1)";
const UNLOCK_SHARED: &str = "SELECT pg_advisory_unlock_shared($1)";

/// The row without its documents. No version means that there is no document.
#[derive(Debug, Default)]
pub(super) struct Peeked {
    pub(super) version: Option<Version>,
    pub(super) staged_as: Option<String>,
}

/// The row.
#[derive(Debug, Default)]
pub(super) struct RegistryRow {
    pub(super) version: Option<Version>,
    pub(super) document: Option<String>,
    pub(super) staged_as: Option<String>,
    pub(super) staged: Option<String>,
}

impl Session {
    pub(super) async fn peek(&mut self) -> Result<Peeked, Failure> {
        let row = sqlx::query(PEEK).fetch_optional(&mut self.connection).await?;
        let Some(row) = row else { return Ok(Peeked::default()) };
        self.check_backend(row.try_get("backend")?)?;
        let version = row.try_get::<bool, _>("has_document")?.then(|| version_of(&row));
        Ok(Peeked { version: version.transpose()?, staged_as: row.try_get("staged_as")? })
    }

    pub(super) async fn read(&mut self) -> Result<RegistryRow, Failure> {
        let row = sqlx::query(READ).fetch_optional(&mut self.connection).await?;
        let Some(row) = row else { return Ok(RegistryRow::default()) };
        let document: Option<String> = row.try_get("document")?;
        let version = document.is_some().then(|| version_of(&row)).transpose()?;
        let (staged_as, staged) = (row.try_get("staged_as")?, row.try_get("staged")?);
        Ok(RegistryRow { version, document, staged_as, staged })
    }

    /// The locks are those of one session.
    pub(super) fn check_backend(&self, backend: i32) -> Result<(), Failure> {
        if backend == self.backend { Ok(()) } else { Err(Failure::SessionChanged) }
    }

    pub(super) async fn try_lock(&mut self, key: i64, mode: LockMode) -> Result<bool, Failure> {
        let lock = match mode {
            LockMode::Exclusive => LOCK,
            LockMode::Shared => LOCK_SHARED,
        };
        Ok(sqlx::query_scalar(lock).bind(key).fetch_one(&mut self.connection).await?)
    }

    /// Waits for a short time, in a queue, so that a server that makes one change after another does not keep the
    /// others out.
    pub(super) async fn lock_in_turn(&mut self, key: i64) -> Result<bool, Failure> {
        let locked = sqlx::query(LOCK_IN_TURN).bind(key).execute(&mut self.connection).await;
        match locked.map_err(Failure::from) {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_lock_timeout() => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn unlock(&mut self, key: i64, mode: LockMode) -> Result<(), Failure> {
        let unlock = match mode {
            LockMode::Exclusive => UNLOCK,
            LockMode::Shared => UNLOCK_SHARED,
        };
        let unlocked = sqlx::query(unlock).bind(key).execute(&mut self.connection).await;
        unlocked.map(|_| ()).map_err(Failure::NotUnlocked)
    }

    /// The only owner; `None` for servers that share the registry.
    pub(super) async fn describe_owner(&mut self) -> Result<Option<String>, Failure> {
        let key = self.owner_key;
        if self.try_lock(key, LockMode::Shared).await? {
            self.unlock(key, LockMode::Shared).await?;
            return Ok(None);
        }
        let owner: Option<Option<String>> =
            sqlx::query_scalar(OWNER).fetch_optional(&mut self.connection).await?;
        Ok(Some(owner.flatten().unwrap_or_else(|| "an unknown name".to_owned())))
    }

    pub(super) async fn set_owner(&mut self, description: &str) -> Result<Option<String>, Failure> {
        let owner = sqlx::query_scalar(SET_OWNER).bind(description);
        Ok(owner.fetch_optional(&mut self.connection).await?)
    }

    /// Runs a statement with at most one value; returns whether it changed the row.
    pub(super) async fn execute(
        &mut self,
        statement: &'static str,
        value: Option<String>,
    ) -> Result<bool, Failure> {
        let query = sqlx::query(statement);
        let query = match value {
            Some(value) => query.bind(value),
            None => query,
        };
        Ok(query.execute(&mut self.connection).await?.rows_affected() > 0)
    }
}

fn version_of(row: &PgRow) -> Result<Version, sqlx::Error> {
    Ok(Version::Numbered {
        number: row.try_get("version")?,
        written_as: row.try_get("written_as")?,
    })
}

//! System leases.

use std::sync::Arc;

use coordination::{
    Clock, FencingToken, LeaseDuration, Leases, OwnerToken, ResourceName, Result, Tenure,
};

use super::Provider;
use crate::engine::{Database, Values};
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement};
use crate::value::{Columns, read};

#[derive(Debug)]
pub(crate) struct LeaseSql {
    acquire: Statement,
    renew: Statement,
    release: Statement,
}

impl LeaseSql {
    /// Each operation is one statement, so that the row lock picks one of many callers.
    pub(crate) fn new(dialect: &Dialect) -> LeaseSql {
        let tenure = "resource = $1 AND owner = $2 AND since <= $3 AND held_until > {now}";
        LeaseSql {
            acquire: dialect.statement(
                "INSERT INTO {leases} AS lease (resource, owner, since, token, held_until)
                 VALUES ($1, $2, 1, 1, {now} + $3)
                 ON CONFLICT (resource) DO UPDATE
                 SET owner = $2, since = lease.token + 1, token = lease.token + 1,
                     held_until = {now} + $3
                 WHERE lease.held_until <= {now}
                 RETURNING token",
            ),
            renew: dialect.statement(&format!(
                "UPDATE {{leases}} SET token = token + 1, held_until = {{now}} + $4
                 WHERE {tenure} RETURNING token"
            )),
            release: dialect
                .statement(&format!("UPDATE {{leases}} SET held_until = 0 WHERE {tenure}")),
        }
    }
}

impl<D: Database> Provider<D> {
    async fn token(
        &self,
        operation: &'static str,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Option<FencingToken>> {
        let ask = async {
            let rows = self.engine().fetch(statement, values).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            Ok(Some(FencingToken::new(read("token", u64::try_from(row.int("token")?))?)))
        };
        ask.await.map_err(DatabaseError::of(operation))
    }
}

impl<D: Database> Leases for Provider<D> {
    async fn try_acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: &OwnerToken,
    ) -> Result<Option<FencingToken>> {
        let values = vec![resource.as_str().into(), owner.into(), duration.into()];
        self.token("lease acquire", &self.sql().leases.acquire, values).await
    }

    async fn try_renew(
        &self,
        tenure: &Tenure,
        duration: LeaseDuration,
    ) -> Result<Option<FencingToken>> {
        let mut values = named(tenure);
        values.push(duration.into());
        self.token("lease renew", &self.sql().leases.renew, values).await
    }

    async fn release(&self, tenure: &Tenure) -> Result<usize> {
        let released = self.engine().execute(&self.sql().leases.release, named(tenure)).await;
        released.map_err(DatabaseError::of("lease release"))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.engine().lease_clock()
    }
}

fn named(tenure: &Tenure) -> Values<'_> {
    // No lease issues a token that does not fit the column, so -1 matches no tenure.
    let token = i64::try_from(tenure.token.get()).unwrap_or(-1);
    vec![tenure.resource.as_str().into(), (&tenure.owner).into(), token.into()]
}

//! Outbox, inbox, scheduler and system leases that survive: in SQLite and in PostgreSQL.

#[cfg(feature = "testing")]
pub mod testing;

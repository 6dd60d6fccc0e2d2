//! Conformance of the SQLite provider, under the IDs `PRIM-SQLITE-…`.

mod sqlite_fixture;

mod prim_sqlite {
    use super::sqlite_fixture::SqliteFixture;

    coordination_conformance::general_suite!(SqliteFixture);
    coordination_conformance::outbox_suite!(SqliteFixture);
    coordination_conformance::inbox_suite!(SqliteFixture);
    coordination_conformance::scheduler_suite!(SqliteFixture);
    coordination_conformance::lease_suite!(SqliteFixture);
    coordination_conformance::durable_suite!(SqliteFixture);
}

//! Conformance of the memory provider, under the IDs `PRIM-INMEMORY-…`.

mod prim_inmemory {
    use coordination_conformance::MemoryFixture;

    coordination_conformance::in_memory_suite!(MemoryFixture);

    /// The second process of the in-memory scenarios.
    #[test]
    fn second_process() {
        coordination_conformance::in_memory::second_process::<MemoryFixture>();
    }

    coordination_conformance::general_suite!(MemoryFixture);
    coordination_conformance::outbox_suite!(MemoryFixture);
    coordination_conformance::inbox_suite!(MemoryFixture);
    coordination_conformance::scheduler_suite!(MemoryFixture);
    coordination_conformance::lease_suite!(MemoryFixture);
}

//! Outbox, inbox, scheduler and system leases: traits, a memory provider, and workers

//! Queries for transfers by user data.

use std::num::NonZeroU128;

use super::Timestamp;

/// The most rows that one query may return; TigerBeetle's client rejects more.
pub const QUERY_ROWS_MAX: u32 = 8189;

/// Transfers with this `user_data_128`, in the order of their timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferQuery {
    user_data_128: NonZeroU128,
    order: Order,
    rows_max: u32,
    timestamp_min: Timestamp,
}

/// The order of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// By rising timestamps.
    OldestFirst,
    /// By falling timestamps.
    NewestFirst,
}

impl TransferQuery {
    /// The oldest rows first, up to [`QUERY_ROWS_MAX`]. 0 is not indexed and cannot be queried.
    pub fn new(user_data_128: NonZeroU128) -> Self {
        Self {
            user_data_128,
            order: Order::OldestFirst,
            rows_max: QUERY_ROWS_MAX,
            timestamp_min: Timestamp::from_unix_nanos(0),
        }
    }

    /// At most `rows_max` rows. Small queries are faster.
    ///
    /// # Panics
    /// Unless `rows_max` is in `1..=QUERY_ROWS_MAX`.
    #[must_use]
    pub fn rows_max(mut self, rows_max: u32) -> Self {
        assert!(
            (1..=QUERY_ROWS_MAX).contains(&rows_max),
            "rows_max must be in 1..={QUERY_ROWS_MAX}"
        );
        self.rows_max = rows_max;
        self
    }

    /// Sets the order.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Only rows with this timestamp or a later one.
    #[must_use]
    pub fn since(mut self, timestamp_min: Timestamp) -> Self {
        self.timestamp_min = timestamp_min;
        self
    }

    /// The user data, the order, the maximum number of rows, and the earliest timestamp.
    pub fn parts(&self) -> (NonZeroU128, Order, u32, Timestamp) {
        (self.user_data_128, self.order, self.rows_max, self.timestamp_min)
    }
}

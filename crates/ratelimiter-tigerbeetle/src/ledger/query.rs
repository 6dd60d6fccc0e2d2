//! Finding transfers by what was kept beside them.

use std::num::NonZeroU128;

use super::Timestamp;

/// The most rows that one query may ask for; TigerBeetle's client refuses more.
pub const QUERY_ROWS_MAX: u32 = 8189;

/// Transfers that carry `user_data_128`, in the order of their timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferQuery {
    user_data_128: NonZeroU128,
    order: Order,
    rows_max: u32,
    timestamp_min: Timestamp,
}

/// Which end of the rows comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// By rising timestamps.
    OldestFirst,
    /// By falling timestamps.
    NewestFirst,
}

impl TransferQuery {
    /// The oldest rows first, as many as fit. 0 is not indexed and so cannot be asked for.
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

    /// In this order.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Only rows of this moment or later.
    #[must_use]
    pub fn since(mut self, timestamp_min: Timestamp) -> Self {
        self.timestamp_min = timestamp_min;
        self
    }

    /// The user data, the order, the most rows, and the earliest moment.
    pub fn parts(&self) -> (NonZeroU128, Order, u32, Timestamp) {
        (self.user_data_128, self.order, self.rows_max, self.timestamp_min)
    }
}

//! Transfers: what is asked for and what is stored.

use std::num::{NonZeroU16, NonZeroU32};

use super::{AccountId, Timestamp, TransferStatus, UserData};

/// A transfer's ID; never 0 or 2^128-1, which TigerBeetle refuses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TransferId(u128);

/// A transfer to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Its ID, which makes it repeatable: the same transfer again answers `Exists`.
    pub id: TransferId,
    /// What it does.
    pub action: Action,
    /// Kept beside the transfer.
    pub user_data: UserData,
}

/// What a transfer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Moves the amount at once and for good.
    Posted(Movement),
    /// Keeps the amount taken on both accounts until it is posted, voided, or the timeout passes.
    Pending {
        /// What is taken.
        movement: Movement,
        /// After how many seconds it lapses by itself; `None` is never.
        timeout_seconds: Option<NonZeroU32>,
        /// Closes the debit account for as long as this transfer is pending.
        closes_debit_account: bool,
    },
    /// Makes a pending transfer final, in full or in part; the rest is released.
    PostPending {
        /// The pending transfer.
        pending: TransferId,
        /// How much of it.
        amount: PostAmount,
    },
    /// Releases a pending transfer, and opens the account that it closed.
    VoidPending {
        /// The pending transfer.
        pending: TransferId,
    },
}

/// An amount from one account to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Movement {
    /// The account that gives.
    pub debit: AccountId,
    /// The account that takes.
    pub credit: AccountId,
    /// How much; 0 is allowed.
    pub amount: u128,
    /// What the transfer is for.
    pub code: NonZeroU16,
}

/// How much of a pending transfer to post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostAmount {
    /// All of it.
    Full,
    /// So much; 2^128-1 means all of it too, as TigerBeetle has it.
    Exactly(u128),
}

/// The answer to one [`Transfer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferResult {
    /// Whether it was created, and if not, the broken rule.
    pub status: TransferStatus,
    /// When the transfer was created (for `Exists` too: the first time), or when it was refused.
    pub timestamp: Timestamp,
}

/// A transfer as the ledger has it.
///
/// Whether a pending one is still pending does not show here: look for the void or post with its
/// ID, then at [`TransferRow::expires_at`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferRow {
    /// Its ID.
    pub id: TransferId,
    /// The account that gives; a void or post has it from its pending transfer.
    pub debit: AccountId,
    /// The account that takes; a void or post has it from its pending transfer.
    pub credit: AccountId,
    /// The amount taken, moved, posted or released.
    pub amount: u128,
    /// What the transfer is for; a void or post has it from its pending transfer.
    pub code: NonZeroU16,
    /// Which of the actions it was.
    pub kind: RowKind,
    /// Whether it was linked to the event after it, which is part of its identity.
    pub linked: bool,
    /// Kept beside the transfer; see [`UserData`] for voids and posts.
    pub user_data: UserData,
    /// When it was created.
    pub timestamp: Timestamp,
}

/// The [`Action`] that made a [`TransferRow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowKind {
    /// [`Action::Posted`].
    Posted,
    /// [`Action::Pending`].
    Pending {
        /// After how many seconds it lapses by itself.
        timeout_seconds: Option<NonZeroU32>,
        /// Closes the debit account for as long as it is pending.
        closes_debit_account: bool,
    },
    /// [`Action::PostPending`].
    PostPending {
        /// The pending transfer.
        pending: TransferId,
    },
    /// [`Action::VoidPending`].
    VoidPending {
        /// The pending transfer.
        pending: TransferId,
    },
}

impl TransferId {
    /// `None` for the two values that TigerBeetle refuses.
    pub const fn new(id: u128) -> Option<Self> {
        if id == 0 || id == u128::MAX { None } else { Some(Self(id)) }
    }

    /// The ID `id`, or with the lowest bit flipped if TigerBeetle refuses it.
    pub const fn nearest(id: u128) -> Self {
        if id == 0 || id == u128::MAX { Self(id ^ 1) } else { Self(id) }
    }

    /// The number itself.
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl TransferRow {
    /// When a pending transfer lapses if nobody posts or voids it before; `None` if never.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.kind.expires_at(self.timestamp)
    }
}

impl RowKind {
    /// When what was created at `created_at` lapses; `None` if never, or beyond the 63 bits that TigerBeetle keeps.
    pub fn expires_at(self, created_at: Timestamp) -> Option<Timestamp> {
        let Self::Pending { timeout_seconds, .. } = self else { return None };
        let timeout_nanos = u64::from(timeout_seconds?.get()) * 1_000_000_000;
        let expires_at = created_at.unix_nanos().checked_add(timeout_nanos)?;
        (expires_at <= u64::MAX >> 1).then_some(Timestamp::from_unix_nanos(expires_at))
    }
}

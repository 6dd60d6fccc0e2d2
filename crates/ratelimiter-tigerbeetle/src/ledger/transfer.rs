//! Transfers: new ones and stored ones.

use std::num::{NonZeroU16, NonZeroU32};

use super::{AccountId, Timestamp, TransferId, TransferStatus, UserData};

/// A transfer to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Its ID, which makes it idempotent: the same transfer again returns `Exists`.
    pub id: TransferId,
    /// What it does.
    pub action: Action,
    /// Stored with the transfer.
    pub user_data: UserData,
}

/// What a transfer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant says what its fields are")]
pub enum Action {
    /// Moves the amount at once; final.
    Posted(Movement),
    /// As `Posted`, but at most as much as the credit account's posted debits exceed its credits by,
    /// pending ones included; possibly 0. The stored transfer has the amount that was moved.
    BalancingCredit(Movement),
    /// Reserves the amount on both accounts until it is posted, voided, or the timeout passes;
    /// without a timeout it does not expire. It may close the debit account while it is pending.
    Pending { movement: Movement, timeout_seconds: Option<NonZeroU32>, closes_debit_account: bool },
    /// Posts a pending transfer, in full or in part; the rest is released.
    PostPending { pending: TransferId, amount: PostAmount },
    /// Releases a pending transfer, and reopens the account that it closed.
    VoidPending { pending: TransferId },
}

/// An amount from one account to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Movement {
    /// The account that is debited.
    pub debit: AccountId,
    /// The account that is credited.
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
    /// This amount; 2^128-1 also means all of it, as in TigerBeetle.
    Exactly(u128),
}

/// The answer to one [`Transfer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferResult {
    /// `Created`, or the rule that was broken.
    pub status: TransferStatus,
    /// When the transfer was created (for `Exists`, the first time), or when it was refused.
    pub timestamp: Timestamp,
}

/// A transfer as the ledger stores it.
///
/// It does not show whether a pending transfer is still pending: look for the void or post with its
/// ID, then at [`TransferRow::expires_at`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferRow {
    /// Its ID.
    pub id: TransferId,
    /// The account that is debited; a void or post inherits it from its pending transfer.
    pub debit: AccountId,
    /// The account that is credited; a void or post inherits it from its pending transfer.
    pub credit: AccountId,
    /// The amount reserved, moved, posted or released.
    pub amount: u128,
    /// What the transfer is for; a void or post inherits it from its pending transfer.
    pub code: NonZeroU16,
    /// Which of the actions it was.
    pub kind: RowKind,
    /// Whether it was linked to the next event. Part of its identity.
    pub linked: bool,
    /// Stored with the transfer; see [`UserData`] for voids and posts.
    pub user_data: UserData,
    /// When it was created.
    pub timestamp: Timestamp,
}

/// The [`Action`] that made a [`TransferRow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of the action")]
pub enum RowKind {
    /// [`Action::Posted`].
    Posted,
    /// [`Action::BalancingCredit`].
    BalancingCredit,
    /// [`Action::Pending`].
    Pending { timeout_seconds: Option<NonZeroU32>, closes_debit_account: bool },
    /// [`Action::PostPending`].
    PostPending { pending: TransferId },
    /// [`Action::VoidPending`].
    VoidPending { pending: TransferId },
}

impl Transfer {
    /// A movement that is final at once.
    pub fn posted(id: TransferId, movement: Movement) -> Self {
        Self { id, action: Action::Posted(movement), user_data: UserData::default() }
    }

    /// A reservation that expires.
    pub fn pending(id: TransferId, movement: Movement, timeout_seconds: NonZeroU32) -> Self {
        let timeout_seconds = Some(timeout_seconds);
        let action = Action::Pending { movement, timeout_seconds, closes_debit_account: false };
        Self { id, action, user_data: UserData::default() }
    }

    /// A reservation that does not expire.
    pub fn lasting(id: TransferId, movement: Movement) -> Self {
        let action =
            Action::Pending { movement, timeout_seconds: None, closes_debit_account: false };
        Self { id, action, user_data: UserData::default() }
    }

    /// The release of a pending transfer.
    pub fn void(id: TransferId, pending: TransferId) -> Self {
        Self { id, action: Action::VoidPending { pending }, user_data: UserData::default() }
    }

    /// Stores this with the transfer.
    #[must_use]
    pub fn with_user_data(self, user_data: UserData) -> Self {
        Self { user_data, ..self }
    }
}

impl TransferResult {
    /// Which event of a chain was refused, and why: the others only report that they failed with
    /// it. If no event has a reason, the first that failed. `None` if the chain was created.
    pub fn first_refusal(chain: &[Self]) -> Option<(usize, TransferStatus)> {
        let statuses = chain.iter().map(|result| result.status).enumerate();
        let mut refused = statuses.filter(|(_, status)| *status != TransferStatus::Created);
        let is_reason = |(_, status): &_| *status != TransferStatus::LinkedEventFailed;
        refused.clone().find(is_reason).or_else(|| refused.next())
    }
}

impl TransferRow {
    /// When a pending transfer expires unless it is posted or voided before; `None` if never.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.kind.expires_at(self.timestamp)
    }
}

impl RowKind {
    /// When a transfer created at `created_at` expires; `None` if never, or beyond the 63 bits that
    /// TigerBeetle stores.
    pub fn expires_at(self, created_at: Timestamp) -> Option<Timestamp> {
        let Self::Pending { timeout_seconds, .. } = self else { return None };
        let timeout_nanos = u64::from(timeout_seconds?.get()) * 1_000_000_000;
        let expires_at = created_at.unix_nanos().checked_add(timeout_nanos)?;
        (expires_at <= u64::MAX >> 1).then_some(Timestamp::from_unix_nanos(expires_at))
    }
}

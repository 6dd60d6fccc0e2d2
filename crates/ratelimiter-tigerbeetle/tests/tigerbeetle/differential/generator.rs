//! Random requests for the differential test.
//!
//! New events, voids and posts of existing and missing transfers, repetitions, and repetitions with
//! one change.

use std::num::{NonZeroU16, NonZeroU32, NonZeroU128};

use fastrand::Rng;
use ratelimiter_tigerbeetle::ledger::{
    AccountId, Action, Event, Movement, NewAccount, Order, PostAmount, Timestamp, Transfer,
    TransferId, TransferQuery, TransferResult, TransferStatus, UserData, WorkItem,
};

/// The timeout of the holds that expire during the run.
pub const SHORT_TIMEOUT_SECONDS: u32 = 1;
const LONG_TIMEOUT_SECONDS: u32 = 3600;
/// A development server accepts 253.
const ITEM_EVENTS_MAX: usize = 250;
const CHAIN_EVENTS_MAX: usize = 5;
/// Few enough that most holds expire.
const VOIDS: usize = 3;
/// How far back voids, posts and repetitions reach.
const REMEMBERED: usize = 400;

pub struct Generator {
    random: Rng,
    /// For IDs: the server is shared and remembers earlier runs of the same seed.
    fresh: Rng,
    /// No bound on its debits.
    operator: NewAccount,
    limits: Vec<NewAccount>,
    /// For amounts at the end of the number range.
    whales: [NewAccount; 4],
    missing: AccountId,
    next_id: u128,
    user_data: Vec<u128>,
    /// The last events sent, created or refused.
    events: Vec<Event>,
    pendings: Vec<TransferId>,
    closings: Vec<TransferId>,
    last_pending_at: Option<Timestamp>,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        let mut fresh = Rng::new();
        let mut account = |limited| NewAccount {
            id: AccountId::nearest(fresh.u128(..)),
            code: NonZeroU16::MIN,
            debits_must_not_exceed_credits: limited,
            user_data: UserData::default(),
        };
        Self {
            operator: account(false),
            limits: (0..6).map(|_| account(true)).collect(),
            whales: [account(false), account(false), account(false), account(true)],
            missing: account(false).id,
            next_id: fresh.u128(..) >> 8,
            user_data: (0..20).map(|_| fresh.u128(1..)).collect(),
            events: Vec::new(),
            pendings: Vec::new(),
            closings: Vec::new(),
            last_pending_at: None,
            random: Rng::with_seed(seed),
            fresh,
        }
    }

    pub fn accounts(&self) -> Vec<NewAccount> {
        [&[self.operator], &self.limits[..], &self.whales[..]].concat()
    }

    /// Sums at the end of the number range stay there, so each round has new ones to fill.
    pub fn new_whales(&mut self) -> Vec<NewAccount> {
        for whale in &mut self.whales {
            whale.id = AccountId::nearest(self.fresh.u128(..));
        }
        self.whales.to_vec()
    }

    pub fn account_ids(&self) -> Vec<AccountId> {
        self.accounts().iter().map(|account| account.id).collect()
    }

    /// Repeats some accounts, some of them with one change.
    pub fn accounts_again(&mut self) -> Vec<NewAccount> {
        let mut accounts = self.accounts();
        for account in &mut accounts {
            match self.random.u8(..12) {
                0 => account.code = NonZeroU16::MAX,
                1 => account.debits_must_not_exceed_credits ^= true,
                2 => account.user_data.data_128 = 1,
                3 => account.user_data.data_64 = 1,
                4 => account.user_data.data_32 = 1,
                _ => {}
            }
        }
        self.random.shuffle(&mut accounts);
        accounts
    }

    pub fn item(&mut self) -> WorkItem {
        let events_max = self.random.usize(1..=ITEM_EVENTS_MAX);
        let mut item = WorkItem::new();
        let mut events = 0;
        while events < events_max {
            let room = CHAIN_EVENTS_MAX.min(events_max - events);
            let length = if self.random.bool() { 1 } else { self.random.usize(1..=room) };
            item.push_chain((0..length).map(|_| self.transfer()));
            events += length;
        }
        item
    }

    /// Records what was sent and created.
    pub fn note(&mut self, item: &WorkItem, results: &[TransferResult]) {
        for (event, result) in item.events().iter().zip(results) {
            self.events.push(*event);
            if result.status != TransferStatus::Created {
                continue;
            }
            match event.transfer.action {
                Action::Pending { closes_debit_account, .. } => {
                    self.last_pending_at = Some(result.timestamp);
                    self.pendings.push(event.transfer.id);
                    if closes_debit_account {
                        self.closings.push(event.transfer.id);
                    }
                }
                // Usually forgotten, so that most voids and posts find something to do.
                Action::VoidPending { pending } | Action::PostPending { pending, .. }
                    if self.random.u8(..10) < 8 =>
                {
                    self.pendings.retain(|&id| id != pending);
                    self.closings.retain(|&id| id != pending);
                }
                Action::Posted(_)
                | Action::BalancingCredit(_)
                | Action::VoidPending { .. }
                | Action::PostPending { .. } => {}
            }
        }
        keep_last(&mut self.events, REMEMBERED);
        keep_last(&mut self.pendings, REMEMBERED);
        keep_last(&mut self.closings, 10);
    }

    /// Independent voids of some pending transfers.
    pub fn voids(&mut self) -> WorkItem {
        let mut item = WorkItem::new();
        for _ in 0..VOIDS {
            let action = Action::VoidPending { pending: self.some_pending() };
            item.push(Transfer { id: self.id(), action, user_data: UserData::default() });
        }
        item
    }

    pub fn last_pending_at(&self) -> Option<Timestamp> {
        self.last_pending_at
    }

    pub fn ids(&mut self) -> Vec<TransferId> {
        let ids = (0..20).filter_map(|_| self.random.choice(&self.events));
        ids.map(|event| event.transfer.id).collect()
    }

    pub fn query(&mut self) -> TransferQuery {
        let user_data = *self.random.choice(&self.user_data).expect("there is some");
        let order = if self.random.bool() { Order::OldestFirst } else { Order::NewestFirst };
        let query = TransferQuery::new(NonZeroU128::new(user_data).expect("it is above 0"));
        let query = query.order(order).rows_max(self.random.u32(1..=50));
        match self.last_pending_at {
            Some(last) if self.random.bool() => {
                let back = self.random.u64(..1_000_000_000);
                query.since(Timestamp::from_unix_nanos(last.unix_nanos() - back))
            }
            _ => query,
        }
    }

    fn transfer(&mut self) -> Transfer {
        match self.random.u8(..100) {
            0..6 => self.repeat(),
            6..14 => self.almost_repeat(),
            _ => {
                let (id, action, user_data) = (self.id(), self.action(), self.some_user_data());
                Transfer { id, action, user_data }
            }
        }
    }

    fn id(&mut self) -> TransferId {
        self.next_id += 1;
        TransferId::nearest(self.next_id)
    }

    fn some_user_data(&mut self) -> UserData {
        let data_128 = *self.random.choice(&self.user_data).expect("there is some");
        match self.random.u8(..4) {
            0 => UserData::default(),
            1 => UserData { data_128, data_64: 5, data_32: 6 },
            _ => UserData { data_128, ..UserData::default() },
        }
    }

    fn action(&mut self) -> Action {
        let limit = self.random.choice(&self.limits).expect("there are some").id;
        let operator = self.operator.id;
        let code = NonZeroU16::MIN;
        let amount = |random: &mut Rng, max| u128::from(random.u32(..=max));
        match self.random.u8(..100) {
            0..20 => {
                let amount = amount(&mut self.random, 25);
                Action::Posted(Movement { debit: operator, credit: limit, amount, code })
            }
            20..24 => {
                let amount = amount(&mut self.random, 60);
                Action::Posted(Movement { debit: limit, credit: operator, amount, code })
            }
            24..28 => {
                let amount = *self.random.choice(&[0, 3, 40, u128::MAX]).expect("there are four");
                let mut accounts = [limit, operator];
                self.random.shuffle(&mut accounts);
                let [debit, credit] = accounts;
                Action::BalancingCredit(Movement { debit, credit, amount, code })
            }
            28..60 => {
                let amount = amount(&mut self.random, 40);
                self.pending(Movement { debit: limit, credit: operator, amount, code })
            }
            60..83 => Action::VoidPending { pending: self.some_pending() },
            83..90 => {
                Action::PostPending { pending: self.some_pending(), amount: self.post_amount() }
            }
            90..96 => self.whale(),
            96 => self.pending(Movement { debit: limit, credit: limit, amount: 1, code }),
            97 => self.pending(Movement { debit: self.missing, credit: limit, amount: 1, code }),
            98 => Action::Posted(Movement { debit: limit, credit: self.missing, amount: 1, code }),
            // The ID that this very event is about to get.
            _ => Action::VoidPending { pending: TransferId::nearest(self.next_id) },
        }
    }

    fn pending(&mut self, movement: Movement) -> Action {
        let timeout_seconds = match self.random.u8(..10) {
            0..5 => NonZeroU32::new(SHORT_TIMEOUT_SECONDS),
            5..7 => NonZeroU32::new(LONG_TIMEOUT_SECONDS),
            _ => None,
        };
        let closes_debit_account = self.random.u8(..100) < 2;
        Action::Pending { movement, timeout_seconds, closes_debit_account }
    }

    fn post_amount(&mut self) -> PostAmount {
        match self.random.u8(..3) {
            0 => PostAmount::Full,
            1 => PostAmount::Exactly(u128::MAX),
            _ => PostAmount::Exactly(u128::from(self.random.u8(..45))),
        }
    }

    /// Amounts whose sums pass the number range, pending or posted, from either whale.
    fn whale(&mut self) -> Action {
        let mut whales = self.whales.map(|account| account.id);
        self.random.shuffle(&mut whales);
        let [debit, credit, ..] = whales;
        let amounts = [u128::MAX, u128::MAX / 2, u128::MAX / 2 - 1, 7];
        let amount = *self.random.choice(&amounts).expect("there are four");
        let movement = Movement { debit, credit, amount, code: NonZeroU16::MIN };
        match self.random.u8(..8) {
            0..4 => Action::Posted(movement),
            4 => Action::BalancingCredit(movement),
            _ => self.pending(movement),
        }
    }

    fn some_pending(&mut self) -> TransferId {
        let closing = self.random.choice(&self.closings).copied();
        let pending = self.random.choice(&self.pendings).copied();
        let other = self.random.choice(&self.events).map(|event| event.transfer.id);
        let found = match self.random.u8(..20) {
            0..5 => closing.or(pending),
            5..18 => pending,
            18 => other,
            _ => None,
        };
        found.unwrap_or_else(|| self.id())
    }

    fn repeat(&mut self) -> Transfer {
        match self.random.choice(&self.events) {
            Some(event) => event.transfer,
            None => {
                Transfer { id: self.id(), action: self.action(), user_data: UserData::default() }
            }
        }
    }

    /// An earlier event with one thing changed.
    fn almost_repeat(&mut self) -> Transfer {
        let mut transfer = self.repeat();
        let limit = self.random.choice(&self.limits).expect("there are some").id;
        let change = self.random.u8(..9);
        match change {
            0 => transfer.user_data.data_128 ^= 1,
            1 => transfer.user_data.data_64 ^= 1,
            2 => transfer.user_data.data_32 ^= 1,
            3 => transfer.action = self.action(),
            _ => match &mut transfer.action {
                Action::Posted(movement) | Action::BalancingCredit(movement) => {
                    change_movement(change, movement, limit);
                }
                Action::Pending { movement, timeout_seconds, closes_debit_account } => match change
                {
                    4 => *timeout_seconds = NonZeroU32::new(LONG_TIMEOUT_SECONDS + 1),
                    5 => *closes_debit_account ^= true,
                    _ => change_movement(change, movement, limit),
                },
                Action::PostPending { pending, amount } => match change {
                    4..7 => *amount = PostAmount::Exactly(3),
                    _ => *pending = TransferId::nearest(pending.get() - 1),
                },
                Action::VoidPending { pending } => {
                    *pending = TransferId::nearest(pending.get() - 1);
                }
            },
        }
        transfer
    }
}

fn change_movement(change: u8, movement: &mut Movement, limit: AccountId) {
    match change {
        6 => movement.debit = limit,
        7 => movement.credit = limit,
        8 => movement.code = NonZeroU16::MAX,
        _ => movement.amount ^= 1,
    }
}

fn keep_last<T>(items: &mut Vec<T>, count: usize) {
    let excess = items.len().saturating_sub(count);
    items.drain(..excess);
}

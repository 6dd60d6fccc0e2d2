//! What is known of each key and model at a provider (`GW-07`): whether the provider has closed it for a while, and whether others use it.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::HeaderMap;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::credit::{Amounts, Credit, Sent};
use crate::own_rates::OwnRate;
use crate::rate_figures::RateFigure;
use crate::retry::growing_pause;
use crate::settings::RateCounts;

/// The headers that say with which key a call is made.
const KEY_HEADERS: [&str; 3] = ["authorization", "x-api-key", "api-key"];
/// The longest pause after 429s in a row that name no time.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// A call looks whether the provider still means it, whatever time it had named.
const CLOSED_MAX: Duration = Duration::from_mins(10);
/// After a 429, or figures that tell so, others are taken to use the key for so long.
const SHARED_FOR: Duration = Duration::from_mins(10);
/// Others use the key if they have used more than this part of a capacity.
const SHARED_PART: u64 = 64;
/// How often the provider's figures are compared with our limits.
const COMPARED_EVERY: Duration = Duration::from_millis(500);
/// A key that was not used for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(1);
/// The most keys and models of one provider. Callers may invent both.
const ACCOUNTS_MAX: usize = 10_000;

/// The keys and models of one provider.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    hasher: RandomState,
    models: Mutex<Models>,
}

type Models = HashMap<Box<str>, HashMap<KeyId, Arc<Account>>>;

/// Stands for a key of the provider, which itself is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct KeyId(u64);

/// A key and a model at a provider.
#[derive(Debug)]
pub(crate) struct Account {
    state: Mutex<State>,
    /// More is known.
    changed: Notify,
    /// Calls that wait for the provider's room go one after another.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    used_at: Instant,
    /// The provider knows the key.
    is_answered: bool,
    closed_at: Option<Instant>,
    closed_until: Instant,
    /// 429s in a row that named no time.
    unnamed: u32,
    /// In a row, it had no capacity, or could not be connected.
    failures: u32,
    failing_until: Instant,
    compared_at: Option<Instant>,
    shared_until: Option<Instant>,
    credit: Credit,
}

/// What a 429 has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closing {
    /// From now.
    pub(crate) pause: Duration,
    /// The call was sent after the provider's last 429.
    pub(crate) is_new: bool,
}

/// Whether a call may be sent.
#[derive(Debug)]
pub(crate) enum Entry {
    Entered(InFlight),
    /// The provider has closed the account.
    Closed,
    /// The provider has no room in time, but after this.
    NoRoom(Duration),
}

/// A call that the provider may be working on.
#[derive(Debug)]
pub(crate) struct InFlight {
    account: Arc<Account>,
    sent: Sent,
    at_most: Amounts,
    /// As long as nobody knows, the most.
    used: Amounts,
    uncounted: Uncounted,
}

/// What of a call the provider's last figures do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uncounted {
    All,
    Output,
    Nothing,
}

impl Uncounted {
    fn of(self, amounts: Amounts) -> Amounts {
        match self {
            Self::All => amounts,
            Self::Output => amounts.output(),
            Self::Nothing => Amounts::default(),
        }
    }
}

impl Accounts {
    /// The account of a call, by the headers that the provider gets.
    pub(crate) fn get(&self, model: &str, headers: &HeaderMap, now: Instant) -> Arc<Account> {
        let key = KeyId(self.hasher.hash_one(KEY_HEADERS.map(|name| headers.get(name))));
        let mut models = self.lock();
        let known = models.get(model).and_then(|keys| keys.get(&key));
        if let Some(account) = known {
            account.lock().used_at = now;
            return Arc::clone(account);
        }
        make_room(&mut models, now);
        let account = Arc::new(Account::new(now));
        models.entry(model.into()).or_default().insert(key, Arc::clone(&account));
        account
    }

    /// Whether no other key was used for this model in the last hour. Keys that share our limits have figures of their own.
    pub(crate) fn is_only(&self, model: &str, account: &Arc<Account>, now: Instant) -> bool {
        let models = self.lock();
        let is_other = |other: &&Arc<Account>| {
            let state = other.lock();
            !Arc::ptr_eq(other, account) && state.is_answered && !state.is_idle(now)
        };
        models.get(model).is_none_or(|keys| !keys.values().any(|other| is_other(&other)))
    }

    /// The keys have changed.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Models> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    fn new(now: Instant) -> Self {
        let state = State {
            used_at: now,
            is_answered: false,
            closed_at: None,
            closed_until: now,
            unnamed: 0,
            failures: 0,
            failing_until: now,
            compared_at: None,
            shared_until: None,
            credit: Credit::default(),
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// How long the provider wants no call.
    pub(crate) fn closed_for(&self, now: Instant) -> Option<Duration> {
        rest(self.lock().closed_until, now)
    }

    /// The provider has refused a call for its own limits, and named a time or not.
    pub(crate) fn close(&self, sent_at: Instant, named: Option<Duration>, now: Instant) -> Closing {
        let mut state = self.lock();
        // Those that were under way when it was closed say nothing new.
        let is_new = state.closed_at.is_none_or(|closed_at| sent_at >= closed_at);
        if is_new {
            state.closed_at = Some(now);
        }
        let pause = match named {
            Some(named) => named.min(CLOSED_MAX),
            None if is_new => {
                let pause = growing_pause(state.unnamed, PAUSE_MAX);
                state.unnamed += 1;
                pause
            }
            None => Duration::ZERO,
        };
        state.is_answered = true;
        state.shared_until = Some(now + SHARED_FOR);
        state.closed_until = state.closed_until.max(now + pause);
        Closing { pause: state.closed_until.saturating_duration_since(now), is_new }
    }

    /// The provider has taken a call.
    pub(crate) fn taken(&self) {
        let mut state = self.lock();
        state.is_answered = true;
        state.unnamed = 0;
        state.failures = 0;
    }

    /// The provider had no capacity for a call and named a time or not, or it could not be connected. Returns whether that is new.
    pub(crate) fn fails(&self, named: Option<Duration>, now: Instant) -> bool {
        let mut state = self.lock();
        let pause = named.unwrap_or_else(|| growing_pause(state.failures, PAUSE_MAX));
        state.failing_until = now + pause.min(CLOSED_MAX);
        state.failures += 1;
        state.failures == 1
    }

    /// How long calls had better be made elsewhere.
    pub(crate) fn failing_for(&self, now: Instant) -> Option<Duration> {
        rest(self.lock().failing_until, now)
    }

    /// Whether the provider's figures are compared with our limits now, which is done at times.
    pub(crate) fn begins_comparison(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let is_due =
            state.compared_at.is_none_or(|at| now.saturating_duration_since(at) >= COMPARED_EVERY);
        if is_due {
            state.compared_at = Some(now);
        }
        is_due
    }

    /// Whether others are known to use the key.
    pub(crate) fn is_shared(&self, now: Instant) -> bool {
        self.lock().is_shared(now)
    }

    /// Others have used so much of a limit in its window, by the provider's figures. A little may be a matter of timing, unless they are
    /// known to use the key.
    pub(crate) fn others_used(&self, amount: u64, own: &OwnRate, now: Instant) {
        let mut state = self.lock();
        state.credit.others_used(own.counted, amount, own.window);
        if amount > own.capacity / SHARED_PART || (amount > 0 && state.is_shared(now)) {
            state.shared_until = Some(now + SHARED_FOR);
        }
    }

    /// Notes the figures of an answer to a call.
    pub(crate) fn learn(&self, figures: &[RateFigure], sent: Sent) {
        if figures.is_empty() {
            return;
        }
        self.lock().credit.learn(figures, sent);
        self.changed.notify_one();
    }

    /// Sends a call off. While others are known to use the key, it waits until the provider has room by its own figures.
    pub(crate) async fn enter(self: &Arc<Self>, at_most: Amounts, left: Duration) -> Entry {
        let deadline = Instant::now() + left;
        if !self.is_shared(Instant::now()) {
            return self.try_enter(at_most);
        }
        let Ok(_turn) = tokio::time::timeout_at(deadline, self.turn.lock()).await else {
            return self.try_enter(at_most);
        };
        loop {
            let entry = self.try_enter(at_most);
            let Entry::NoRoom(after) = entry else { return entry };
            let now = Instant::now();
            if now >= deadline {
                return entry;
            }
            // There may be room earlier: a call ends, or an answer says so.
            let again_at = deadline.min(now + after);
            drop(tokio::time::timeout_at(again_at, self.changed.notified()).await);
        }
    }

    fn try_enter(self: &Arc<Self>, at_most: Amounts) -> Entry {
        let now = Instant::now();
        let mut state = self.lock();
        if state.closed_until > now {
            return Entry::Closed;
        }
        let after = state.credit.room_after(at_most, now);
        if state.is_shared(now) && !after.is_zero() {
            return Entry::NoRoom(after);
        }
        let sent = state.credit.send(at_most, now);
        let account = Arc::clone(self);
        let uncounted = Uncounted::All;
        Entry::Entered(InFlight { account, sent, at_most, used: at_most, uncounted })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used_at) >= FORGOTTEN_AFTER
    }

    fn is_shared(&self, now: Instant) -> bool {
        self.shared_until.is_some_and(|until| now < until)
    }
}

impl InFlight {
    pub(crate) const fn sent(&self) -> Sent {
        self.sent
    }

    /// Its answer has begun: the provider has counted it, or all but what it is about to write.
    pub(crate) fn begun(&mut self, rate_counts: RateCounts) {
        let uncounted = match rate_counts {
            RateCounts::Actual => Uncounted::Output,
            RateCounts::Reserved => Uncounted::Nothing,
        };
        let mut state = self.account.lock();
        state.credit.end(self.uncounted.of(self.at_most), Amounts::default());
        state.credit.begin(uncounted.of(self.at_most));
        self.uncounted = uncounted;
    }

    /// The call has ended, and used this.
    pub(crate) fn end(mut self, used: Amounts) {
        self.used = used;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Self { account, at_most, used, uncounted, .. } = self;
        account.lock().credit.end(uncounted.of(*at_most), uncounted.of(*used));
        self.account.changed.notify_one();
    }
}

/// `None` if it is over.
fn rest(until: Instant, now: Instant) -> Option<Duration> {
    until.checked_duration_since(now).filter(|rest| !rest.is_zero())
}

fn make_room(models: &mut Models, now: Instant) {
    let count = |models: &Models| models.values().map(HashMap::len).sum::<usize>();
    if count(models) < ACCOUNTS_MAX {
        return;
    }
    for keys in models.values_mut() {
        keys.retain(|_, account| !account.lock().is_idle(now));
    }
    models.retain(|_, keys| !keys.is_empty());
    // Far more than anybody has: what is forgotten is learned again.
    if count(models) >= ACCOUNTS_MAX {
        models.clear();
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};
    use ratelimiter::LimitKey;

    use super::*;
    use crate::estimate::Estimate;
    use crate::rate_figures::Counted;

    const MODEL: &str = "gpt-4o";

    fn account(accounts: &Accounts, name: &'static str, value: &'static str) -> Arc<Account> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        accounts.get(MODEL, &headers, Instant::now())
    }

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn call(tokens: u64) -> Amounts {
        Amounts::at_most(&Estimate { input: tokens, output: 0, bytes: 0 })
    }

    /// GW-07
    #[test]
    fn gw_07_a_429_closes_its_key_and_model_alone_for_the_time_that_it_names() {
        let accounts = Accounts::default();
        let [a, b] = ["Bearer a", "Bearer b"].map(|key| account(&accounts, "authorization", key));
        let now = Instant::now();
        let closing = a.close(now, Some(ms(2_000)), now);
        assert_eq!(closing, Closing { pause: ms(2_000), is_new: true });
        assert_eq!(a.closed_for(now + ms(1_500)), Some(ms(500)));
        assert_eq!(a.closed_for(now + ms(2_000)), None);
        assert_eq!(b.closed_for(now), None);
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer a"));
        assert_eq!(accounts.get("gpt-4o-mini", &headers, now).closed_for(now), None);
        assert!(accounts.get(MODEL, &headers, now).closed_for(now).is_some());
    }

    /// GW-07
    #[test]
    fn gw_07_the_longest_time_that_was_named_counts_up_to_ten_minutes() {
        let now = Instant::now();
        let account = Account::new(now);
        for (named, pause) in [(5_000, 5_000), (1_000, 5_000), (86_400_000, 600_000)] {
            assert_eq!(account.close(now, Some(ms(named)), now).pause, ms(pause));
        }
    }

    /// GW-07
    #[test]
    fn gw_07_without_a_time_the_pause_grows_until_a_call_is_taken() {
        let mut now = Instant::now();
        let account = Account::new(now);
        let mut refuse = |at_most: u64| {
            let pause = account.close(now, None, now).pause;
            assert!((ms(at_most) * 3 / 4..=ms(at_most)).contains(&pause), "{pause:?} of {at_most}");
            now += pause;
        };
        for at_most in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            refuse(at_most);
        }
        account.taken();
        refuse(500);
    }

    /// GW-07
    #[test]
    fn gw_07_calls_that_were_under_way_do_not_make_the_pause_grow() {
        let sent_at = Instant::now();
        let account = Account::new(sent_at);
        let now = sent_at + ms(10);
        let first = account.close(sent_at, None, now);
        let second = account.close(sent_at, None, now);
        assert!(first.is_new && !second.is_new);
        assert_eq!(first.pause, second.pause);
    }

    /// GW-08
    #[test]
    fn gw_08_a_deployment_that_fails_is_left_out_for_a_growing_time() {
        let now = Instant::now();
        let account = Account::new(now);
        account.fails(None, now);
        let is_failing = |after| account.failing_for(now + ms(after)).is_some();
        assert!(is_failing(374) && !is_failing(500));
        account.fails(None, now);
        assert!(is_failing(749));
        account.taken();
        account.fails(None, now);
        assert!(!is_failing(500), "the next is the first again");
        account.fails(Some(ms(5_000)), now);
        assert_eq!(account.failing_for(now + ms(4_999)), Some(ms(1)));
    }

    /// GW-07
    #[test]
    fn gw_07_figures_are_compared_at_times() {
        let now = Instant::now();
        let account = Account::new(now);
        assert!(account.begins_comparison(now));
        assert!(!account.begins_comparison(now + ms(499)));
        assert!(account.begins_comparison(now + ms(500)));
    }

    /// GW-07
    #[test]
    fn gw_07_others_use_the_key_if_the_provider_has_much_less() {
        let now = Instant::now();
        let account = Account::new(now);
        let own = OwnRate {
            key: LimitKey::new("global:llm:p:m:tpm").unwrap(),
            counted: Counted::Tokens,
            capacity: 6_400,
            window: Duration::from_mins(1),
            room: 0,
        };
        account.others_used(100, &own, now);
        assert!(!account.is_shared(now), "a little may be a matter of timing");
        account.others_used(101, &own, now);
        assert!(account.is_shared(now));
        let later = now + Duration::from_mins(9);
        account.others_used(1, &own, later);
        account.others_used(0, &own, later + ms(1));
        assert!(account.is_shared(now + SHARED_FOR), "they still use it");
        assert!(!account.is_shared(later + SHARED_FOR));
    }

    /// GW-07
    #[test]
    fn gw_07_figures_are_not_compared_while_several_keys_share_a_limit() {
        let accounts = Accounts::default();
        let [a, b] = ["a", "b"].map(|value| account(&accounts, "x-api-key", value));
        let now = Instant::now();
        a.taken();
        assert!(accounts.is_only(MODEL, &a, now), "the other may be invented");
        b.taken();
        assert!(!accounts.is_only(MODEL, &a, now));
        assert!(!accounts.is_only(MODEL, &b, now));
        assert!(accounts.is_only(MODEL, &b, now + FORGOTTEN_AFTER + ms(1_000)));
        accounts.forget();
        assert!(accounts.is_only(MODEL, &a, now));
    }

    /// GW-07
    #[tokio::test(start_paused = true)]
    async fn gw_07_after_a_429_calls_go_as_the_provider_has_room() {
        let now = Instant::now();
        let account = Arc::new(Account::new(now));
        let tokens = |remaining| {
            let resets_after = Some(Duration::from_mins(1));
            let (counted, limit) = (Counted::Tokens, Some(1_000));
            [RateFigure { counted, window: None, limit, remaining, resets_after }]
        };
        let Entry::Entered(first) = account.enter(call(500), ms(0)).await else {
            panic!("entered")
        };
        account.learn(&tokens(100), first.sent());
        account.close(now, None, now);
        assert!(matches!(account.enter(call(1), ms(100)).await, Entry::Closed));
        tokio::time::advance(ms(500)).await;
        assert!(
            matches!(account.enter(call(1), ms(100)).await, Entry::NoRoom(after) if after > ms(100))
        );
        let waits = account.enter(call(90), ms(30_000));
        let ends = async {
            tokio::time::advance(ms(1_000)).await;
            first.end(Amounts::default());
        };
        let (entry, ()) = tokio::join!(waits, ends);
        assert!(matches!(entry, Entry::Entered(_)));
        assert_eq!(now.elapsed(), ms(1_600), "as soon as the first has ended");
    }

    #[test]
    fn invented_keys_take_a_bounded_number_of_places() {
        let accounts = Accounts::default();
        let now = Instant::now();
        for number in 0..2 * ACCOUNTS_MAX {
            let mut headers = HeaderMap::new();
            headers.insert("api-key", HeaderValue::from_str(&number.to_string()).unwrap());
            accounts.get(MODEL, &headers, now);
        }
        let count = accounts.lock().values().map(HashMap::len).sum::<usize>();
        assert!(count <= ACCOUNTS_MAX, "{count}");
    }
}

//! The memory backend with one flaw.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimiter::admission::{Turn, TurnAnswer};
use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{
    Actual, Actuals, Backend, CAPACITY_MAX, CompleteError, CompleteRequest, Decision, DefineError,
    DeleteError, DenialReason, ForgiveError, KeyPattern, LeaseId, LeasePage, LeasesError, Limit,
    LimitKey, LimitKind, LimitMode, LimitState, LimitStatus, Limiter, MemoryLimiter, NewAmounts,
    Note, OpenLease, Overage, Page, Refused, ReleaseError, RenewError, RenewNumber, RenewRequest,
    Renewal, Requirements, ReserveError, ReserveRequest, ResetSchedule, ResetTime, StateError,
    Window,
};

/// How often a request that waits asks for room.
const ASKS_MAX: usize = 1_000;

/// A deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    MixesUpCase,
    CutsWindows,
    DropsDescriptions,
    ChangesKinds,
    /// Every definition resets the usage.
    StartsOver,
    NeverIncreases,
    NeverDeletes,
    /// The last of several requirements is admitted without a check.
    AdmitsOneUnchecked,
    ExpiresEarly,
    NeverExpires,
    KeepsHolds,
    CountsReplays,
    AllowsConflicts,
    ForgetsDenials,
    LooksAtCapacityFirst,
    CutsAmounts,
    NamesNoKeys,
    ForgetsEnds,
    HintsOneSecond,
    IgnoresActuals,
    LosesDebt,
    TurnsDenyIntoDebt,
    FreesWithoutActual,
    /// A later complete applies its actuals again.
    CompletesAgain,
    RefusesUnknownLeases,
    TakesAnyActual,
    /// After a denial the rest of a batch is denied unchecked.
    StopsBatches,
    LosesAllAtRestart,
    /// Every calendar limit resets two minutes later.
    ResetsLate,
    /// A changed schedule applies at once.
    ReschedulesAtOnce,
    EnforcesShadowLimits,
    NeverNamesShadowLimits,
    /// What was in shadow mode stays so.
    NeverEnforces,
    ListsNewestFirst,
    /// A page may have any lease, however young, and of any key.
    ListsEverything,
    /// A page after an unknown lease is the first one.
    BeginsAgain,
    LosesJobs,
    /// A release answers, and changes nothing.
    ReleasesNothing,
    /// A release answers like a complete, which an unknown lease may have too.
    ReleasesAnything,
    /// A release frees rolling reservations as well.
    ReleasesAll,
    /// A forgiven debt is still there.
    ForgivesNothing,
    /// The amount is read before the debt is forgiven, so that two at once both return it.
    ForgivesTwice,
    ForgivesAnyKey,
    /// A key with a `*` in a segment is defined.
    TakesAnyKey,
    /// A template is defined, and makes no limits.
    NeverMatches,
    /// A changed template is for new limits only.
    NeverFollowsTemplates,
    /// A template takes precedence over a definition of the key.
    PrefersTemplates,
    /// A definition of a key resets what was made from a template.
    StartsOverAtDefinitions,
    /// The list of limits also has those that were made from templates.
    ListsInstances,
    /// Too many limits are an unknown key.
    ForgetsKeysWithoutRoom,
    /// A renew answers, and changes nothing.
    RenewsNothing,
    /// A renew is not recognised when it is repeated.
    RenewsAgain,
    /// A renew also begins the windows of rolling reservations again.
    RenewsEverything,
    /// A reserve that would wait is denied at once.
    NeverWaits,
}

impl Flaw {
    pub(crate) const ALL: [Self; 54] = [
        Self::MixesUpCase,
        Self::CutsWindows,
        Self::DropsDescriptions,
        Self::ChangesKinds,
        Self::StartsOver,
        Self::NeverIncreases,
        Self::NeverDeletes,
        Self::AdmitsOneUnchecked,
        Self::ExpiresEarly,
        Self::NeverExpires,
        Self::KeepsHolds,
        Self::CountsReplays,
        Self::AllowsConflicts,
        Self::ForgetsDenials,
        Self::LooksAtCapacityFirst,
        Self::CutsAmounts,
        Self::NamesNoKeys,
        Self::ForgetsEnds,
        Self::HintsOneSecond,
        Self::IgnoresActuals,
        Self::LosesDebt,
        Self::TurnsDenyIntoDebt,
        Self::FreesWithoutActual,
        Self::CompletesAgain,
        Self::RefusesUnknownLeases,
        Self::TakesAnyActual,
        Self::StopsBatches,
        Self::LosesAllAtRestart,
        Self::ResetsLate,
        Self::ReschedulesAtOnce,
        Self::EnforcesShadowLimits,
        Self::NeverNamesShadowLimits,
        Self::NeverEnforces,
        Self::ListsNewestFirst,
        Self::ListsEverything,
        Self::BeginsAgain,
        Self::LosesJobs,
        Self::ReleasesNothing,
        Self::ReleasesAnything,
        Self::ReleasesAll,
        Self::ForgivesNothing,
        Self::ForgivesTwice,
        Self::ForgivesAnyKey,
        Self::TakesAnyKey,
        Self::NeverMatches,
        Self::NeverFollowsTemplates,
        Self::PrefersTemplates,
        Self::StartsOverAtDefinitions,
        Self::ListsInstances,
        Self::ForgetsKeysWithoutRoom,
        Self::RenewsNothing,
        Self::RenewsAgain,
        Self::RenewsEverything,
        Self::NeverWaits,
    ];
}

/// The memory backend with one flaw, or none.
#[derive(Debug)]
pub(crate) struct FlawedLimiter {
    inner: MemoryLimiter,
    flaw: Option<Flaw>,
    /// The lease that replaces another at the inner limiter, and the last request for it.
    leases: Mutex<HashMap<LeaseId, ReserveRequest>>,
    completed: Mutex<HashSet<LeaseId>>,
    renew_count: AtomicU64,
}

impl FlawedLimiter {
    pub(crate) fn new(inner: MemoryLimiter, flaw: Option<Flaw>) -> Self {
        Self {
            inner,
            flaw,
            leases: Mutex::default(),
            completed: Mutex::default(),
            renew_count: AtomicU64::new(0),
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn key(&self, key: &LimitKey) -> LimitKey {
        match self.has(Flaw::MixesUpCase) {
            true => LimitKey::new(key.as_str().to_lowercase()).unwrap(),
            false => key.clone(),
        }
    }

    fn state_of(&self, key: &LimitKey) -> Option<LimitState> {
        if self.has(Flaw::NeverMatches) && self.inner.template_of(key).is_some() {
            return None;
        }
        let mut state = self.inner.state_now(&self.key(key))?;
        if self.has(Flaw::LosesDebt) {
            state.usage.debt = 0;
        }
        Some(state)
    }

    /// The request that the inner limiter receives.
    fn passed_on(&self, request: &ReserveRequest) -> ReserveRequest {
        let mut pairs: Vec<(LimitKey, u64)> = request
            .requirements
            .iter()
            .map(|requirement| (self.key(&requirement.key), requirement.amount.get()))
            .collect();
        if self.has(Flaw::AdmitsOneUnchecked) && pairs.len() > 1 {
            pairs.pop();
        }
        if self.has(Flaw::CutsAmounts) {
            for (_, amount) in &mut pairs {
                *amount = (*amount).min(CAPACITY_MAX);
            }
        }
        let lease = self.stand_in(request.lease).map_or(request.lease, |known| known.lease);
        let job = request.job.clone().filter(|_| !self.has(Flaw::LosesJobs));
        let requirements = Requirements::of(pairs).unwrap();
        ReserveRequest { job, ..ReserveRequest::new(lease, requirements) }
    }

    fn stand_in(&self, lease: LeaseId) -> Option<ReserveRequest> {
        self.leases.lock().unwrap().get(&lease).cloned()
    }

    /// Replaces this lease by one that the inner limiter does not know.
    fn forget(&self, lease: LeaseId) {
        let mut leases = self.leases.lock().unwrap();
        if let Some(request) = leases.get_mut(&lease) {
            request.lease = LeaseId::generate(MonotonicClock::new().now());
        }
    }

    fn reserve_with_flaw(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        let mut keys = request.requirements.iter().map(|requirement| &requirement.key);
        if self.has(Flaw::NeverMatches)
            && let Some(key) = keys.find(|key| self.inner.template_of(key).is_some())
        {
            return Err(ReserveError::UnknownKey { key: key.clone() });
        }
        if self.has(Flaw::LooksAtCapacityFirst) {
            for requirement in request.requirements.iter() {
                let key = &requirement.key;
                let capacity = self.state_of(key).map(|state| state.limit.capacity.get());
                if capacity.is_some_and(|capacity| requirement.amount.get() > capacity) {
                    return Err(ReserveError::AmountExceedsCapacity { key: key.clone() });
                }
            }
        }
        let passed_on = self.passed_on(request);
        let is_replay = self.stand_in(request.lease).is_some();
        self.leases.lock().unwrap().insert(request.lease, passed_on.clone());
        let answer = self.inner.reserve_now(&passed_on);
        if answer == Err(ReserveError::LeaseConflict) && self.has(Flaw::AllowsConflicts) {
            self.forget(request.lease);
            return self.inner.reserve_now(&self.passed_on(request));
        }
        let mut decision = answer?;
        match &mut decision {
            Decision::Allowed { shadow_denied, .. } => {
                if self.has(Flaw::NeverNamesShadowLimits) {
                    shadow_denied.clear();
                }
                if is_replay && self.has(Flaw::CountsReplays) {
                    let lease = LeaseId::generate(MonotonicClock::new().now());
                    let again = ReserveRequest { lease, ..passed_on };
                    drop(self.inner.reserve_now(&again));
                }
            }
            Decision::Denied(denial) => {
                if self.has(Flaw::ForgetsDenials) {
                    self.forget(request.lease);
                }
                if self.has(Flaw::HintsOneSecond) {
                    denial.retry_after = Duration::from_secs(1);
                }
                if let DenialReason::TooManyInstances { template } = &denial.reason
                    && self.has(Flaw::ForgetsKeysWithoutRoom)
                {
                    return Err(ReserveError::UnknownKey { key: template.clone() });
                }
                if let DenialReason::NoRoom { keys } = &mut denial.reason
                    && self.has(Flaw::NamesNoKeys)
                {
                    keys.clear();
                }
            }
        }
        Ok(decision)
    }

    /// Asks again and again until the answer is final. A flaw may keep room away, so not for ever.
    async fn wait(&self, request: &ReserveRequest) {
        let turn = Turn { attempt: Some(0), ..Turn::default() };
        for _ in 0..ASKS_MAX {
            match self.inner.reserve_in_turn_now(&self.passed_on(request), turn) {
                Ok(TurnAnswer { ask_again_after: Some(_), .. }) => tokio::task::yield_now().await,
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn complete_with_flaw(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        let known = self.stand_in(request.lease);
        if known.is_none() && self.has(Flaw::RefusesUnknownLeases) {
            let reason = "no such lease".to_owned();
            return Err(Refused { reason }.into());
        }
        if self.has(Flaw::KeepsHolds) && request.actuals.is_empty() {
            return Ok(());
        }
        let lease = known.as_ref().map_or(request.lease, |known| known.lease);
        let mut actuals: Vec<Actual> = request.actuals.to_vec();
        for actual in &mut actuals {
            actual.key = self.key(&actual.key);
        }
        if self.has(Flaw::IgnoresActuals) {
            actuals.clear();
        }
        if let Some(known) = &known
            && self.has(Flaw::FreesWithoutActual)
        {
            actuals.extend(self.zeroes_for_the_rest(known, &actuals));
        }
        let is_later = !self.completed.lock().unwrap().insert(request.lease);
        if is_later && self.has(Flaw::CompletesAgain) {
            let used = actuals.iter().filter(|actual| actual.amount > 0);
            let used: Vec<_> = used.map(|actual| (actual.key.clone(), actual.amount)).collect();
            if let Ok(needs) = Requirements::of(used) {
                let lease = LeaseId::generate(MonotonicClock::new().now());
                drop(self.inner.reserve_now(&ReserveRequest::new(lease, needs)));
            }
        }
        let passed_on = CompleteRequest::new(lease, Actuals::new(actuals).unwrap());
        let mut result = self.inner.complete_now(&passed_on);
        if self.has(Flaw::TakesAnyActual) && result.is_err() {
            let bare = CompleteRequest::new(lease, Actuals::none());
            result = self.inner.complete_now(&bare);
        }
        if self.has(Flaw::ForgetsEnds) {
            self.forget(request.lease);
        }
        result
    }

    fn renew_with_flaw(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        let known = self.stand_in(request.lease);
        let lease = known.as_ref().map_or(request.lease, |known| known.lease);
        if self.has(Flaw::RenewsNothing) {
            let now = self.inner.now();
            let shadow_denied = Vec::new();
            return Ok(Renewal::Renewed { renewed_at: now, lapses_at: now, shadow_denied });
        }
        let renew = |amounts: Vec<(LimitKey, u64)>| {
            let count = self.renew_count.fetch_add(1, Ordering::Relaxed) + 1;
            let number = RenewNumber::new(count).unwrap();
            let amounts = NewAmounts::of(amounts).unwrap();
            self.inner.renew_now(&RenewRequest { lease, number, amounts })
        };
        let amounts = request.amounts.iter().map(|new| (self.key(&new.key), new.amount));
        let amounts: Vec<_> = amounts.collect();
        if self.has(Flaw::RenewsAgain) {
            return renew(amounts);
        }
        let passed_on = NewAmounts::of(amounts.clone()).unwrap();
        let passed_on = RenewRequest { lease, number: request.number, amounts: passed_on };
        if let Some(known) = known.filter(|_| self.has(Flaw::RenewsEverything)) {
            let needs = known.requirements.iter();
            let before = needs.map(|need| (need.key.clone(), need.amount.get()));
            drop(renew(before.clone().map(|(key, _)| (key, 0)).collect()));
            drop(renew(before.collect()));
            return renew(amounts);
        }
        self.inner.renew_now(&passed_on)
    }

    fn zeroes_for_the_rest(&self, known: &ReserveRequest, actuals: &[Actual]) -> Vec<Actual> {
        let is_rolling = |key: &LimitKey| {
            let state = self.inner.state_now(key);
            state.is_some_and(|state| !state.limit.kind.is_concurrency())
        };
        let keys = known.requirements.iter().map(|requirement| &requirement.key);
        keys.filter(|key| is_rolling(key) && actuals.iter().all(|actual| actual.key != **key))
            .map(|key| Actual { key: key.clone(), amount: 0 })
            .collect()
    }

    fn define_with_flaw(&self, mut limit: Limit) -> Result<LimitStatus, DefineError> {
        limit.key = self.key(&limit.key);
        let before = self.inner.state_now(&limit.key).map(|state| state.limit);
        if self.has(Flaw::DropsDescriptions) {
            limit.description = Note::default();
        }
        if let LimitKind::Rolling { window } = limit.kind
            && self.has(Flaw::CutsWindows)
        {
            let window = Window::from_seconds(window.seconds().min(3_600).into()).unwrap();
            limit.kind = LimitKind::Rolling { window };
        }
        if self.has(Flaw::TurnsDenyIntoDebt) {
            limit.overage = Overage::Debt;
        }
        if let LimitKind::Calendar { .. } = limit.kind
            && self.has(Flaw::ResetsLate)
        {
            let minute = "00:36".parse::<ResetTime>().unwrap().minute();
            limit.kind = LimitKind::Calendar { resets: ResetSchedule::Hourly { minute } };
        }
        if self.has(Flaw::EnforcesShadowLimits) {
            limit.mode = LimitMode::Enforce;
        }
        if self.has(Flaw::TakesAnyKey) && KeyPattern::new(&limit.key).is_err() {
            return Ok(LimitStatus::Active);
        }
        let template = self.inner.template_of(&limit.key);
        if template.is_some() && self.has(Flaw::PrefersTemplates) {
            return Ok(LimitStatus::Active);
        }
        if let Some(template) = &template
            && self.has(Flaw::StartsOverAtDefinitions)
        {
            let defined = self.inner.state_now(template).unwrap().limit;
            self.inner.delete_now(template).unwrap();
            self.inner.define_now(defined).unwrap();
        }
        if limit.key.is_template() && before.is_some() && self.has(Flaw::NeverFollowsTemplates) {
            return Ok(LimitStatus::Active);
        }
        if let Some(before) = before.filter(|_| template.is_none()) {
            if self.has(Flaw::NeverEnforces) {
                limit.mode = before.mode;
            }
            if self.has(Flaw::ReschedulesAtOnce) && before.kind != limit.kind {
                self.inner.delete_now(&limit.key).unwrap();
            }
            if self.has(Flaw::NeverIncreases) {
                limit.capacity = limit.capacity.min(before.capacity);
            }
            let is_other_kind = !before.kind.is_same_kind(limit.kind);
            if self.has(Flaw::StartsOver) || is_other_kind && self.has(Flaw::ChangesKinds) {
                self.inner.delete_now(&limit.key).unwrap();
            }
        }
        self.inner.define_now(limit)
    }
}

impl Limiter for FlawedLimiter {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        if request.wait.is_some() && !self.has(Flaw::NeverWaits) {
            self.wait(request).await;
        }
        self.reserve_with_flaw(request)
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.complete_with_flaw(request)
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        self.renew_with_flaw(request)
    }

    async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<Decision, ReserveError>> {
        let mut answers: Vec<Result<Decision, ReserveError>> = Vec::new();
        for request in requests {
            let earlier_denial = answers.iter().find(|answer| {
                let decision = answer.as_ref().ok();
                decision.is_some_and(|decision| !decision.is_allowed())
            });
            let answer = match earlier_denial {
                Some(denial) if self.has(Flaw::StopsBatches) => denial.clone(),
                _ => self.reserve(request).await,
            };
            answers.push(answer);
        }
        answers
    }
}

impl Backend for FlawedLimiter {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        self.define_with_flaw(limit)
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        match self.has(Flaw::NeverDeletes) {
            true => Ok(()),
            false => self.inner.delete_now(&self.key(key)),
        }
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        Ok(self.state_of(key))
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        let mut states = self.inner.states_now(page);
        if self.has(Flaw::ListsInstances) && page.template.is_none() {
            for (template, _) in self.inner.instances_by_template() {
                let template = KeyPattern::new(template).ok();
                states.extend(self.inner.states_now(&Page { template, ..page.clone() }));
            }
            states.sort_by(|a, b| a.limit.key.cmp(&b.limit.key));
        }
        Ok(states)
    }

    async fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        let mut page =
            LeasePage { key: page.key.as_ref().map(|key| self.key(key)), ..page.clone() };
        if self.has(Flaw::ListsEverything) {
            (page.key, page.older_than) = (None, Duration::ZERO);
        }
        let mut leases = match self.inner.leases(&page).await {
            Err(LeasesError::UnknownLease { .. }) if self.has(Flaw::BeginsAgain) => {
                page.after = None;
                self.inner.leases(&page).await?
            }
            answer => answer?,
        };
        if self.has(Flaw::ListsNewestFirst) {
            leases.reverse();
        }
        Ok(leases)
    }

    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        if self.has(Flaw::ReleasesNothing) {
            return Ok(());
        }
        if self.has(Flaw::ReleasesAnything) {
            drop(self.inner.release_now(lease));
            return Ok(());
        }
        if let Some(known) = self.stand_in(lease)
            && self.has(Flaw::ReleasesAll)
        {
            let actuals = Actuals::new(self.zeroes_for_the_rest(&known, &[])).unwrap();
            drop(self.inner.complete_now(&CompleteRequest::new(lease, actuals)));
            return Ok(());
        }
        self.inner.release_now(lease)
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        let key = self.key(key);
        let debt = self.inner.state_now(&key).map_or(0, |state| state.usage.debt);
        if self.has(Flaw::ForgivesNothing) {
            return Ok(debt);
        }
        if self.has(Flaw::ForgivesTwice) {
            // Others come in between.
            tokio::task::yield_now().await;
            return self.inner.forgive_now(&key).map(|_| debt);
        }
        match self.inner.forgive_now(&key) {
            Err(_) if self.has(Flaw::ForgivesAnyKey) => Ok(0),
            answer => answer,
        }
    }
}

//! Limiters in memory with a deliberate bug.

#![expect(clippy::wildcard_enum_match_arm, reason = "a bug is about one thing alone")]

mod renews;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratelimiter::admission::{Turn, TurnAnswer, TurnBackend};
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actuals, Backend, Capacity, CompleteError, CompleteRequest, Decision, DefineError, DeleteError,
    Denial, DenialReason, ForgiveError, KeyPattern, LeaseId, LeasePage, LeasesError, Limit,
    LimitKey, LimitKind, LimitMode, LimitState, LimitStatus, Limiter, MemoryLimiter, OpenLease,
    Page, RegisteredLimit, ReleaseError, RenewError, RenewRequest, Renewal, Requirements,
    ReserveError, ReserveRequest, StateError,
};
use ratelimiter_waiting::Runtime;
use ratelimiterd::{HostedBackend, NotReady};

use self::renews::RenewNotes;
use super::plan::InstanceBounds;
use crate::flaw::Flaw;

/// So long before its reset a period ends early.
const EARLY: Duration = Duration::from_secs(1);

/// A limiter with a bug around it, or without.
#[derive(Debug)]
pub(super) struct FlawedMemory {
    inner: MemoryLimiter,
    flaw: Option<Flaw>,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    reserved: Vec<CalendarReservation>,
    made_up: u128,
    renews: RenewNotes,
}

/// What a lease has reserved of a calendar limit.
#[derive(Debug, Clone)]
struct CalendarReservation {
    lease: LeaseId,
    key: LimitKey,
    amount: u64,
    period_ends_at: Timestamp,
}

impl FlawedMemory {
    pub(super) fn around(inner: MemoryLimiter, flaw: Option<Flaw>) -> Self {
        Self { inner, flaw, notes: Mutex::default() }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the reservations of calendar limits for which this is so.
    fn take(&self, is_so: impl Fn(&CalendarReservation) -> bool) -> Vec<CalendarReservation> {
        self.notes().reserved.extract_if(.., |reservation| is_so(reservation)).collect()
    }

    fn note_reserved(&self, request: &ReserveRequest) {
        for requirement in request.requirements.iter() {
            let state = self.inner.state_now(&requirement.key);
            if let Some(period_ends_at) = state.and_then(|state| state.resets_at) {
                self.notes().reserved.push(CalendarReservation {
                    lease: request.lease,
                    key: requirement.key.clone(),
                    amount: requirement.amount.get(),
                    period_ends_at,
                });
            }
        }
    }

    /// Reserves for a lease that no client has.
    fn reserve_more(&self, key: LimitKey, amount: u64) {
        let mut notes = self.notes();
        notes.made_up += 1;
        let lease = LeaseId::from_u128(notes.made_up);
        drop(notes);
        if let Ok(requirements) = Requirements::of([(key, amount)]) {
            drop(self.inner.reserve_now(&ReserveRequest::new(lease, requirements)));
        }
    }

    fn complete_with(&self, lease: LeaseId, key: LimitKey, actual: u64) {
        let actuals = Actuals::of([(key, actual)]).expect("one key");
        drop(self.inner.complete_now(&CompleteRequest::new(lease, actuals)));
    }

    /// What goes wrong with time.
    fn before_request(&self) {
        let now = self.inner.now();
        match self.flaw {
            Some(Flaw::EndsPeriodsEarly) => {
                let ends_soon =
                    |held: &CalendarReservation| held.period_ends_at <= now.after(EARLY);
                for CalendarReservation { lease, key, .. } in self.take(ends_soon) {
                    self.complete_with(lease, key, 0);
                }
            }
            Some(Flaw::OutlivesResets) => {
                let has_ended = |held: &CalendarReservation| held.period_ends_at <= now;
                for CalendarReservation { key, amount, .. } in self.take(has_ended) {
                    self.reserve_more(key, amount);
                }
            }
            _ => {}
        }
    }

    /// The limits of a request that are in shadow mode, with the amounts.
    fn in_shadow(&self, request: &ReserveRequest) -> Vec<(LimitState, u64)> {
        let in_shadow = request.requirements.iter().filter_map(|requirement| {
            let state = self.inner.state_now(&requirement.key)?;
            (state.limit.mode == LimitMode::Shadow).then_some((state, requirement.amount.get()))
        });
        in_shadow.collect()
    }

    fn deny_in_shadow(&self, request: &ReserveRequest) -> Option<Decision> {
        let mut in_shadow = self.in_shadow(request).into_iter();
        let (state, _) = in_shadow.find(|(state, amount)| *amount > state.usage.available)?;
        let reason = DenialReason::NoRoom { keys: vec![state.limit.key] };
        Some(Decision::Denied(Denial { reason, retry_after: EARLY }))
    }

    /// A limit that was in shadow mode, and denies because it is over its capacity, admits once more.
    fn admit_over_capacity(&self, request: &ReserveRequest, key: &LimitKey) -> Option<Decision> {
        let state = self.inner.state_now(key)?;
        let LimitState { limit, status, .. } =
            Some(state).filter(|state| state.limit.capacity == Capacity::MAX)?;
        let capacity = RegisteredLimit { limit: limit.clone(), status }.target();
        let enforced = Limit { capacity, ..limit };
        let shadow = Limit { mode: LimitMode::Shadow, ..enforced.clone() };
        self.inner.define_now(shadow).ok()?;
        let decision = self.inner.reserve_now(request);
        self.inner.define_now(enforced).ok()?;
        match decision.ok()? {
            Decision::Allowed { reserved_at, .. } => Some(Decision::allowed_at(reserved_at)),
            Decision::Denied(_) => None,
        }
    }

    fn flawed_decision(&self, request: &ReserveRequest, decision: Decision) -> Decision {
        match (self.flaw, decision) {
            (Some(Flaw::NamesNoShadow), Decision::Allowed { reserved_at, .. }) => {
                Decision::allowed_at(reserved_at)
            }
            (Some(Flaw::NamesEveryShadow), Decision::Allowed { reserved_at, .. }) => {
                let in_shadow = self.in_shadow(request).into_iter();
                let shadow_denied = in_shadow.map(|(state, _)| state.limit.key).collect();
                Decision::Allowed { reserved_at, shadow_denied }
            }
            (Some(Flaw::EnforcesLate), Decision::Denied(denial)) => {
                let admitted = match &denial.reason {
                    DenialReason::Decreasing { key } => self.admit_over_capacity(request, key),
                    _ => None,
                };
                admitted.unwrap_or(Decision::Denied(denial))
            }
            (Some(Flaw::HintsBeyondReset), Decision::Denied(denial)) => {
                let retry_after = denial.retry_after + Duration::from_hours(1);
                Decision::Denied(Denial { retry_after, ..denial })
            }
            (_, decision) => decision,
        }
    }

    /// Units of an ended period are returned to the one that follows.
    fn return_to_next_period(&self, request: &CompleteRequest) {
        let now = self.inner.now();
        let has_ended =
            |held: &CalendarReservation| held.lease == request.lease && held.period_ends_at <= now;
        for ended in self.take(has_ended) {
            let actual = request.actuals.iter().find(|actual| actual.key == ended.key);
            let returned = ended.amount.saturating_sub(actual.map_or(0, |actual| actual.amount));
            let is_next =
                |held: &&CalendarReservation| held.key == ended.key && held.period_ends_at > now;
            let next = self.notes().reserved.iter().find(is_next).cloned();
            if let Some(CalendarReservation { lease, key, amount, .. }) = next {
                self.complete_with(lease, key, amount.saturating_sub(returned));
            }
        }
    }

    /// The instances of a template that are in use or owe a debt.
    fn live_instances(&self, template: &LimitKey) -> Vec<Limit> {
        let Some(pattern) = KeyPattern::new(template).ok().filter(|_| self.flaw.is_some()) else {
            return Vec::new();
        };
        let page = Page { template: Some(pattern), ..Page::default() };
        self.inner.states_now(&page).into_iter().map(|state| state.limit).collect()
    }

    /// Deletes what is reserved of a limit, by a definition of its own that does not last.
    fn forget_use(&self, limit: Limit) {
        let key = limit.key.clone();
        if self.inner.define_now(limit).is_ok() {
            drop(self.inner.delete_now(&key));
        }
    }

    /// A period ends by its new schedule, and what was reserved stays.
    fn apply_schedule(&self, limit: &Limit) {
        let Some(state) = self.inner.state_now(&limit.key) else {
            return;
        };
        let is_calendar = matches!(limit.kind, LimitKind::Calendar { .. });
        if is_calendar
            && state.limit.kind != limit.kind
            && self.inner.delete_now(&limit.key).is_ok()
        {
            drop(self.inner.define_now(limit.clone()));
            self.reserve_more(limit.key.clone(), state.usage.used);
        }
    }
}

/// The bounds on instances as a limiter with this bug has them.
pub(super) fn flawed_bounds(bounds: InstanceBounds, flaw: Option<Flaw>) -> InstanceBounds {
    match flaw {
        Some(Flaw::IgnoresInstanceBounds) => InstanceBounds::WIDE,
        Some(Flaw::DeniesInstancesEarly) => {
            InstanceBounds { count_max: bounds.count_max - 1, ..bounds }
        }
        _ => bounds,
    }
}

impl Limiter for FlawedMemory {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        Ok(self.reserve_in_turn(request, Turn::default()).await?.decision)
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        Ok(self.renew_freeing(request).await?.0)
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.complete_freeing(request).await.map(drop)
    }
}

impl Backend for FlawedMemory {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        Ok(self.define_all(vec![limit]).await?[0])
    }

    async fn define_all(&self, limits: Vec<Limit>) -> Result<Vec<LimitStatus>, DefineError> {
        let mut larger = Vec::new();
        for limit in &limits {
            match self.flaw {
                Some(Flaw::AppliesSchedulesAtOnce) => self.apply_schedule(limit),
                Some(Flaw::ForgetsUseWhenDefined)
                    if self.inner.template_of(&limit.key).is_some() =>
                {
                    self.forget_use(limit.clone());
                }
                Some(Flaw::KeepsInstancesLarge) => {
                    let live = self.live_instances(&limit.key).into_iter();
                    larger.extend(live.filter(|instance| instance.capacity > limit.capacity));
                }
                _ => {}
            }
        }
        let statuses = self.inner.define_all(limits).await?;
        larger.into_iter().for_each(|instance| drop(self.inner.define_now(instance)));
        Ok(statuses)
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let live = self.live_instances(key);
        self.inner.delete_now(key)?;
        if self.flaw == Some(Flaw::DropsInstancesWithTemplate) {
            live.into_iter().for_each(|instance| self.forget_use(instance));
        }
        Ok(())
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        self.inner.state(key).await
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        self.inner.states(page).await
    }

    async fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        self.inner.leases(page).await
    }

    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.inner.release_now(lease)
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        self.inner.forgive_now(key)
    }
}

impl TurnBackend for FlawedMemory {
    async fn reserve_in_turn(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        self.before_request();
        if self.flaw == Some(Flaw::DeniesInShadow)
            && let Some(denied) = self.deny_in_shadow(request)
        {
            return Ok(TurnAnswer::last(denied));
        }
        if self.notes().renews.ended.contains(&request.lease) {
            return Err(ReserveError::LeaseEnded);
        }
        let turn = match self.flaw {
            Some(Flaw::OvertakesWaiters) => Turn { behind: None, ..turn },
            _ => turn,
        };
        let answer = self.inner.reserve_in_turn_now(request, turn)?;
        let decision = self.flawed_decision(request, answer.decision);
        if self.flaw.is_some() && decision.is_allowed() {
            self.note_reserved(request);
            self.notes().renews.admit(request);
        }
        Ok(TurnAnswer { decision, ..answer })
    }

    async fn complete_freeing(
        &self,
        request: &CompleteRequest,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        self.before_request();
        if self.flaw == Some(Flaw::ReturnsToNextPeriod) {
            self.return_to_next_period(request);
        }
        let freed = self.flawed_complete(request)?;
        Ok(if self.flaw == Some(Flaw::LosesWakeUps) { Vec::new() } else { freed })
    }

    async fn renew_freeing(
        &self,
        request: &RenewRequest,
    ) -> Result<(Renewal, Vec<LimitKey>), RenewError> {
        self.before_request();
        self.flawed_renew(request)
    }
}

impl HostedBackend for FlawedMemory {
    async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        HostedBackend::restore(&self.inner, registered).await
    }

    async fn check(&self, limits: &[Limit]) -> Result<(), DefineError> {
        self.inner.check(limits).await
    }

    async fn visible_states(
        &self,
        page: &Page,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, StateError> {
        self.inner.visible_states(page, is_visible).await
    }

    async fn visible_leases(
        &self,
        page: &LeasePage,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        self.inner.visible_leases(page, is_visible).await
    }

    async fn ready(&self) -> Result<(), NotReady> {
        self.inner.ready().await
    }

    async fn tick(&self, runtime: &dyn Runtime) {
        if self.flaw != Some(Flaw::NeverDropsInstances) {
            HostedBackend::tick(&self.inner, runtime).await;
        }
    }

    fn open_leases(&self) -> Option<u64> {
        HostedBackend::open_leases(&self.inner)
    }
}

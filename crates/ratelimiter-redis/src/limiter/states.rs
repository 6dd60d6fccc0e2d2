//! Usage of limits.

use ratelimiter::{
    Capacity, ForgiveError, KeyPattern, Limit, LimitKey, LimitMode, LimitState, Page,
    RegisteredLimit, StateError, Unanswered, Usage,
};
use redis::Cmd;

use super::{Next, RedisLimiter};
use crate::definitions::{Definitions, KnownLimit};
use crate::reply::Reply;
use crate::script::ScriptName;

/// The limits of one call.
const STATES_MAX: usize = 64;

impl RedisLimiter {
    /// A page of the limits that are listed.
    ///
    /// # Errors
    /// As for [`Backend::states`](ratelimiter::Backend::states).
    pub async fn states_where(
        &self,
        page: &Page,
        is_listed: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, StateError> {
        self.has_present_definitions().await?;
        if let Some(template) = &page.template {
            return Ok(self.instance_states(template, page, &is_listed).await?);
        }
        let keys: Vec<LimitKey> = {
            let definitions = self.definitions();
            let all = Page { count_max: None, ..page.clone() };
            let keys = definitions.registry.page(&all).map(|registered| &registered.limit.key);
            let keys = keys.filter(|key| is_listed(key));
            keys.take(page.count_max.unwrap_or(usize::MAX)).cloned().collect()
        };
        Ok(self.states_of(&keys).await?.into_iter().flatten().collect())
    }

    /// The state of a limit, of a template, or of a key that a template governs.
    pub(super) async fn state_of(&self, key: &LimitKey) -> Result<Option<LimitState>, Unanswered> {
        loop {
            if self.is_known(key) {
                let mut states = self.states_of(std::slice::from_ref(key)).await?;
                return Ok(states.pop().flatten());
            }
            if self.has_present_definitions().await? {
                return Ok(None);
            }
        }
    }

    fn is_known(&self, key: &LimitKey) -> bool {
        self.definitions().find(key).is_some()
    }

    /// The instances of a template that are in use or owe a debt.
    async fn instance_states(
        &self,
        template: &KeyPattern,
        page: &Page,
        is_listed: impl Fn(&LimitKey) -> bool,
    ) -> Result<Vec<LimitState>, Unanswered> {
        let first = page
            .after
            .as_ref()
            .map(LimitKey::as_str)
            .filter(|after| *after >= page.prefix.as_str());
        let (mut states, mut after) = (Vec::new(), first.map(str::to_owned));
        let count_max = page.count_max.unwrap_or(usize::MAX);
        while states.len() < count_max {
            let keys = self.instance_keys(template.key().as_str(), after.as_deref(), STATES_MAX);
            let mut keys = keys.await?;
            let Some(last) = keys.last() else { break };
            after = Some(last.as_str().to_owned());
            keys.retain(|key| page.has(key) && is_listed(key));
            let found = self.states_of(&keys).await?.into_iter().flatten();
            states
                .extend(found.filter(|LimitState { usage, .. }| usage.used > 0 || usage.debt > 0));
        }
        states.truncate(count_max);
        Ok(states)
    }

    /// The states of these limits; `None` where a key is not defined.
    pub(super) async fn states_of(
        &self,
        keys: &[LimitKey],
    ) -> Result<Vec<Option<LimitState>>, Unanswered> {
        let mut states = Vec::with_capacity(keys.len());
        for some in keys.chunks(STATES_MAX) {
            states.extend(self.some_states(some).await?);
        }
        Ok(states)
    }

    async fn some_states(&self, keys: &[LimitKey]) -> Result<Vec<Option<LimitState>>, Unanswered> {
        let script = ScriptName::States;
        loop {
            let (call, generation, asked) = self.states_call(keys);
            let rows = if asked == 0 {
                Vec::new()
            } else {
                match self.next(self.redis.run(script, &call).await?, &generation).await? {
                    Next::Done(reply) => reply.rows(2)?,
                    Next::Again | Next::Rebuild => continue,
                }
            };
            let definitions = self.definitions();
            if definitions.generation == generation {
                return self.read_states(&definitions, keys, &rows);
            }
        }
    }

    /// A call for those of the keys that are limits, and their number.
    fn states_call(&self, keys: &[LimitKey]) -> (Cmd, String, usize) {
        let definitions = self.definitions();
        let mut call = self.redis.call(ScriptName::States);
        call.arg(&definitions.generation);
        let (now, mut asked) = (self.redis_now(), 0);
        for key in keys.iter().filter(|key| !key.is_template()) {
            if let Some(known) = definitions.find(key) {
                known.add_to(&mut call, key, now);
                asked += 1;
            }
        }
        (call, definitions.generation.clone(), asked)
    }

    fn read_states(
        &self,
        definitions: &Definitions,
        keys: &[LimitKey],
        rows: &[Reply],
    ) -> Result<Vec<Option<LimitState>>, Unanswered> {
        let uncovered = self.lock_uncovered();
        let mut rows = rows.iter();
        let state = |key: &LimitKey| {
            let Some(known) = definitions.find(key) else { return Ok(None) };
            if key.is_template() {
                return Ok(Some(definitions.templates.state(self.redis_now(), known.limit)));
            }
            let Some(row) = rows.next() else { return Ok(None) };
            let uncovered = uncovered.get(key).copied().unwrap_or(0);
            read_state(key, &known, row, uncovered).map(Some)
        };
        keys.iter().map(state).collect()
    }

    pub(super) async fn forgive_debt(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        loop {
            let build = |definitions: &Definitions, mut call: Cmd| {
                let Some(known) = definitions.find(key) else {
                    return Err(ForgiveError::UnknownKey { key: key.clone() });
                };
                call.arg(&definitions.generation);
                known.add_to(&mut call, key, self.redis_now());
                Ok(call)
            };
            match self.ask(ScriptName::Forgive, build).await {
                Err(error @ ForgiveError::UnknownKey { .. }) => {
                    if self.has_present_definitions().await? {
                        return Err(error);
                    }
                }
                reply => return Ok(reply?.decimal(2)?),
            }
        }
    }

    /// Those of the limits that may have room for these amounts.
    pub(super) async fn limits_with_room(
        &self,
        amounts: &[(LimitKey, u64)],
    ) -> Result<Vec<LimitKey>, Unanswered> {
        let keys: Vec<_> = amounts.iter().map(|(key, _)| key.clone()).collect();
        let states = self.states_of(&keys).await?;
        let has_room = |state: &Option<LimitState>, amount: u64| match state {
            Some(state) if state.limit.mode == LimitMode::Shadow => true,
            Some(state) => !state.waits() && state.usage.available >= amount,
            // Whoever waits for it is told.
            None => true,
        };
        let pairs = amounts.iter().zip(&states);
        let with_room = pairs.filter(|((_, amount), state)| has_room(state, *amount));
        Ok(with_room.map(|((key, _), _)| key.clone()).collect())
    }
}

/// The state of a limit from what `states.lua` answers.
fn read_state(
    key: &LimitKey,
    known: &KnownLimit<'_>,
    row: &Reply,
    uncovered: u128,
) -> Result<LimitState, Unanswered> {
    let (used, is_decreasing, ceiling) = (row.number(0)?, row.number(1)? == 1, row.number(2)?);
    let mut limit = Limit { key: key.clone(), ..known.limit.clone() };
    let (target, in_force) =
        (limit.capacity, Capacity::new(ceiling).map_err(|_| row.unexpected())?);
    let RegisteredLimit { limit, status } = match is_decreasing {
        true => {
            limit.capacity = in_force;
            RegisteredLimit::going_down(limit, target)
        }
        false => RegisteredLimit::in_force(limit),
    };
    let available = limit.capacity.get().saturating_sub(used);
    let usage = Usage { used, available, debt: row.decimal(4)?, uncovered };
    let resets_at = row.moment(3).filter(|moment| moment.unix_nanos() > 0);
    Ok(LimitState { limit, status, usage, resets_at })
}

//! Definitions: each change replaces the document in Redis, if nobody else has changed it meanwhile.

use std::sync::PoisonError;

use ratelimiter::{
    DefineError, DeleteError, KeyPattern, Limit, LimitKey, LimitKind, LimitMode, LimitState,
    LimitStatus, RegisteredLimit, Registry, TEMPLATES_MAX, Unanswered, check_new_key,
};
use ratelimiter_wire::PreservedFields;
use redis::{Cmd, cmd};

use super::{CAPACITY_MAX, Next, RedisLimiter};
use crate::definitions::{Definitions, add_undefined, kind_letter, kind_name};
use crate::reply::text;
use crate::script::ScriptName;

/// The limits that one call moves to another template.
const REALIGN_MAX: usize = 200;

/// The definitions after a change, and what the change does to limits in use.
struct Change {
    /// The generation that it is based on.
    generation: String,
    registry: Registry,
    preserved: PreservedFields,
    deleted: Vec<LimitKey>,
    /// Limits whose definitions change, or are new.
    defined: Vec<Limit>,
    changes_templates: bool,
}

/// What became of a change.
enum Outcome {
    Applied,
    /// Nothing to change.
    Same,
    /// The definitions have changed meanwhile.
    Outdated,
    /// A limit in use was made from a template of another kind.
    Conflict {
        key: LimitKey,
        is: &'static str,
    },
}

impl RedisLimiter {
    pub(super) async fn define_limits(
        &self,
        limits: Vec<Limit>,
    ) -> Result<Vec<LimitStatus>, DefineError> {
        for limit in &limits {
            if limit.capacity.get() > CAPACITY_MAX {
                let (key, capacity_max) = (limit.key.clone(), CAPACITY_MAX);
                return Err(DefineError::CapacityOutOfRange { key, capacity_max });
            }
        }
        loop {
            let planned = Change::define(&self.definitions(), &limits);
            let change = match planned {
                Ok(change) => change,
                // The definitions may be outdated.
                Err(error) if self.has_present_definitions().await? => return Err(error),
                Err(_) => continue,
            };
            match self.apply(change).await? {
                Outcome::Applied | Outcome::Same => break,
                Outcome::Outdated => {}
                Outcome::Conflict { key, is } => return Err(DefineError::KindConflict { key, is }),
            }
        }
        let keys: Vec<_> = limits.iter().map(|limit| limit.key.clone()).collect();
        let states = self.states_of(&keys).await?;
        let status = |(limit, state): (Limit, Option<LimitState>)| match state {
            Some(state) => state.status,
            // Another server has deleted it since.
            None => RegisteredLimit::in_force(limit).status,
        };
        Ok(limits.into_iter().zip(states).map(status).collect())
    }

    pub(super) async fn delete_limit(&self, key: &LimitKey) -> Result<(), DeleteError> {
        loop {
            let change = Change::delete(&self.definitions(), key);
            let Some(change) = change else {
                if self.has_present_definitions().await? {
                    return Err(DeleteError::UnknownKey { key: key.clone() });
                }
                continue;
            };
            match self.apply(change).await? {
                Outcome::Applied | Outcome::Same => break,
                Outcome::Outdated | Outcome::Conflict { .. } => {}
            }
        }
        self.lock_uncovered().remove(key);
        Ok(())
    }

    async fn apply(&self, change: Change) -> Result<Outcome, Unanswered> {
        if self.definitions().registry == change.registry {
            let is_same = self.has_present_definitions().await?;
            return Ok(if is_same { Outcome::Same } else { Outcome::Outdated });
        }
        let generation = format!("{:016x}", fastrand::u64(..));
        let reply = loop {
            let call = self.define_call(&change, &generation);
            match self
                .next(self.redis.run(ScriptName::Define, &call).await?, &change.generation)
                .await?
            {
                Next::Done(reply) => break reply,
                Next::Again => {}
                Next::Rebuild if self.definitions().generation == change.generation => {}
                Next::Rebuild => return Ok(Outcome::Outdated),
            }
        };
        match reply.status() {
            "defined" => {}
            "conflict" => {
                let key = LimitKey::new(reply.text(2)?).map_err(|_| reply.unexpected())?;
                return Ok(Outcome::Conflict { key, is: kind_name(reply.text(3)?) });
            }
            _ => return Err(reply.unexpected()),
        }
        let Change { generation: before, registry, preserved, changes_templates, .. } = change;
        {
            let mut definitions = self.definitions.write().unwrap_or_else(PoisonError::into_inner);
            // Another server may have changed them since, and this one has read that.
            if definitions.generation == before {
                definitions.replace(generation, registry, preserved);
            }
        }
        if changes_templates {
            self.realign().await?;
        }
        Ok(Outcome::Applied)
    }

    fn define_call(&self, change: &Change, generation: &str) -> Cmd {
        let Change { registry, preserved, deleted, defined, .. } = change;
        let mut call = self.redis.call(ScriptName::Define);
        call.arg(&change.generation).arg(generation).arg(preserved.write(registry.iter()));
        call.arg(deleted.len());
        for key in deleted {
            call.arg(key.as_str());
        }
        let (definitions, now) = (self.definitions(), self.redis_now());
        for limit in defined {
            let before = definitions.find(&limit.key);
            let resets_change = before.is_some_and(|before| {
                before.template().is_none() && before.limit.kind != limit.kind
            });
            let resets_change = resets_change && matches!(limit.kind, LimitKind::Calendar { .. });
            call.arg(kind_letter(limit.kind, LimitMode::Enforce)).arg(u8::from(resets_change));
            match before {
                Some(before) => before.add_to(&mut call, &limit.key, now),
                None => add_undefined(&mut call, &limit.key),
            }
        }
        call
    }

    /// Lets limits that were made from templates follow a change of templates (`TPL-04`). A reserve does the same for its limits, so no
    /// decision depends on when this ends.
    pub(super) async fn realign(&self) -> Result<(), Unanswered> {
        for (template, _) in self.count_instances().await? {
            let mut after: Option<String> = None;
            loop {
                let keys =
                    self.instance_keys(template.as_str(), after.as_deref(), REALIGN_MAX).await?;
                let Some(last) = keys.last() else { break };
                after = Some(last.as_str().to_owned());
                self.realign_some(&template, &keys).await?;
            }
        }
        Ok(())
    }

    async fn realign_some(&self, template: &LimitKey, keys: &[LimitKey]) -> Result<(), Unanswered> {
        let build = |definitions: &Definitions, mut call: Cmd| {
            call.arg(&definitions.generation).arg(template.as_str());
            for key in keys {
                match definitions.find(key) {
                    Some(known) => known.add_to(&mut call, key, self.redis_now()),
                    None => add_undefined(&mut call, key),
                }
            }
            Ok::<_, Unanswered>(call)
        };
        self.ask(ScriptName::Realign, build).await.map(drop)
    }

    /// The number of limits made from each template, deleted templates too.
    pub(super) async fn count_instances(&self) -> Result<Vec<(LimitKey, usize)>, Unanswered> {
        let counts = format!("{}instance_counts", self.redis.config().prefix);
        let answer = self.redis.command(cmd("HGETALL").arg(counts)).await?;
        let fields: Vec<&str> = match &answer {
            redis::Value::Array(values) => {
                values.iter().map(|value| text(Some(value)).unwrap_or_default()).collect()
            }
            _ => Vec::new(),
        };
        let count = |field: &[&str]| {
            let key = LimitKey::new(field[0]).ok().filter(LimitKey::is_template)?;
            Some((key, field[1].parse().ok()?))
        };
        Ok(fields.chunks_exact(2).filter_map(count).collect())
    }

    /// Keys of limits that were made from a template, sorted.
    pub(super) async fn instance_keys(
        &self,
        template: &str,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<LimitKey>, Unanswered> {
        let name = format!("{}instances:{template}", self.redis.config().prefix);
        let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let mut page = cmd("ZRANGEBYLEX");
        page.arg(name).arg(from).arg("+").arg("LIMIT").arg(0).arg(count_max);
        let answer = self.redis.command(&page).await?;
        let redis::Value::Array(values) = answer else { return Ok(Vec::new()) };
        let key = |value: &redis::Value| LimitKey::new(text(Some(value))?).ok();
        Ok(values.iter().filter_map(key).collect())
    }
}

impl Change {
    fn of(definitions: &Definitions) -> Self {
        Self {
            generation: definitions.generation.clone(),
            registry: definitions.registry.clone(),
            preserved: definitions.preserved.clone(),
            deleted: Vec::new(),
            defined: Vec::new(),
            changes_templates: false,
        }
    }

    /// The definitions with these limits.
    fn define(definitions: &Definitions, limits: &[Limit]) -> Result<Self, DefineError> {
        let mut change = Self::of(definitions);
        for limit in limits {
            let key = &limit.key;
            match change.registry.get(key).map(|before| &before.limit) {
                None => check_new_key(key)?,
                Some(before) if !before.kind.is_same_kind(limit.kind) => {
                    let is = before.kind.name();
                    return Err(DefineError::KindConflict { key: key.clone(), is });
                }
                Some(before) if before == limit => continue,
                Some(_) => {}
            }
            change.registry.put(RegisteredLimit::in_force(limit.clone()));
            match key.is_template() {
                true => change.changes_templates = true,
                false => change.defined.push(limit.clone()),
            }
        }
        if change.registry.template_count() > TEMPLATES_MAX && change.changes_templates {
            return Err(DefineError::TooManyTemplates { templates_max: TEMPLATES_MAX });
        }
        Ok(change)
    }

    /// The definitions without this limit; `None` if it is not defined.
    fn delete(definitions: &Definitions, key: &LimitKey) -> Option<Self> {
        let mut change = Self::of(definitions);
        change.registry.remove(key)?;
        change.preserved.forget(key);
        match KeyPattern::new(key) {
            Ok(_) if key.is_template() => change.changes_templates = true,
            _ => change.deleted.push(key.clone()),
        }
        Some(change)
    }
}

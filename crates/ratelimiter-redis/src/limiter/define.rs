//! Definitions: each change replaces the document in Redis, if nobody else has changed it meanwhile.

use std::sync::PoisonError;

use ratelimiter::{
    DefineError, DeleteError, KeyPattern, Limit, LimitKey, LimitKind, LimitMode, LimitStatus,
    RegisteredLimit, Registry, TEMPLATES_MAX, Unanswered, check_new_key,
};
use ratelimiter_wire::PreservedFields;
use redis::{Cmd, cmd};

use super::{CAPACITY_MAX, Next, RedisLimiter};
use crate::definitions::{Definitions, kind_letter, kind_name, micros};
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
    /// Limits that are defined newly; those in use may have been made from templates.
    new: Vec<(LimitKey, LimitKind)>,
    /// Calendar limits whose resets change, as they were.
    calendars: Vec<(LimitKey, LimitKind)>,
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
    Conflict { key: LimitKey, is: &'static str },
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
            let settled = self.settled(&limits).await?;
            let planned = Change::define(&self.definitions(), &limits, &settled);
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
        let mut statuses = Vec::with_capacity(limits.len());
        for limit in &limits {
            let state = self.state_of(&limit.key).await?;
            // Another server may have deleted it since.
            let as_defined = RegisteredLimit::in_force(limit.clone()).status;
            statuses.push(state.map_or(as_defined, |state| state.status));
        }
        Ok(statuses)
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

    /// Those of the limits whose pending decrease applies by now.
    async fn settled(&self, limits: &[Limit]) -> Result<Vec<LimitKey>, Unanswered> {
        let pending: Vec<LimitKey> = {
            let definitions = self.definitions();
            let waits = |key: &&LimitKey| {
                definitions.registry.get(key).is_some_and(RegisteredLimit::waits)
            };
            limits.iter().map(|limit| &limit.key).filter(waits).cloned().collect()
        };
        let mut settled = Vec::new();
        for key in pending {
            if self.state_of(&key).await?.is_some_and(|state| !state.waits()) {
                settled.push(key);
            }
        }
        Ok(settled)
    }

    async fn apply(&self, change: Change) -> Result<Outcome, Unanswered> {
        if self.definitions().registry == change.registry {
            let is_same = self.has_present_definitions().await?;
            return Ok(if is_same { Outcome::Same } else { Outcome::Outdated });
        }
        let generation = format!("{:016x}", fastrand::u64(..));
        let reply = loop {
            let call = self.define_call(&change, &generation);
            match self.next(self.redis.run(ScriptName::Define, &call).await?, &change.generation).await? {
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
        let Change { registry, preserved, deleted, new, calendars, .. } = change;
        let mut call = self.redis.call(ScriptName::Define);
        call.arg(&change.generation).arg(generation).arg(preserved.write(registry.iter()));
        call.arg(deleted.len());
        for key in deleted {
            call.arg(key.as_str());
        }
        call.arg(new.len());
        for (key, kind) in new {
            call.arg(key.as_str()).arg(kind_letter(*kind, LimitMode::Enforce));
        }
        let now = self.redis_now();
        for (key, before) in calendars {
            call.arg(key.as_str()).arg(micros(now)).arg(micros(before.expires_at(now)));
        }
        call
    }

    /// Moves limits that were made from templates to those that govern them now (`TPL-04`). A reserve does the same for its limits, so
    /// nothing depends on when this ends.
    async fn realign(&self) -> Result<(), Unanswered> {
        for (template, _) in self.count_instances().await? {
            let mut after: Option<String> = None;
            loop {
                let keys = self.instance_keys(template.as_str(), after.as_deref(), REALIGN_MAX).await?;
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
                    Some(known) if known.template() == Some(template) => {}
                    Some(known) if known.registered.is_some() => {
                        call.arg(key.as_str()).arg("").arg("defined");
                    }
                    Some(known) => {
                        let kind = kind_letter(known.limit.kind, LimitMode::Enforce);
                        call.arg(key.as_str()).arg(known.limit.key.as_str()).arg(kind);
                    }
                    None => {
                        call.arg(key.as_str()).arg("").arg("");
                    }
                }
            }
            Ok::<_, Unanswered>(call)
        };
        self.ask(ScriptName::Realign, build).await.map(drop)
    }

    /// The number of limits made from each template, deleted templates too.
    pub(super) async fn count_instances(&self) -> Result<Vec<(LimitKey, usize)>, Unanswered> {
        let counts = format!("{}:instance_counts", self.redis.config().prefix);
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
        let name = format!("{}:instances:{template}", self.redis.config().prefix);
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
            new: Vec::new(),
            calendars: Vec::new(),
            changes_templates: false,
        }
    }

    /// The definitions with these limits. The pending decreases of those in `settled` apply.
    fn define(
        definitions: &Definitions,
        limits: &[Limit],
        settled: &[LimitKey],
    ) -> Result<Self, DefineError> {
        let mut change = Self::of(definitions);
        for key in settled {
            if let Some(registered) = change.registry.get_mut(key) {
                registered.settle();
            }
        }
        for limit in limits {
            let (key, kind) = (limit.key.clone(), limit.kind);
            let before = definitions.registry.get(&key).map(|before| &before.limit);
            if key.is_template() {
                let is_other = |before: &Limit| !before.kind.is_same_kind(kind);
                if let Some(before) = before.filter(|before| is_other(before)) {
                    return Err(DefineError::KindConflict { key, is: before.kind.name() });
                }
                check_new_key(&key)?;
                change.changes_templates |= before != Some(limit);
                change.registry.put(RegisteredLimit::in_force(limit.clone()));
                continue;
            }
            let planned = change.registry.plan(limit.clone())?;
            match before {
                None => change.new.push((key, kind)),
                Some(before) if before.kind != kind && !kind.is_concurrency() => {
                    if matches!(kind, LimitKind::Calendar { .. }) {
                        change.calendars.push((key, before.kind));
                    }
                }
                Some(_) => {}
            }
            change.registry.put(planned);
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

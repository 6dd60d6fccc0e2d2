//! The definitions, as they are in Redis.
//!
//! They say which capacity is requested; whether it is in force follows from what is in use. Every change gives them another generation. Each script compares it with the one that its caller knows, so no request is decided by an
//! outdated definition; a caller that is behind reads them again.

use ratelimiter::clock::Timestamp;
use ratelimiter::{CountedTemplates, Limit, LimitKey, LimitKind, LimitMode, Overage, Registry};
use ratelimiter_wire::PreservedFields;
use redis::Cmd;

/// The definitions of one generation.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// Empty if Redis has none.
    pub(crate) generation: String,
    pub(crate) registry: Registry,
    /// What a newer version stored, to be stored again.
    pub(crate) preserved: PreservedFields,
    pub(crate) templates: CountedTemplates,
}

/// The definition of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownLimit<'a> {
    /// The limit, or the template that governs the key.
    pub(crate) limit: &'a Limit,
    /// It is a template.
    is_template: bool,
}

impl Definitions {
    /// Replaces the definitions.
    pub(crate) fn replace(
        &mut self,
        generation: String,
        registry: Registry,
        preserved: PreservedFields,
    ) {
        let templates = self.templates.all().iter().map(|template| template.key.clone());
        let gone = templates.filter(|key| registry.get(key).is_none());
        for key in gone.collect::<Vec<_>>() {
            self.templates.remove(&key);
        }
        for template in registry.iter().filter(|one| one.limit.key.is_template()) {
            let is_pattern = self.templates.restore(template.limit.clone());
            if let Err(error) = is_pattern {
                tracing::error!(%error, "a template in redis is ignored");
            }
        }
        (self.generation, self.registry, self.preserved) = (generation, registry, preserved);
    }

    /// The definition of a key, or the template that governs it.
    pub(crate) fn find(&self, key: &LimitKey) -> Option<KnownLimit<'_>> {
        if let Some(registered) = self.registry.get(key) {
            return Some(KnownLimit { limit: &registered.limit, is_template: false });
        }
        let template = self.templates.all().find(key);
        template.map(|limit| KnownLimit { limit, is_template: true })
    }
}

impl KnownLimit<'_> {
    /// The key of the template that governs it.
    pub(crate) fn template(&self) -> Option<&LimitKey> {
        self.is_template.then_some(&self.limit.key)
    }

    pub(crate) fn is_debt(&self) -> bool {
        self.limit.overage == Overage::Debt
    }

    /// Adds the definition to the arguments of a script, in the order of `definition` in `prelude.lua`.
    pub(crate) fn add_to(&self, call: &mut Cmd, key: &LimitKey, now: Timestamp) {
        let LimitTime { life, since } = LimitTime::of(self.limit.kind, now);
        call.arg(key.as_str())
            .arg(kind_letter(self.limit.kind, self.limit.mode))
            .arg(life)
            .arg(self.limit.capacity.get())
            .arg(self.template().map_or("", LimitKey::as_str))
            .arg(since);
    }
}

/// Adds a key that is not defined to the arguments of a script.
pub(crate) fn add_undefined(call: &mut Cmd, key: &LimitKey) {
    call.arg(key.as_str()).arg("").arg(0).arg(0).arg("").arg(0);
}

/// When reservations of a limit expire, in microseconds.
struct LimitTime {
    /// After this time; of a calendar limit, at this time.
    life: u64,
    /// Of a calendar limit, the moment that `life` is the next reset of.
    since: u64,
}

impl LimitTime {
    fn of(kind: LimitKind, now: Timestamp) -> Self {
        match kind.lifetime_seconds() {
            Some(seconds) => Self { life: u64::from(seconds) * 1_000_000, since: 0 },
            None => Self { life: micros(kind.expires_at(now)), since: micros(now) },
        }
    }
}

/// Microseconds since the Unix epoch.
pub(crate) const fn micros(moment: Timestamp) -> u64 {
    moment.unix_nanos() / 1_000
}

/// The name of a kind in the scripts; a capital in shadow mode.
pub(crate) const fn kind_letter(kind: LimitKind, mode: LimitMode) -> &'static str {
    match (kind, mode) {
        (LimitKind::Rolling { .. }, LimitMode::Enforce) => "r",
        (LimitKind::Rolling { .. }, LimitMode::Shadow) => "R",
        (LimitKind::Concurrency { .. }, LimitMode::Enforce) => "c",
        (LimitKind::Concurrency { .. }, LimitMode::Shadow) => "C",
        (LimitKind::Calendar { .. }, LimitMode::Enforce) => "k",
        (LimitKind::Calendar { .. }, LimitMode::Shadow) => "K",
    }
}

/// The name of the kind with this letter.
pub(crate) fn kind_name(letter: &str) -> &'static str {
    match letter {
        "c" => "concurrency",
        "k" => "calendar",
        _ => "rolling",
    }
}

//! The keys of limits and templates, which plans know by their numbers.

use std::ops::Range;

use ratelimiter::LimitKey;

/// What follows `global:llm:p:` in the keys, in the order of the numbers: the limits of one model, which are one group in memory, and one
/// of another model; then, in plans with templates, the limits that templates match, and the templates.
const KEYS: [&str; 11] = [
    "m:concurrency",
    "m:rpm",
    "m:tpm",
    "n:rpm",
    "t:a:rpm",
    "t:a:tpm",
    "t:b:rpm",
    "t:b:tpm",
    "t:*:rpm",
    "t:a:*",
    "t:**",
];
/// The limits that no template matches.
pub(crate) const UNMATCHED: Range<usize> = 0..4;
/// The limits that templates match. All have the same kind and overage, like the templates.
pub(crate) const MATCHED: Range<usize> = 4..8;
/// The templates are numbered like limits: they are defined and deleted like any.
pub(crate) const TEMPLATES: Range<usize> = 8..11;
/// The same of the other model's limits, which no plan has.
pub(crate) const OTHER_KEYS: [&str; 2] = ["n:concurrency", "n:tpm"];
const PREFIX: &str = "global:llm:p:";

/// The key of a limit.
pub(crate) fn key(number: usize) -> LimitKey {
    key_of(KEYS[number])
}

pub(crate) fn key_of(rest: &str) -> LimitKey {
    LimitKey::new(format!("{PREFIX}{rest}")).expect("a text without white space")
}

/// The templates that match a limit, the first to govern it first (`TPL-02`).
pub(crate) const fn templates_of(number: usize) -> &'static [usize] {
    match number {
        4 => &[8, 9, 10],
        5 => &[9, 10],
        6 => &[8, 10],
        7 => &[10],
        _ => &[],
    }
}

/// The key of the limit that no lease uses.
pub(crate) fn extra_key() -> LimitKey {
    key_of("o:rpm")
}

/// The number of the limit that has this key.
pub(crate) fn number(key: &LimitKey) -> usize {
    let is_it = |rest: &&str| key.as_str().strip_prefix(PREFIX) == Some(rest);
    KEYS.iter().position(is_it).expect("plans have only these")
}

#[cfg(test)]
mod tests {
    use ratelimiter::{Overage, Templates};

    use super::*;
    use crate::limits::plan::{LimitSetup, SetupKind};

    /// TPL-02
    #[test]
    fn tpl_02_the_first_template_of_a_limit_is_the_most_specific_one() {
        let kind = SetupKind::Rolling { seconds: 1 };
        let overage = Overage::Debt;
        let setup = LimitSetup { kind, capacity: 1, overage, is_shadow: false, is_defined: true };
        for limit in UNMATCHED.chain(MATCHED) {
            let mut templates = Templates::default();
            for template in TEMPLATES {
                templates.put(setup.limit(template, setup.definition())).expect("it is a template");
            }
            let mut found = Vec::new();
            while let Some(template) = templates.find(&key(limit)).map(|found| found.key.clone()) {
                found.push(number(&template));
                templates.remove(&template);
            }
            assert_eq!(found, templates_of(limit), "{}", key(limit));
        }
    }
}

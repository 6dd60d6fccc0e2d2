//! Templates: definitions from which limits are made for keys that nobody listed.

mod instances;

use crate::error::DefineError;
use crate::key::{KeyPattern, LimitKey};
use crate::limit::Limit;

pub use self::instances::{
    CountedTemplates, InstanceBounds, InstanceMark, NewInstance, NewInstances, NoInstance,
};

/// The most templates there may be: the first reserve of a key looks at all of them.
pub const TEMPLATES_MAX: usize = 1_000;

/// The defined templates, the most specific first.
///
/// ```
/// use ratelimiter::{Capacity, Limit, LimitKey, LimitKind, Templates, Window};
///
/// let kind = LimitKind::Rolling { window: Window::from_seconds(86_400)? };
/// let mut templates = Templates::default();
/// let key = LimitKey::new("tenant:*:llm:daily_tokens")?;
/// templates.put(Limit::new(key, kind, Capacity::new(1_000)?))?;
///
/// let acme = LimitKey::tenant_daily_tokens("acme")?;
/// let limit = templates.instance(&acme).expect("it matches");
/// assert_eq!((limit.key, limit.capacity.get()), (acme, 1_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Templates {
    /// Sorted by [`KeyPattern::cmp_specificity`]; the key of each is its pattern. At most [`TEMPLATES_MAX`], and for a moment more
    /// while a changed registry is restored.
    sorted: Vec<(KeyPattern, Limit)>,
}

impl Templates {
    /// The template that governs a key which is not defined itself: the most specific one that matches. None governs a key with a
    /// `*`, wherever it is. Takes time in proportion to the number of templates.
    pub fn find(&self, key: &LimitKey) -> Option<&Limit> {
        if key.as_str().contains('*') {
            return None;
        }
        let matching = self.sorted.iter().find(|(pattern, _)| pattern.matches(key));
        matching.map(|(_, limit)| limit)
    }

    /// The limit that is made for such a key: the definition of its template, with this key.
    pub fn instance(&self, key: &LimitKey) -> Option<Limit> {
        self.find(key).map(|template| instance_of(template, key))
    }

    /// The template with this key.
    pub fn get(&self, key: &LimitKey) -> Option<&Limit> {
        self.sorted.iter().find(|(pattern, _)| pattern.key() == key).map(|(_, limit)| limit)
    }

    /// Adds a template, or replaces the one with its key.
    ///
    /// # Errors
    /// The key is no pattern, or has neither `*` nor `**`; or there are [`TEMPLATES_MAX`] others.
    pub fn put(&mut self, template: Limit) -> Result<(), DefineError> {
        self.check_count(usize::from(self.get(&template.key).is_none()))?;
        self.restore(template)
    }

    /// The same, however many there are: a registry has checked that.
    pub(crate) fn restore(&mut self, template: Limit) -> Result<(), DefineError> {
        let pattern = pattern_of(&template.key)?;
        if !template.key.is_template() {
            return Err(invalid(&template.key, "a template needs a `*` or `**`"));
        }
        match self.sorted.binary_search_by(|(other, _)| other.cmp_specificity(&pattern)) {
            Ok(at) => self.sorted[at].1 = template,
            Err(at) => self.sorted.insert(at, (pattern, template)),
        }
        Ok(())
    }

    /// Whether so many templates may be added.
    pub(crate) fn check_count(&self, new_count: usize) -> Result<(), DefineError> {
        match self.sorted.len() + new_count > TEMPLATES_MAX && new_count > 0 {
            true => Err(DefineError::TooManyTemplates { templates_max: TEMPLATES_MAX }),
            false => Ok(()),
        }
    }

    /// Removes and returns the template with this key.
    pub fn remove(&mut self, key: &LimitKey) -> Option<Limit> {
        let at = self.sorted.iter().position(|(pattern, _)| pattern.key() == key)?;
        Some(self.sorted.remove(at).1)
    }

    /// All templates, the most specific first.
    pub fn iter(&self) -> impl Iterator<Item = &Limit> {
        self.sorted.iter().map(|(_, limit)| limit)
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

/// The definition of a template, with the key of an instance.
pub(crate) fn instance_of(template: &Limit, key: &LimitKey) -> Limit {
    Limit { key: key.clone(), ..template.clone() }
}

/// Checks the key of a new definition: a `*` in it must be a whole segment of a pattern. Limits of the first edition may have
/// others.
///
/// # Errors
/// The key has another `*`.
pub fn check_new_key(key: &LimitKey) -> Result<(), DefineError> {
    pattern_of(key).map(drop)
}

fn pattern_of(key: &LimitKey) -> Result<KeyPattern, DefineError> {
    KeyPattern::new(key).map_err(|error| invalid(key, &error.to_string()))
}

fn invalid(key: &LimitKey, reason: &str) -> DefineError {
    DefineError::InvalidKey { key: key.clone(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Capacity, LimitKind, Window};

    fn key(text: &str) -> LimitKey {
        LimitKey::new(text).unwrap()
    }

    fn template(text: &str, capacity: u64) -> Limit {
        let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
        Limit::new(key(text), kind, Capacity::new(capacity).unwrap())
    }

    fn templates(texts: &str) -> Templates {
        let mut templates = Templates::default();
        for text in texts.split(' ') {
            templates.put(template(text, 1)).unwrap();
        }
        templates
    }

    /// TPL-01, TPL-02
    #[test]
    fn tpl_02_the_most_specific_template_wins() {
        for (texts, asked, expected) in [
            // None, one, several.
            ("a:*", "b:x", None),
            ("a:*", "a", None),
            ("a:*", "a:x", Some("a:*")),
            ("a:* b:*", "b:x", Some("b:*")),
            // A template is not governed by another, nor is a key of the first edition.
            ("a:**", "a:*", None),
            ("a:*", "a:b*", None),
            ("a:**", "a:b*:c", None),
            // More literal segments.
            ("a:*:* a:*:c", "a:b:c", Some("a:*:c")),
            ("a:*:c a:*:*", "a:b:d", Some("a:*:*")),
            ("a:** a:**:d", "a:b:c:d", Some("a:**:d")),
            ("*:b:c a:*:*", "a:b:c", Some("*:b:c")),
            ("**:b:c a:*:*", "a:b:c", Some("**:b:c")),
            // Then fewer `**`.
            ("a:** a:*", "a:x", Some("a:*")),
            ("a:**:c z:** *:b:c", "a:b:c", Some("*:b:c")),
            ("a:** a:*", "a:x:y", Some("a:**")),
            // Then the lesser key.
            ("a:*:c *:b:c", "a:b:c", Some("*:b:c")),
            ("a:b:* a:*:c", "a:b:c", Some("a:*:c")),
            // Models have a `:` of their own.
            (
                "global:llm:openai:**:rpm global:llm:openai:*:rpm",
                "global:llm:openai:ft:gpt-4o:acme:rpm",
                Some("global:llm:openai:**:rpm"),
            ),
        ] {
            let templates = templates(texts);
            let found = templates.find(&key(asked)).map(|limit| limit.key.as_str());
            assert_eq!(found, expected, "{asked} with {texts}");
        }
    }

    /// TPL-02
    #[test]
    fn tpl_02_an_instance_is_the_template_with_another_key() {
        let mut templates = templates("a:*");
        templates.put(template("a:*", 7)).unwrap();
        assert_eq!(templates.instance(&key("a:x")), Some(template("a:x", 7)));
        assert_eq!(templates.instance(&key("b:x")), None);
    }

    #[test]
    fn a_removed_template_is_found_no_more() {
        let mut templates = templates("a:** a:*");
        assert_eq!(templates.get(&key("a:*")), Some(&template("a:*", 1)));
        assert_eq!(templates.remove(&key("a:*")), Some(template("a:*", 1)));
        assert_eq!(templates.remove(&key("a:*")), None);
        assert_eq!(templates.get(&key("a:*")), None);
        assert_eq!(templates.find(&key("a:x")).unwrap().key, key("a:**"));
        assert_eq!(templates.iter().count(), 1);
    }

    /// TPL-07
    #[test]
    fn tpl_07_the_number_of_templates_is_bounded() {
        let mut templates = Templates::default();
        for n in 0..TEMPLATES_MAX {
            templates.put(template(&format!("t{n}:*"), 1)).unwrap();
        }
        let refused = templates.put(template("one:more:*", 1));
        assert_eq!(refused, Err(DefineError::TooManyTemplates { templates_max: TEMPLATES_MAX }));
        assert_eq!(templates.put(template("t7:*", 2)), Ok(()), "a known one can still change");
        templates.remove(&key("t7:*")).unwrap();
        assert_eq!(templates.put(template("one:more:*", 1)), Ok(()));
    }

    /// TPL-01
    #[test]
    fn tpl_01_a_wildcard_is_a_whole_segment_of_a_pattern() {
        for text in ["a", "a:*", "tenant:*:llm:daily_tokens", "global:llm:openai:**:rpm"] {
            assert_eq!(check_new_key(&key(text)), Ok(()), "{text}");
        }
        for (text, expected) in [
            ("a*b", "must be whole segments"),
            ("a:*b", "must be whole segments"),
            ("a:**:**", "at most one `**`"),
            ("*", "at least one segment that is not"),
            ("*:**", "at least one segment that is not"),
        ] {
            let error = check_new_key(&key(text)).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(expected), "{error}");
        }
        assert!(Templates::default().put(template("a", 1)).is_err());
    }
}

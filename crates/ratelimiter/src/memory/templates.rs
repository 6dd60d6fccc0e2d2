//! Changes of templates, which reach every instance like a definition of each.
//!
//! The templates change first, then the shards are walked. An instance that is made in the meantime is either made under the old
//! template, before its shard is walked, or under the new one.

use super::{GROUPS_PER_LOCK, State};
use crate::error::{DefineError, DeleteError, Unanswered};
use crate::key::{KeyPattern, LimitKey};
use crate::limit::Limit;
use crate::registry::{LimitStatus, RegisteredLimit};

impl State {
    pub(super) fn define_template(&self, template: Limit) -> Result<LimitStatus, DefineError> {
        let _alone = self.instances.begin_template_change();
        let (key, status) =
            (template.key.clone(), RegisteredLimit::in_force(template.clone()).status);
        {
            let mut templates = self.instances.templates_mut();
            let _change = self.poison.begin_change()?;
            templates.put(template)?;
        }
        self.realign(&key)?;
        Ok(status)
    }

    /// As [`State::define_template`], whatever its kind was before.
    pub(super) fn restore_template(&self, template: Limit) -> Result<LimitStatus, DefineError> {
        let key = template.key.clone();
        let is_other_kind = {
            let templates = self.instances.templates();
            let defined = templates.all().get(&key);
            defined.is_some_and(|defined| !defined.kind.is_same_kind(template.kind))
        };
        if is_other_kind {
            self.delete_template(&key).or_else(|error| match error {
                DeleteError::UnknownKey { .. } => Ok(()),
                DeleteError::Unanswered(error) => Err(DefineError::from(error)),
                DeleteError::Refused(error) => Err(DefineError::from(error)),
            })?;
        }
        self.define_template(template)
    }

    pub(super) fn delete_template(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let _alone = self.instances.begin_template_change();
        let removed = {
            let mut templates = self.instances.templates_mut();
            let _change = self.poison.begin_change()?;
            templates.remove(key)
        };
        if removed.is_none() {
            return Err(DeleteError::UnknownKey { key: key.clone() });
        }
        Ok(self.realign(key)?)
    }

    /// Brings the instances that a changed template matches in line with the templates.
    fn realign(&self, changed: &LimitKey) -> Result<(), Unanswered> {
        let changed = KeyPattern::new(changed).expect("a template's key is a pattern");
        for shard in self.groups.shards.each() {
            let mut next = Some(0);
            while let Some(from) = next {
                self.change(shard.lock(), |shard, now| {
                    let templates = self.instances.templates();
                    next = shard.realign(now, &changed, &templates, from, GROUPS_PER_LOCK);
                })?;
            }
        }
        Ok(())
    }
}

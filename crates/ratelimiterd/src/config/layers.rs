//! Putting the sources of a config together: defaults, then the file, then the environment, then the flags.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{BackendChoice, Config, ConfigError, ConfigFault};
use crate::tigerbeetle;
use crate::tls::{Tls, TlsFault};

/// What the variables of the environment begin with: `RATELIMITER_SERVER__LISTEN_ADDR`.
pub const ENVIRONMENT_PREFIX: &str = "RATELIMITER_";
/// What stands between a section and its key in a variable's name.
const ENVIRONMENT_SEPARATOR: &str = "__";

/// The values of all sources so far, the later ones in the place of the earlier, and where each came from.
#[derive(Debug, Default)]
pub struct Layers {
    values: BTreeMap<String, (Value, String)>,
    faults: Vec<ConfigFault>,
}

impl Layers {
    /// No source but the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a YAML file.
    pub fn add_file(&mut self, path: &Path) {
        let origin = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => self.add_yaml(&origin, &text),
            Err(error) => self.fault(&origin, "", format!("cannot be read: {error}")),
        }
    }

    /// Adds YAML text.
    pub fn add_yaml(&mut self, origin: &str, text: &str) {
        match serde_saphyr::from_str::<Option<Value>>(text) {
            Ok(None) => {}
            Ok(Some(Value::Object(sections))) => self.add_sections(origin, sections),
            Ok(Some(_)) => self.fault(origin, "", "must be sections such as `server:`"),
            Err(error) => {
                let error = error.without_snippet();
                self.fault(origin, "", error.to_string());
            }
        }
    }

    fn add_sections(&mut self, origin: &str, sections: Map<String, Value>) {
        for (section, value) in sections {
            // A section whose keys are all commented out is a section without keys.
            let empty = Value::Object(Map::new());
            let value = if value.is_null() { empty.clone() } else { value };
            // What stands in a section's place is not repeated: it may be a token.
            if !value.is_object() && fault_alone(&section, &empty).is_none() {
                self.fault(origin, &section, "must be a section with values of its own");
                continue;
            }
            self.add_value(origin, section, value);
        }
    }

    /// Each value by itself, so that a later source can replace it alone.
    fn add_value(&mut self, origin: &str, path: String, value: Value) {
        if let Value::Object(values) = &value
            && !values.is_empty()
        {
            for (key, value) in values {
                self.add_value(origin, format!("{path}.{key}"), value.clone());
            }
        } else {
            self.put(path, value, origin);
        }
    }

    /// Adds the variables of the environment that name a value. Others with our prefix, which an orchestrator may set
    /// on its own (`RATELIMITER_PORT`), have no `__` and are left alone.
    pub fn add_environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        for (name, text) in variables {
            let Some(path) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
                continue;
            };
            if path.contains(ENVIRONMENT_SEPARATOR) {
                let path = path.to_lowercase().replace(ENVIRONMENT_SEPARATOR, ".");
                self.add_text(&name, &path, &text);
            }
        }
    }

    /// Adds a value that is given as text. What kind of value it is, the config's own type knows: it is tried as text,
    /// as YAML (a number, a list), and as a list with commas.
    pub fn add_text(&mut self, origin: &str, path: &str, text: &str) {
        let yaml = serde_saphyr::from_str::<Value>(text).unwrap_or(Value::Null);
        let list = text.split(',').map(|part| Value::from(part.trim())).collect();
        for value in [Value::from(text), yaml.clone(), Value::Array(list)] {
            if fault_alone(path, &value).is_none() {
                return self.put(path.to_owned(), value, origin);
            }
        }
        // The reading as YAML says best what is wrong: "must be 1 to 64, not 0".
        let message = fault_alone(path, &yaml).unwrap_or_default();
        self.fault(origin, path, message);
    }

    fn put(&mut self, path: String, value: Value, origin: &str) {
        self.values.insert(path, (value, origin.to_owned()));
    }

    fn fault(&mut self, origin: &str, path: &str, message: impl Into<String>) {
        let message = message.into();
        self.faults.push(ConfigFault { origin: origin.to_owned(), path: path.to_owned(), message });
    }

    /// The config that the sources give together.
    ///
    /// # Errors
    /// Every value that is unknown or ill-typed, and what does not go together.
    ///
    /// # Panics
    /// Never: values that are right alone are right together, or one of the contradictions that are reported.
    pub fn config(self) -> Result<Config, ConfigError> {
        let Self { values, mut faults } = self;
        for (path, (value, origin)) in &values {
            if let Some(message) = fault_alone(path, value) {
                faults.push(ConfigFault { origin: origin.clone(), path: path.clone(), message });
            }
        }
        if !faults.is_empty() {
            return Err(ConfigError { faults });
        }
        let mut tree = Map::new();
        for (path, (value, _)) in &values {
            insert(&mut tree, path, value.clone());
        }
        let config = Config::deserialize(Value::Object(tree)).expect("every value was right alone");
        let origin_of = |path: &str| values.get(path).map_or("defaults", |(_, origin)| origin);
        let faults = contradictions(&config, origin_of);
        if faults.is_empty() { Ok(config) } else { Err(ConfigError { faults }) }
    }
}

/// What is wrong with a value by itself: all others have defaults, so a config that has only this one must be read.
fn fault_alone(path: &str, value: &Value) -> Option<String> {
    let mut tree = Map::new();
    insert(&mut tree, path, value.clone());
    Config::deserialize(Value::Object(tree)).err().map(|error| error.to_string())
}

fn insert(tree: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            tree.insert(path.to_owned(), value);
        }
        Some((section, key)) => {
            let section = tree.entry(section).or_insert(Value::Null);
            // A group that a source left empty, and another one fills.
            if section.is_null() {
                *section = Value::Object(Map::new());
            }
            if let Value::Object(section) = section {
                insert(section, key, value);
            }
        }
    }
}

/// What is right alone and wrong together.
fn contradictions<'a>(config: &Config, origin_of: impl Fn(&str) -> &'a str) -> Vec<ConfigFault> {
    let mut faults = Vec::new();
    if let Err(error) = Tls::new(&config.server.tls) {
        let path = error.field.path();
        // A value that is missing was given nowhere; what needs it was.
        let given =
            if error.fault == TlsFault::Missing { error.field.other().path() } else { path };
        let origin = origin_of(given).to_owned();
        faults.push(ConfigFault { origin, path: path.to_owned(), message: error.to_string() });
    }
    let mut fault = |path: &str, message: String| {
        let origin = origin_of(path).to_owned();
        faults.push(ConfigFault { origin, path: path.to_owned(), message });
    };
    let auth = &config.auth;
    for (path, tokens) in
        [("auth.client_tokens", &auth.client_tokens), ("auth.admin_tokens", &auth.admin_tokens)]
    {
        for token in tokens {
            if let Err(error) = token.reveal() {
                fault(path, error.to_string());
            }
        }
    }
    if config.server.backend == BackendChoice::TigerBeetle
        && let Err(error) = tigerbeetle::checked(&config.tigerbeetle)
    {
        fault("tigerbeetle", error.to_string());
    }
    let listen = &config.server.listen_addr;
    if !auth.has_tokens() && !auth.allow_anonymous && !listen.is_loopback() {
        fault(
            "server.listen_addr",
            format!(
                "{listen} can be reached by others, and no tokens are configured; set auth.client_tokens and \
                 auth.admin_tokens, or auth.allow_anonymous: true if that is meant"
            ),
        );
    }
    faults
}

#[cfg(test)]
mod tests;

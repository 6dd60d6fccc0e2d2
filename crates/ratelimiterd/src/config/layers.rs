//! Merges the sources of a config: defaults, file, environment, flags.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{BackendChoice, Config, ConfigError, SettingError, ValueError, caller, gateway};
use crate::RegistryUrl;
use crate::medium::RegistryDatabase;
use crate::tigerbeetle;
use crate::tls::{Tls, TlsErrorKind};

/// Prefix of environment variables, as in `RATELIMITER_SERVER__LISTEN_ADDR`.
pub const ENVIRONMENT_PREFIX: &str = "RATELIMITER_";
/// The fields of the section `auth`.
const AUTH_FIELDS: [&str; 4] = ["client_tokens", "admin_tokens", "tokens", "allow_anonymous"];
/// Only one of these may be set.
const REGISTRY_PATH: &str = "registry.path";
const REGISTRY_URL: &str = "registry.url";
/// With Redis, neither of them.
const BACKEND: &str = "server.backend: redis";
/// Only of that backend.
const REDIS_URL: &str = "redis.url";
/// Separates a section from its key in the name of a variable.
const ENVIRONMENT_SEPARATOR: &str = "__";

/// The values of all sources so far, each with its source. A later source replaces the values of an earlier one.
#[derive(Debug, Default)]
pub struct Layers {
    values: BTreeMap<String, (Value, String)>,
    errors: Vec<SettingError>,
}

impl Layers {
    /// Only the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a YAML file.
    pub fn add_file(&mut self, path: &Path) {
        let origin = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => self.add_yaml(&origin, &text),
            Err(error) => self.add_error(&origin, "", format!("cannot be read: {error}")),
        }
    }

    /// Adds YAML text.
    pub fn add_yaml(&mut self, origin: &str, text: &str) {
        match serde_saphyr::from_str::<Option<Value>>(text) {
            Ok(None) => {}
            Ok(Some(Value::Object(sections))) => self.add_sections(origin, sections),
            Ok(Some(_)) => self.add_error(origin, "", "must be sections such as `server:`"),
            Err(error) => {
                let error = error.without_snippet();
                self.add_error(origin, "", error.to_string());
            }
        }
    }

    fn add_sections(&mut self, origin: &str, sections: Map<String, Value>) {
        for (section, value) in sections {
            // A section whose keys are all commented out is null.
            let empty = Value::Object(Map::new());
            let value = if value.is_null() { empty.clone() } else { value };
            // The value is not quoted in the error: it may be a token.
            if !value.is_object() && value_errors(&section, &empty).is_empty() {
                self.add_error(origin, &section, "must be a section with keys, not a value");
                continue;
            }
            self.add_value(origin, section, value);
        }
    }

    /// Flattens sections, so that a later source can replace a single value.
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

    /// Adds the environment variables that name a value. Variables without `__` are ignored, because an orchestrator
    /// may set some with our prefix (`RATELIMITER_PORT`).
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

    /// Adds a value given as text. The type of the config decides how to parse it: the text is tried as a string, as
    /// YAML (a number, a list), and as a comma-separated list.
    pub fn add_text(&mut self, origin: &str, path: &str, text: &str) {
        let yaml = serde_saphyr::from_str::<Value>(text).unwrap_or(Value::Null);
        let list = text.split(',').map(|part| Value::from(part.trim())).collect();
        for value in [Value::from(text), yaml.clone(), Value::Array(list)] {
            if value_errors(path, &value).is_empty() {
                return self.put(path.to_owned(), value, origin);
            }
        }
        // The YAML interpretation gives the best message: "must be 1 to 64, not 0".
        for ValueError { path, message } in value_errors(path, &yaml) {
            self.add_error(origin, &path, message);
        }
    }

    fn put(&mut self, path: String, value: Value, origin: &str) {
        self.values.insert(path, (value, origin.to_owned()));
    }

    fn add_error(&mut self, origin: &str, path: &str, message: impl Into<String>) {
        let message = message.into();
        self.errors.push(SettingError {
            origin: origin.to_owned(),
            path: path.to_owned(),
            message,
        });
    }

    /// Merges the sources into a config.
    ///
    /// # Errors
    /// Every unknown or invalid value; if there is none, every invalid combination of values.
    ///
    /// # Panics
    /// Never: a config deserializes if each of its values does.
    pub fn config(self) -> Result<Config, ConfigError> {
        let Self { values, mut errors } = self;
        for (path, (value, origin)) in &values {
            for ValueError { path, message } in value_errors(path, value) {
                errors.push(SettingError { origin: origin.clone(), path, message });
            }
        }
        if !errors.is_empty() {
            return Err(ConfigError { errors });
        }
        let mut tree = Map::new();
        for (path, (value, _)) in &values {
            insert(&mut tree, path, value.clone());
        }
        let config = Config::deserialize(Value::Object(tree)).expect("every value is valid");
        let origin_of = |path: &str| values.get(path).map_or("defaults", |(_, origin)| origin);
        let mut errors = check_combinations(&config, origin_of);
        let is_set = |path: &str| values.contains_key(path);
        for (path, message) in check_registry(&config, is_set, origin_of) {
            let origin = origin_of(path).to_owned();
            errors.push(SettingError { origin, path: path.to_owned(), message });
        }
        if errors.is_empty() { Ok(config) } else { Err(ConfigError { errors }) }
    }
}

/// Returns the errors of a single value. All others have defaults, so a config with only this value must deserialize.
fn value_errors(path: &str, value: &Value) -> Vec<ValueError> {
    // Lists whose items have fields: an error has the path of its field.
    if path == caller::PATH {
        return caller::read(value).err().unwrap_or_default();
    }
    if let Some(errors) = gateway::list_errors(path, value) {
        return errors;
    }
    if let Some(name) = path.strip_prefix("auth.").filter(|name| !AUTH_FIELDS.contains(name)) {
        // The name is not shown: it may be a token in the wrong place.
        let known = AUTH_FIELDS.iter().find(|known| name.starts_with(&format!("{known}.")));
        let (path, message) = match known {
            Some(known) => (format!("auth.{known}"), "must not be a section with keys".to_owned()),
            None => (
                "auth".to_owned(),
                format!("has an unknown field; it has {}", AUTH_FIELDS.join(", ")),
            ),
        };
        return vec![ValueError { path, message }];
    }
    let mut tree = Map::new();
    insert(&mut tree, path, value.clone());
    let error = Config::deserialize(Value::Object(tree)).err();
    let error = error.map(|error| ValueError { path: path.to_owned(), message: error.to_string() });
    error.into_iter().collect()
}

fn insert(tree: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            tree.insert(path.to_owned(), value);
        }
        Some((section, key)) => {
            let section = tree.entry(section).or_insert(Value::Null);
            // One source left the section empty, another one fills it.
            if section.is_null() {
                *section = Value::Object(Map::new());
            }
            if let Value::Object(section) = section {
                insert(section, key, value);
            }
        }
    }
}

/// Checks that the limits are stored in one place. Returns each wrong path with the reason.
fn check_registry<'a>(
    config: &Config,
    is_set: impl Fn(&str) -> bool,
    origin_of: impl Fn(&str) -> &'a str,
) -> Vec<(&'static str, String)> {
    let mut errors = Vec::new();
    let url = config.registry.url.as_ref();
    if url.is_some() && is_set(REGISTRY_PATH) {
        let message = format!(
            "{REGISTRY_PATH} is set too ({}); the limits are stored in one place, so remove one of them",
            origin_of(REGISTRY_PATH)
        );
        errors.push((REGISTRY_URL, message));
    }
    let is_in_redis =
        url.is_some_and(|url| matches!(url.database(), RegistryDatabase::Redis { .. }));
    if config.server.backend == BackendChoice::Redis {
        for path in [REGISTRY_PATH, REGISTRY_URL].into_iter().filter(|path| is_set(path)) {
            let message =
                format!("the Redis backend ({BACKEND}) stores the limits in Redis, so remove this");
            errors.push((path, message));
        }
    } else if is_in_redis && is_set(REDIS_URL) {
        let message = format!(
            "is only for the Redis backend ({BACKEND}); the limits are in the Redis of {REGISTRY_URL}, so remove this"
        );
        errors.push((REDIS_URL, message));
    }
    errors
}

/// Checks values that are valid alone but not together, and the files that they name.
fn check_combinations<'a>(
    config: &Config,
    origin_of: impl Fn(&str) -> &'a str,
) -> Vec<SettingError> {
    let mut errors = Vec::new();
    if let Err(error) = Tls::new(&config.server.tls) {
        let path = error.field.path();
        // A missing value has no source; blame the one of the value that needs it.
        let given =
            if error.kind == TlsErrorKind::Missing { error.field.other().path() } else { path };
        let origin = origin_of(given).to_owned();
        errors.push(SettingError { origin, path: path.to_owned(), message: error.to_string() });
    }
    let mut add_error = |path: &str, message: String| {
        // A list has one source.
        let list = path.split('[').next().unwrap_or(path);
        let origin = origin_of(list).to_owned();
        errors.push(SettingError { origin, path: path.to_owned(), message });
    };
    let auth = &config.auth;
    for ValueError { path, message } in auth.read_secrets().err().unwrap_or_default() {
        add_error(&path, message);
    }
    if config.server.backend == BackendChoice::TigerBeetle
        && let Err(error) = tigerbeetle::checked(&config.tigerbeetle)
    {
        add_error("tigerbeetle", error.to_string());
    }
    let url = match (config.server.backend, config.registry.url.as_ref().map(RegistryUrl::database))
    {
        (BackendChoice::Redis, _) => Some(config.redis.url.secret()),
        (_, Some(RegistryDatabase::Redis { text, .. })) => Some(text.as_str()),
        (_, Some(RegistryDatabase::Postgres(_)) | None) => None,
    };
    if let Some(url) = url
        && let Err(ValueError { path, message }) = config.redis.check_at(url)
    {
        add_error(&path, message);
    }
    let listen = &config.server.listen_addr;
    for ValueError { path, message } in
        config.gateway.settings(listen.is_loopback()).err().unwrap_or_default()
    {
        add_error(&path, message);
    }
    if !auth.has_tokens() && !auth.allow_anonymous && !listen.is_loopback() {
        add_error(
            "server.listen_addr",
            format!(
                "{listen} can be reached by others, and no tokens are configured; set auth.client_tokens and \
                 auth.admin_tokens, or auth.allow_anonymous: true if this is intended"
            ),
        );
    }
    errors
}

#[cfg(test)]
mod tests;

//! The URL of a registry in a database.

use std::fmt;
use std::str::FromStr;

use ratelimiter_redis::{ConfigError, RedisConfig, RedisSettings, is_redis_url};
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;
use sqlx::postgres::PgConnectOptions;

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];
/// The parameters that the driver knows. It would log the value of any other, which may be a misspelt password.
const PARAMETERS: [&str; 18] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// The URL of a PostgreSQL database or of Redis, which may have a password. `Debug` and `Display` do not show that.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryUrl(RegistryDatabase);

/// A database for a registry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum RegistryDatabase {
    Postgres(PostgresUrl),
    Redis {
        /// With the password.
        text: String,
        place: String,
    },
}

/// The URL of a PostgreSQL database, which may have a password. `Debug` does not show that.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    text: String,
    place: String,
}

/// A URL is not one of a registry. The messages do not quote it, because it may have a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryUrlError {
    /// It is not text.
    #[error("must be text, such as \"postgresql://user@host/database\"")]
    NotText,
    /// The scheme is another one.
    #[error(
        "must begin with postgresql:// or redis://, as in postgresql://user@host/database or redis://host:6379"
    )]
    Scheme,
    /// It has several hosts.
    #[error("has several hosts; name one, whose address follows the primary")]
    SeveralHosts,
    /// A password with one of these characters would be read as the name of a database, and shown.
    #[error(
        "has a /, @ or # in the name of the database; in a password, write them as %2F, %40 and %23"
    )]
    Delimiter,
    /// The driver does not know a parameter.
    #[error("has an unknown parameter; known are {}, and options[…]", PARAMETERS.join(", "))]
    Parameter,
    /// The driver cannot read it.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// Why, without the URL.
        reason: String,
    },
}

impl RegistryUrl {
    /// Checks a URL.
    ///
    /// # Errors
    /// See [`RegistryUrlError`].
    pub fn new(text: &str) -> Result<Self, RegistryUrlError> {
        if !is_redis_url(text) {
            return PostgresUrl::new(text).map(RegistryDatabase::Postgres).map(Self);
        }
        let config = RedisConfig::new(&RedisSettings::new(text)).map_err(|error| {
            let message = error.to_string();
            let reason = if let ConfigError::Url { reason } = error { reason } else { message };
            RegistryUrlError::Unreadable { reason }
        })?;
        let (text, place) = (text.to_owned(), config.place().to_owned());
        Ok(Self(RegistryDatabase::Redis { text, place }))
    }

    /// The URL without its password and its parameters.
    pub fn place(&self) -> &str {
        match &self.0 {
            RegistryDatabase::Postgres(url) => url.place(),
            RegistryDatabase::Redis { place, .. } => place,
        }
    }

    pub(crate) const fn database(&self) -> &RegistryDatabase {
        &self.0
    }
}

impl PostgresUrl {
    /// Checks a URL.
    ///
    /// # Errors
    /// See [`RegistryUrlError`].
    pub fn new(text: &str) -> Result<Self, RegistryUrlError> {
        let rest = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = rest.ok_or(RegistryUrlError::Scheme)?;
        let (base, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = base.split_once('/').unwrap_or((base, ""));
        if base.contains('#') || database.contains(['/', '@']) {
            return Err(RegistryUrlError::Delimiter);
        }
        let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if host.contains(',') {
            return Err(RegistryUrlError::SeveralHosts);
        }
        let mut names = form_urlencoded::parse(parameters.as_bytes()).map(|(name, _)| name);
        let is_known = |name: &str| PARAMETERS.contains(&name) || name.starts_with("options[");
        if !names.all(|name| is_known(&name)) {
            return Err(RegistryUrlError::Parameter);
        }
        let options = PgConnectOptions::from_str(text)
            .map_err(|error| RegistryUrlError::Unreadable { reason: reason_of(&error) })?;
        Ok(Self { text: text.to_owned(), place: place_of(&options) })
    }

    /// The URL without its password and its parameters.
    pub fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn options(&self) -> PgConnectOptions {
        PgConnectOptions::from_str(&self.text).expect("it was read before")
    }
}

/// The driver's reason, which it may begin with the same words more than once.
fn reason_of(error: &sqlx::Error) -> String {
    error.to_string().trim_start_matches("error with configuration: ").to_owned()
}

fn place_of(options: &PgConnectOptions) -> String {
    // Without a host it is a socket directory.
    let socket = options.get_socket().map(|folder| folder.display().to_string());
    format!(
        "postgresql://{}@{}:{}/{}",
        options.get_username(),
        socket.as_deref().unwrap_or(options.get_host()),
        options.get_port(),
        options.get_database().unwrap_or(options.get_username()),
    )
}

impl fmt::Debug for RegistryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegistryUrl({})", self.place())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({})", self.place)
    }
}

impl fmt::Display for RegistryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.place())
    }
}

impl<'de> Deserialize<'de> for RegistryUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Errors do not quote the value.
        let url = match Value::deserialize(deserializer)? {
            Value::String(text) => Self::new(&text),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => Err(RegistryUrlError::NotText),
        };
        url.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-01
    #[test]
    fn reg_01_a_url_of_another_scheme_is_refused() {
        for (text, error) in [
            ("mysql://db/limits", RegistryUrlError::Scheme),
            ("./limits.json", RegistryUrlError::Scheme),
            ("", RegistryUrlError::Scheme),
            ("postgresql://db/limits?passwort=s3cret", RegistryUrlError::Parameter),
            ("postgresql://one,two:5433/limits", RegistryUrlError::SeveralHosts),
        ] {
            assert_eq!(RegistryUrl::new(text), Err(error), "{text}");
        }
        assert!(RegistryUrl::new("postgres://db/limits?options[search_path]=limits").is_ok());
        assert!(RegistryUrl::new("redis://cache/0").is_ok());
    }

    /// REG-01
    #[test]
    fn reg_01_a_password_is_never_shown() {
        for text in [
            "postgresql://app:s3cret@db:5433/limits?sslmode=require",
            "postgresql://app@db:5433/limits?password=s3cret",
            "postgresql://app:s3@cret,%2F@db:5433/limits",
        ] {
            let url = RegistryUrl::new(text).unwrap();
            assert_eq!(url.to_string(), "postgresql://app@db:5433/limits");
            assert_eq!(format!("{url:?}"), "RegistryUrl(postgresql://app@db:5433/limits)");
        }
        let url = RegistryUrl::new("redis://app:s3cret@cache:7000/3").unwrap();
        assert_eq!(url.to_string(), "redis://cache:7000/3");
        assert_eq!(format!("{url:?}"), "RegistryUrl(redis://cache:7000/3)");
        for text in [
            "redis://app:s3cret@cache/many",
            "redis://app:s3cret@cache:port/0",
            "redis://app:s3/cret@cache",
            "postgresql://app:s3cret@db:many/limits",
            "postgresql://app:s3#cret@db/limits",
            "postgresql://app:5/s3cret@db/limits",
            "postgresql://app:5#s3cret@db/limits",
            "postgresql://app:5?s3cret@db/limits",
            "mysql://app:s3cret@db/limits",
        ] {
            let error = RegistryUrl::new(text).unwrap_err();
            assert!(!error.to_string().contains("s3"), "{error}");
        }
    }
}

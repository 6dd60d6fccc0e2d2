//! The server that a command talks to.

use std::path::PathBuf;

use ratelimiter_client::{BearerToken, HttpLimiter, HttpOptions, TrustedRoots};

use super::CliError;
use crate::config::Token;

/// Address and credentials of a server.
#[derive(Debug, clap::Args)]
pub(super) struct Remote {
    /// The server's URL
    #[arg(long, global = true, env = "RATELIMITER_URL", default_value = "http://127.0.0.1:8080")]
    pub(super) url: String,
    /// A token, literally or as `file:/path`
    #[arg(long, global = true, env = "RATELIMITER_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// A PEM file with the certificates to trust for https, instead of the system's
    #[arg(long, global = true, value_name = "FILE", env = "RATELIMITER_CACERT")]
    cacert: Option<PathBuf>,
}

impl Remote {
    pub(super) fn limiter(&self) -> Result<HttpLimiter, CliError> {
        self.limiter_with(self.options()?)
    }

    /// The default options, with the token and the trusted certificates.
    pub(super) fn options(&self) -> Result<HttpOptions, CliError> {
        let roots = match &self.cacert {
            None => TrustedRoots::System,
            Some(path) => {
                let pem = std::fs::read(path);
                let unreadable = |error| CliError(format!("--cacert: {}: {error}", path.display()));
                TrustedRoots::Pem(pem.map_err(unreadable)?)
            }
        };
        Ok(HttpOptions { token: self.token()?, roots, ..HttpOptions::default() })
    }

    pub(super) fn limiter_with(&self, options: HttpOptions) -> Result<HttpLimiter, CliError> {
        HttpLimiter::with_options(&self.url, options)
            .map_err(|error| CliError(format!("{}: {error}", self.url)))
    }

    /// The token, read from its file if it is given as one.
    fn token(&self) -> Result<Option<BearerToken>, CliError> {
        let Some(text) = &self.token else { return Ok(None) };
        let secret =
            Token::new(text).and_then(|token| token.read_secret()).map_err(CliError::of)?;
        BearerToken::new(secret).map(Some).map_err(CliError::of)
    }
}

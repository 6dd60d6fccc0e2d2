//! Which server a command talks to.

use std::path::PathBuf;

use ratelimiter_client::{BearerToken, HttpLimiter, HttpOptions, TrustedRoots};

use super::Failure;
use crate::config::Token;

/// Which server, and the right to ask it.
#[derive(Debug, clap::Args)]
pub(super) struct Remote {
    /// The server's URL
    #[arg(long, global = true, env = "RATELIMITER_URL", default_value = "http://127.0.0.1:8080")]
    pub(super) url: String,
    /// A token, literally or as `file:/path`
    #[arg(long, global = true, env = "RATELIMITER_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// A PEM file with the certificates that an https server may show, instead of the machine's own
    #[arg(long, global = true, value_name = "FILE", env = "RATELIMITER_CACERT")]
    cacert: Option<PathBuf>,
}

impl Remote {
    /// A client of that server.
    pub(super) fn limiter(&self) -> Result<HttpLimiter, Failure> {
        self.limiter_with(self.options()?)
    }

    /// The usual options, with the right to ask.
    pub(super) fn options(&self) -> Result<HttpOptions, Failure> {
        let roots = match &self.cacert {
            None => TrustedRoots::System,
            Some(path) => {
                let pem = std::fs::read(path);
                let unreadable = |error| Failure(format!("--cacert: {}: {error}", path.display()));
                TrustedRoots::Pem(pem.map_err(unreadable)?)
            }
        };
        Ok(HttpOptions { token: self.token()?, roots, ..HttpOptions::default() })
    }

    /// A client of that server with other options than the usual.
    pub(super) fn limiter_with(&self, options: HttpOptions) -> Result<HttpLimiter, Failure> {
        HttpLimiter::with_options(&self.url, options)
            .map_err(|error| Failure(format!("{}: {error}", self.url)))
    }

    /// The token, read from its file if it stands in one.
    fn token(&self) -> Result<Option<BearerToken>, Failure> {
        let secret = self.secret()?;
        secret.map(BearerToken::new).transpose().map_err(Failure::of)
    }

    /// The token's own text.
    pub(super) fn secret(&self) -> Result<Option<String>, Failure> {
        let Some(text) = &self.token else { return Ok(None) };
        let revealed = Token::new(text).and_then(|token| token.read_secret());
        revealed.map(Some).map_err(Failure::of)
    }
}

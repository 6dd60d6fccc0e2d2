//! Bearer token authentication.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use ratelimiter_wire::{ErrorCode, Refusal};
use subtle::{Choice, ConstantTimeEq};

use crate::config::{AuthConfig, Token, TokenError};

/// Open to every caller, or restricted to callers with a token.
#[derive(Default)]
pub(crate) enum Access {
    /// No tokens are configured.
    #[default]
    Open,
    Tokens {
        /// Valid for reserve and complete.
        client: Vec<String>,
        /// Valid for every route.
        admin: Vec<String>,
    },
}

/// The token class that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredAccess {
    /// A client or an admin token.
    Client,
    Admin,
}

impl Access {
    /// Reads the configured tokens.
    ///
    /// # Errors
    /// A token file cannot be read.
    pub(crate) fn new(config: &AuthConfig) -> Result<Self, TokenError> {
        let AuthConfig { client_tokens, admin_tokens, allow_anonymous: _ } = config;
        if client_tokens.is_empty() && admin_tokens.is_empty() {
            return Ok(Self::Open);
        }
        let read =
            |tokens: &[Token]| tokens.iter().map(Token::read_secret).collect::<Result<_, _>>();
        Ok(Self::Tokens { client: read(client_tokens)?, admin: read(admin_tokens)? })
    }

    /// Checks the token of a request.
    ///
    /// # Errors
    /// `unauthorized` (401) without a valid token, `forbidden` (403) with a token of the wrong class.
    pub(crate) fn check(
        &self,
        headers: &HeaderMap,
        required: RequiredAccess,
    ) -> Result<(), Refusal> {
        let Self::Tokens { client, admin } = self else { return Ok(()) };
        let Some(given) = bearer(headers) else {
            return Err(unauthorized("send `Authorization: Bearer <token>`"));
        };
        // Constant time: every token of both lists is compared, so that the duration does not reveal where a match is.
        let (is_client, is_admin) = (matches_any(client, given), matches_any(admin, given));
        match (required, bool::from(is_client), bool::from(is_admin)) {
            (_, _, true) | (RequiredAccess::Client, true, _) => Ok(()),
            (RequiredAccess::Admin, true, false) => Err(Refusal {
                error: ErrorCode::Forbidden,
                message: "a client token is valid for reserve and complete only; this needs an admin token"
                    .to_owned(),
            }),
            (_, false, false) => Err(unauthorized("unknown token")),
        }
    }
}

fn unauthorized(message: &str) -> Refusal {
    Refusal { error: ErrorCode::Unauthorized, message: message.to_owned() }
}

/// The token of an `Authorization: Bearer …` header.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn matches_any(tokens: &[String], given: &[u8]) -> Choice {
    tokens.iter().fold(Choice::from(0), |found, token| found | token.as_bytes().ct_eq(given))
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open => f.write_str("Open"),
            Self::Tokens { client, admin } => {
                write!(f, "Tokens({} client, {} admin)", client.len(), admin.len())
            }
        }
    }
}

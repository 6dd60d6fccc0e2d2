//! Who may call.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use ratelimiter_wire::{ErrorWord, Refusal};
use subtle::{Choice, ConstantTimeEq};

use crate::config::{AuthConfig, TokenError};

/// Who may call: everybody, or whoever has a token.
#[derive(Default)]
pub(crate) enum Access {
    /// No tokens are configured.
    #[default]
    Open,
    /// Tokens are needed.
    Tokens {
        /// These open reserve and complete.
        client: Vec<String>,
        /// These open everything.
        admin: Vec<String>,
    },
}

/// What a request needs to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Any token.
    Client,
    /// A token of the admin class.
    Admin,
}

impl Access {
    /// Reads the tokens that a config names.
    ///
    /// # Errors
    /// A token's file cannot be read.
    pub(crate) fn new(config: &AuthConfig) -> Result<Self, TokenError> {
        let AuthConfig { client_tokens, admin_tokens, allow_anonymous: _ } = config;
        if client_tokens.is_empty() && admin_tokens.is_empty() {
            return Ok(Self::Open);
        }
        let reveal = |tokens: &[crate::config::Token]| {
            tokens.iter().map(crate::config::Token::reveal).collect::<Result<_, _>>()
        };
        Ok(Self::Tokens { client: reveal(client_tokens)?, admin: reveal(admin_tokens)? })
    }

    /// Lets a request in, or says why not: 401 without a valid token, 403 when it is of the wrong class.
    ///
    /// # Errors
    /// The refusal to answer with.
    pub(crate) fn check(&self, headers: &HeaderMap, need: Need) -> Result<(), Refusal> {
        let Self::Tokens { client, admin } = self else { return Ok(()) };
        let Some(given) = bearer(headers) else {
            return Err(unauthorized("send `Authorization: Bearer <token>`"));
        };
        // Both lists are looked through to their ends, so that the time says nothing about where a match was.
        let (is_client, is_admin) = (is_any_of(client, given), is_any_of(admin, given));
        match (need, bool::from(is_client), bool::from(is_admin)) {
            (_, _, true) | (Need::Client, true, _) => Ok(()),
            (Need::Admin, true, false) => Err(Refusal {
                error: ErrorWord::Forbidden,
                message: "this token opens reserve and complete; here an admin token is needed"
                    .to_owned(),
            }),
            (_, false, false) => Err(unauthorized("the token is not known here")),
        }
    }
}

fn unauthorized(message: &str) -> Refusal {
    Refusal { error: ErrorWord::Unauthorized, message: message.to_owned() }
}

/// The token of an `Authorization: Bearer …` header.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn is_any_of(tokens: &[String], given: &[u8]) -> Choice {
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

//! Reads all tokens of a config.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::AuthConfig;
use super::caller::{CallerConfig, item_path};
use super::error::ValueError;

const CLIENT_PATH: &str = "auth.client_tokens";
const ADMIN_PATH: &str = "auth.admin_tokens";

/// Who sends a token.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TokenHolder<'a> {
    /// A caller of `auth.client_tokens`.
    Client,
    /// A caller of `auth.admin_tokens`.
    Admin,
    /// A caller of `auth.tokens`.
    Named(&'a CallerConfig),
}

impl AuthConfig {
    /// Reads every token, in the order of the lists.
    ///
    /// # Errors
    /// Every token that cannot be read, and every named caller whose token is another one's too.
    pub(crate) fn read_secrets(&self) -> Result<Vec<(TokenHolder<'_>, String)>, Vec<ValueError>> {
        let Self { client_tokens, admin_tokens, tokens, allow_anonymous: _ } = self;
        let client =
            client_tokens.iter().map(|token| (TokenHolder::Client, token, CLIENT_PATH.to_owned()));
        let admin =
            admin_tokens.iter().map(|token| (TokenHolder::Admin, token, ADMIN_PATH.to_owned()));
        let named = tokens.iter().enumerate().map(|(at, caller)| {
            (TokenHolder::Named(caller), &caller.token, format!("{}.token", item_path(at)))
        });
        let (mut secrets, mut errors) = (Vec::new(), Vec::new());
        // Where each secret was found first.
        let mut paths: HashMap<String, String> = HashMap::new();
        for (holder, token, path) in client.chain(admin).chain(named) {
            let secret = match token.read_secret() {
                Ok(secret) => secret,
                Err(error) => {
                    errors.push(ValueError { path, message: error.to_string() });
                    continue;
                }
            };
            match paths.entry(secret.clone()) {
                Entry::Occupied(other) if matches!(holder, TokenHolder::Named(_)) => {
                    let message =
                        format!("is the same token as {}; each caller has its own", other.get());
                    errors.push(ValueError { path, message });
                }
                Entry::Occupied(_) => secrets.push((holder, secret)),
                Entry::Vacant(entry) => {
                    entry.insert(path);
                    secrets.push((holder, secret));
                }
            }
        }
        if errors.is_empty() { Ok(secrets) } else { Err(errors) }
    }
}

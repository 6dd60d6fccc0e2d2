//! Standard key families: constructors and a parser.

use std::fmt;

use super::{KeyError, LimitKey};

/// The parts of a standard key. [`KeyFamily::parse`] is the inverse of the constructors on [`LimitKey`].
///
/// ```
/// use ratelimiter::{KeyFamily, LimitKey, LlmDimension};
///
/// let key = LimitKey::llm_tpm("openrouter", "meta/llama-3.1@fp8:free")?;
/// let family = KeyFamily::parse(&key).expect("a standard key");
/// assert_eq!(
///     family,
///     KeyFamily::Llm {
///         provider: "openrouter",
///         model: "meta/llama-3.1@fp8:free",
///         dimension: LlmDimension::Tpm,
///     }
/// );
/// assert_eq!(family.to_key()?, key);
/// # Ok::<(), ratelimiter::KeyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyFamily<'a> {
    /// `global:llm:<provider>:<model>:{rpm,tpm,concurrency}`
    Llm {
        /// The model's provider. Has no colon.
        provider: &'a str,
        /// The model's name. May contain `/`, `.`, `@` and `:`.
        model: &'a str,
        /// What is limited.
        dimension: LlmDimension,
    },
    /// `tenant:<tenant>:llm:daily_tokens`
    TenantDailyTokens {
        /// The tenant. Has no colon.
        tenant: &'a str,
    },
}

/// What a model's provider limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LlmDimension {
    /// Requests per minute.
    Rpm,
    /// Tokens per minute.
    Tpm,
    /// Concurrent calls.
    Concurrency,
}

const LLM_PREFIX: &str = "global:llm:";
const TENANT_PREFIX: &str = "tenant:";
const DAILY_TOKENS_SUFFIX: &str = ":llm:daily_tokens";

impl LimitKey {
    /// `global:llm:<provider>:<model>:rpm`
    ///
    /// # Errors
    /// An empty part, a colon in the provider, or an invalid key.
    pub fn llm_rpm(provider: &str, model: &str) -> Result<Self, KeyError> {
        KeyFamily::Llm { provider, model, dimension: LlmDimension::Rpm }.to_key()
    }

    /// `global:llm:<provider>:<model>:tpm`
    ///
    /// # Errors
    /// An empty part, a colon in the provider, or an invalid key.
    pub fn llm_tpm(provider: &str, model: &str) -> Result<Self, KeyError> {
        KeyFamily::Llm { provider, model, dimension: LlmDimension::Tpm }.to_key()
    }

    /// `global:llm:<provider>:<model>:concurrency`
    ///
    /// # Errors
    /// An empty part, a colon in the provider, or an invalid key.
    pub fn llm_concurrency(provider: &str, model: &str) -> Result<Self, KeyError> {
        KeyFamily::Llm { provider, model, dimension: LlmDimension::Concurrency }.to_key()
    }

    /// `tenant:<tenant>:llm:daily_tokens`
    ///
    /// # Errors
    /// An empty tenant, a colon in it, or an invalid key.
    pub fn tenant_daily_tokens(tenant: &str) -> Result<Self, KeyError> {
        KeyFamily::TenantDailyTokens { tenant }.to_key()
    }
}

impl<'a> KeyFamily<'a> {
    /// Parses a key of a standard family; `None` for every other key.
    pub fn parse(key: &'a LimitKey) -> Option<Self> {
        let text = key.as_str();
        if let Some(rest) = text.strip_prefix(LLM_PREFIX) {
            let (provider, rest) = rest.split_once(':')?;
            let (model, dimension) = rest.rsplit_once(':')?;
            let dimension = LlmDimension::parse(dimension)?;
            let whole = !provider.is_empty() && !model.is_empty();
            return whole.then_some(Self::Llm { provider, model, dimension });
        }
        let tenant = text.strip_prefix(TENANT_PREFIX)?.strip_suffix(DAILY_TOKENS_SUFFIX)?;
        let whole = !tenant.is_empty() && !tenant.contains(':');
        whole.then_some(Self::TenantDailyTokens { tenant })
    }

    /// The key that [`KeyFamily::parse`] parses to this value.
    ///
    /// # Errors
    /// An empty part, a colon in the provider or tenant, or an invalid key.
    pub fn to_key(self) -> Result<LimitKey, KeyError> {
        match self {
            Self::Llm { provider, model, dimension } => {
                check_part("provider", provider)?;
                if model.is_empty() {
                    return Err(KeyError::EmptyPart { part: "model" });
                }
                LimitKey::new(format!("{LLM_PREFIX}{provider}:{model}:{dimension}"))
            }
            Self::TenantDailyTokens { tenant } => {
                check_part("tenant", tenant)?;
                LimitKey::new(format!("{TENANT_PREFIX}{tenant}{DAILY_TOKENS_SUFFIX}"))
            }
        }
    }
}

/// The part of an LLM key before its dimension, which all limits of one model share; any other key unchanged.
pub(super) fn stem(text: &str) -> &str {
    match text.rsplit_once(':') {
        Some((stem, dimension)) if LlmDimension::parse(dimension).is_some() => stem,
        _ => text,
    }
}

fn check_part(part: &'static str, text: &str) -> Result<(), KeyError> {
    if text.is_empty() {
        return Err(KeyError::EmptyPart { part });
    }
    if text.contains(':') {
        return Err(KeyError::ColonInPart { part });
    }
    Ok(())
}

impl LlmDimension {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "rpm" => Some(Self::Rpm),
            "tpm" => Some(Self::Tpm),
            "concurrency" => Some(Self::Concurrency),
            _ => None,
        }
    }
}

impl fmt::Display for LlmDimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rpm => "rpm",
            Self::Tpm => "tpm",
            Self::Concurrency => "concurrency",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DEF-01, CLI-04
    #[test]
    fn def_01_cli_04_the_helpers_create_the_standard_keys() {
        for (key, expected) in [
            (LimitKey::llm_rpm("openai", "gpt-4o"), "global:llm:openai:gpt-4o:rpm"),
            (LimitKey::llm_tpm("openai", "gpt-4o"), "global:llm:openai:gpt-4o:tpm"),
            (LimitKey::llm_concurrency("a", "m/x.y@z:f"), "global:llm:a:m/x.y@z:f:concurrency"),
            (LimitKey::tenant_daily_tokens("acme"), "tenant:acme:llm:daily_tokens"),
        ] {
            let key = key.unwrap();
            assert_eq!(key.as_str(), expected);
            assert_eq!(KeyFamily::parse(&key).unwrap().to_key().unwrap(), key);
        }
    }

    /// CLI-04
    #[test]
    fn cli_04_the_helpers_refuse_empty_parts_and_colons_that_could_not_be_parsed_again() {
        for (made, expected) in [
            (LimitKey::llm_rpm("", "m"), KeyError::EmptyPart { part: "provider" }),
            (LimitKey::llm_rpm("p", ""), KeyError::EmptyPart { part: "model" }),
            (LimitKey::llm_tpm("p:q", "m"), KeyError::ColonInPart { part: "provider" }),
            (LimitKey::tenant_daily_tokens(""), KeyError::EmptyPart { part: "tenant" }),
            (LimitKey::tenant_daily_tokens("a:b"), KeyError::ColonInPart { part: "tenant" }),
            (LimitKey::tenant_daily_tokens("a b"), KeyError::WhiteSpace { at: 8 }),
        ] {
            assert_eq!(made, Err(expected));
        }
    }

    /// CLI-04
    #[test]
    fn cli_04_other_keys_belong_to_no_standard_family() {
        for text in [
            "global:llm:openai:gpt-4o:rps",
            "global:llm:openai:rpm",
            "global:llm::gpt-4o:rpm",
            "global:db:main:connections",
            "tenant::llm:daily_tokens",
            "tenant:a:b:llm:daily_tokens",
            "rpm",
        ] {
            assert_eq!(KeyFamily::parse(&LimitKey::new(text).unwrap()), None, "{text}");
        }
    }
}

//! Requirements and actuals of an LLM call.

use ratelimiter::{Actuals, KeyError, LimitKey, RequestError, Requirements};

/// An LLM call to make.
///
/// ```
/// use ratelimiter_client::LlmRequest;
///
/// let request = LlmRequest {
///     tenant: "acme".to_owned(),
///     provider: "openai".to_owned(),
///     model: "gpt-4o".to_owned(),
///     prompt: "Why is the sky blue?".to_owned(),
///     max_output_tokens: 500,
///     want_daily_budget: true,
/// };
/// let requirements = request.requirements()?;
/// assert_eq!(requirements.upper_tokens(), 520);
/// let listed: Vec<_> = requirements
///     .as_requirements()
///     .iter()
///     .map(|requirement| format!("{} {}", requirement.key, requirement.amount))
///     .collect();
/// assert_eq!(
///     listed,
///     [
///         "global:llm:openai:gpt-4o:rpm 1",
///         "global:llm:openai:gpt-4o:tpm 520",
///         "global:llm:openai:gpt-4o:concurrency 1",
///         "tenant:acme:llm:daily_tokens 520",
///     ]
/// );
/// // After the call: its actual use.
/// assert_eq!(requirements.actuals(74).len(), 2);
/// # Ok::<(), ratelimiter_client::LlmRequestError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LlmRequest {
    /// The tenant that the call is for. Tenants that share a model never wait for each other's budgets.
    pub tenant: String,
    /// The provider of the model.
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// The text to send.
    pub prompt: String,
    /// The most tokens of the output.
    pub max_output_tokens: u64,
    /// Whether the call counts against the tenant's daily tokens.
    pub want_daily_budget: bool,
}

/// Estimates an upper bound of a prompt's tokens before the call. Any function from a text to a number is an estimator.
///
/// ```
/// use ratelimiter_client::LlmRequest;
///
/// let request = LlmRequest {
///     provider: "openai".to_owned(),
///     model: "gpt-4o".to_owned(),
///     prompt: "four words of prompt".to_owned(),
///     max_output_tokens: 100,
///     ..LlmRequest::default()
/// };
/// let by_words = |prompt: &str| prompt.split_whitespace().count() as u64 * 2;
/// assert_eq!(request.requirements_with(&by_words)?.upper_tokens(), 108);
/// # Ok::<(), ratelimiter_client::LlmRequestError>(())
/// ```
pub trait TokenEstimator {
    /// The most tokens that this prompt could have.
    fn estimate(&self, prompt: &str) -> u64;
}

impl<F: Fn(&str) -> u64> TokenEstimator for F {
    fn estimate(&self, prompt: &str) -> u64 {
        self(prompt)
    }
}

/// Estimates a prompt by its UTF-8 bytes. No tokenizer makes more tokens than bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Utf8Bytes;

impl TokenEstimator for Utf8Bytes {
    fn estimate(&self, prompt: &str) -> u64 {
        prompt.len() as u64
    }
}

/// The requirements of one call, and the keys of its actuals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmRequirements {
    tenant: Box<str>,
    provider: Box<str>,
    model: Box<str>,
    requirements: Requirements,
    rpm: LimitKey,
    tpm: LimitKey,
    concurrency: LimitKey,
    daily_tokens: Option<LimitKey>,
    upper_tokens: u64,
}

/// Why a call has no valid requirements.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LlmRequestError {
    /// The provider, the model or the tenant cannot be part of a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The provider, the model or the tenant is `*` or `**`, or the model has such a segment.
    #[error("{key} is a template; a call names one provider, one model and one tenant")]
    #[expect(missing_docs, reason = "the message shows the field")]
    Template { key: LimitKey },
    /// The estimate of the prompt and the output together overflow 64 bits.
    #[error("the prompt and its output together have more tokens than can be counted")]
    TooManyTokens,
    /// Neither prompt nor output.
    #[error(
        "a call without a prompt and without output needs no tokens, so there is nothing to reserve"
    )]
    NoTokens,
}

impl LlmRequest {
    /// The requirements of the call, with the prompt estimated by [`Utf8Bytes`].
    ///
    /// # Errors
    /// See [`LlmRequestError`].
    pub fn requirements(&self) -> Result<LlmRequirements, LlmRequestError> {
        self.requirements_with(&Utf8Bytes)
    }

    /// The requirements of the call, with the prompt estimated by `estimator`. In this order: 1 request, the upper bound of
    /// tokens, 1 slot, and if `want_daily_budget` the upper bound of the tenant's daily tokens.
    ///
    /// # Errors
    /// See [`LlmRequestError`].
    ///
    /// # Panics
    /// Never: the keys are different and the amounts are not 0.
    pub fn requirements_with(
        &self,
        estimator: &(impl TokenEstimator + ?Sized),
    ) -> Result<LlmRequirements, LlmRequestError> {
        let Self { tenant, provider, model, prompt, max_output_tokens, want_daily_budget } = self;
        let upper_tokens = estimator
            .estimate(prompt)
            .checked_add(*max_output_tokens)
            .ok_or(LlmRequestError::TooManyTokens)?;
        let rpm = LimitKey::llm_rpm(provider, model)?;
        let tpm = LimitKey::llm_tpm(provider, model)?;
        let concurrency = LimitKey::llm_concurrency(provider, model)?;
        let daily_tokens = match want_daily_budget {
            true => Some(LimitKey::tenant_daily_tokens(tenant)?),
            false => None,
        };
        let daily = daily_tokens.clone().map(|key| (key, upper_tokens));
        let pairs = [(rpm.clone(), 1), (tpm.clone(), upper_tokens), (concurrency.clone(), 1)];
        let requirements = Requirements::of(pairs.into_iter().chain(daily));
        let requirements = requirements.map_err(|error| match error {
            RequestError::AmountZero { .. } => LlmRequestError::NoTokens,
            RequestError::TemplateKey { key } => LlmRequestError::Template { key },
            RequestError::RequirementCount { .. }
            | RequestError::ActualCount { .. }
            | RequestError::DuplicateKey { .. }
            | RequestError::JobId
            | RequestError::WaitTooLong { .. }
            | RequestError::Queue => unreachable!("four different keys: {error}"),
        })?;
        Ok(LlmRequirements {
            tenant: tenant.as_str().into(),
            provider: provider.as_str().into(),
            model: model.as_str().into(),
            requirements,
            rpm,
            tpm,
            concurrency,
            daily_tokens,
            upper_tokens,
        })
    }
}

impl LlmRequirements {
    /// The tenant that the call is for.
    pub const fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The provider of the model.
    pub const fn provider(&self) -> &str {
        &self.provider
    }

    /// The model's name.
    pub const fn model(&self) -> &str {
        &self.model
    }

    /// The requirements as a reserve names them.
    pub const fn as_requirements(&self) -> &Requirements {
        &self.requirements
    }

    /// The upper bound of the call's tokens.
    pub const fn upper_tokens(&self) -> u64 {
        self.upper_tokens
    }

    /// The actuals of a call that used `tokens`, for a complete.
    pub fn actuals(&self, tokens: u64) -> Actuals {
        let daily = self.daily_tokens.clone();
        let keys = [self.tpm.clone()].into_iter().chain(daily);
        distinct(keys.map(|key| (key, tokens)))
    }

    /// The actuals of a call; without known tokens it keeps its full reservation.
    pub(crate) fn known_actuals(&self, tokens: Option<u64>) -> Actuals {
        tokens.map_or_else(Actuals::none, |tokens| self.actuals(tokens))
    }

    /// The actuals of a call that was allowed and not made: no use of any rolling limit.
    pub fn unused(&self) -> Actuals {
        let daily = self.daily_tokens.clone();
        let keys = [self.rpm.clone(), self.tpm.clone()].into_iter().chain(daily);
        distinct(keys.map(|key| (key, 0)))
    }

    /// The tenant's budget, if the call counts against it.
    #[cfg(feature = "jobs")]
    pub(crate) const fn daily_tokens(&self) -> Option<&LimitKey> {
        self.daily_tokens.as_ref()
    }

    /// The limits that get room back when the call completes with these actuals.
    pub(crate) fn limits_freed_by(&self, actuals: &Actuals) -> Vec<LimitKey> {
        let reserved = |key: &LimitKey| if *key == self.rpm { 1 } else { self.upper_tokens };
        let shrunk = actuals
            .iter()
            .filter(|actual| actual.amount < reserved(&actual.key))
            .map(|actual| actual.key.clone());
        shrunk.chain([self.concurrency.clone()]).collect()
    }
}

fn distinct(pairs: impl Iterator<Item = (LimitKey, u64)>) -> Actuals {
    Actuals::of(pairs).expect("at most three keys, of different families")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(prompt: &str, max_output_tokens: u64, want_daily_budget: bool) -> LlmRequest {
        LlmRequest {
            tenant: "acme".to_owned(),
            provider: "openai".to_owned(),
            model: "gpt-4o".to_owned(),
            prompt: prompt.to_owned(),
            max_output_tokens,
            want_daily_budget,
        }
    }

    fn listed(pairs: impl Iterator<Item = (LimitKey, u64)>) -> String {
        let words: Vec<_> = pairs.map(|(key, amount)| format!("{key}={amount}")).collect();
        words.join(" ").replace("global:llm:openai:gpt-4o:", "")
    }

    fn requirements(request: &LlmRequest) -> String {
        let requirements = request.requirements().unwrap();
        listed(requirements.as_requirements().iter().map(|one| (one.key.clone(), one.amount.get())))
    }

    /// CLI-03
    #[test]
    fn cli_03_a_call_needs_a_request_its_upper_tokens_and_a_slot_in_this_order() {
        let plain = request("héllo", 100, false);
        assert_eq!(requirements(&plain), "rpm=1 tpm=106 concurrency=1");
        let budgeted = request("héllo", 100, true);
        assert_eq!(
            requirements(&budgeted),
            "rpm=1 tpm=106 concurrency=1 tenant:acme:llm:daily_tokens=106"
        );
    }

    /// CLI-03
    #[test]
    fn cli_03_the_actuals_name_tokens_only() {
        let actuals = |want, tokens| {
            let actuals = request("hi", 9, want).requirements().unwrap().actuals(tokens);
            listed(actuals.iter().map(|one| (one.key.clone(), one.amount)))
        };
        assert_eq!(actuals(false, 7), "tpm=7");
        assert_eq!(actuals(true, 70), "tpm=70 tenant:acme:llm:daily_tokens=70");
    }

    /// CLI-03
    #[test]
    fn cli_03_a_call_that_was_not_made_used_nothing() {
        let requirements = request("hi", 9, true).requirements().unwrap();
        let unused = requirements.unused();
        let unused = listed(unused.iter().map(|one| (one.key.clone(), one.amount)));
        assert_eq!(unused, "rpm=0 tpm=0 tenant:acme:llm:daily_tokens=0");
    }

    /// CLI-03
    #[test]
    fn cli_03_requirements_that_overflow_or_are_empty_are_refused() {
        let huge = request("x", u64::MAX, false);
        assert_eq!(huge.requirements(), Err(LlmRequestError::TooManyTokens));
        let most = request("x", u64::MAX - 1, false);
        assert_eq!(most.requirements().unwrap().upper_tokens(), u64::MAX);
        assert_eq!(request("", 0, true).requirements(), Err(LlmRequestError::NoTokens));
    }

    /// CLI-03, CLI-04
    #[test]
    fn cli_03_cli_04_empty_parts_of_a_key_are_refused_by_name() {
        let mut nameless = request("x", 1, true);
        nameless.tenant.clear();
        let error = nameless.requirements().unwrap_err();
        assert_eq!(error, KeyError::EmptyPart { part: "tenant" }.into());
        nameless.want_daily_budget = false;
        assert!(nameless.requirements().is_ok(), "no key names the tenant");
        nameless.model.clear();
        let error = nameless.requirements().unwrap_err();
        assert_eq!(error, KeyError::EmptyPart { part: "model" }.into());
    }

    /// CLI-03
    #[test]
    fn cli_03_the_limits_that_a_complete_frees_are_known() {
        let requirements = request("hi", 98, true).requirements().unwrap();
        let freed = |tokens| {
            let freed = requirements.limits_freed_by(&requirements.actuals(tokens));
            listed(freed.into_iter().map(|key| (key, 0)))
        };
        assert_eq!(freed(99), "tpm=0 tenant:acme:llm:daily_tokens=0 concurrency=0");
        assert_eq!(freed(100), "concurrency=0");
        let all = requirements.limits_freed_by(&requirements.unused()).len();
        assert_eq!(all, 4);
    }
}

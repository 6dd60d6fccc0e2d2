//! LLM jobs, and their payload in the outbox.

use coordination::{InvalidName, InvalidPayload, NewOutboxMessage, Payload, Topic};
use serde::{Deserialize, Serialize};

use crate::llm::{LlmRequest, LlmRequestError};

/// The payload version that this program writes. It reads this and all earlier versions.
pub const JOB_VERSION: u32 = 1;
/// The most bytes of a job's context.
pub const CONTEXT_BYTES_MAX: usize = 256 * 1024;
/// The prefix of the topics of jobs.
const TOPIC_PREFIX: &str = "llm.job:";

/// An LLM call that some runner makes as soon as its limits have room.
///
/// ```
/// use ratelimiter_client::LlmRequest;
/// use ratelimiter_client::jobs::LlmJob;
///
/// let request = LlmRequest {
///     tenant: "acme".to_owned(),
///     provider: "openai".to_owned(),
///     model: "gpt-4o".to_owned(),
///     prompt: "Why is the sky blue?".to_owned(),
///     max_output_tokens: 500,
///     want_daily_budget: false,
/// };
/// let job = LlmJob::new(request)?.with_context(r#"{"temperature":0.2,"ticket":42}"#)?;
/// // The message has its ID before it is enqueued, so that it can be part of the application's own transaction.
/// let message = job.message();
/// assert_eq!(message.topic.as_str(), "llm.job:openai:gpt-4o");
/// # Ok::<(), ratelimiter_client::jobs::InvalidJob>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmJob {
    request: LlmRequest,
    context: String,
    topic: Topic,
    payload: Payload,
}

/// Why a job was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum InvalidJob {
    /// The call has no valid requirements.
    #[error(transparent)]
    Request(#[from] LlmRequestError),
    /// More than [`CONTEXT_BYTES_MAX`] bytes.
    #[error(
        "context_too_large: {bytes} bytes, at most {CONTEXT_BYTES_MAX}; store large data elsewhere and put a reference here"
    )]
    ContextTooLarge { bytes: usize },
    /// Prompt and context together are more than a message carries.
    #[error(
        "the job does not fit into one message; store a large prompt elsewhere and put a reference into the context: {0}"
    )]
    Payload(#[from] InvalidPayload),
}

/// Why a message is no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum UnreadableJob {
    /// It was written by a newer program. It is left for a newer runner.
    #[error("job_version_too_new: version {version}, this program reads up to {JOB_VERSION}")]
    TooNew { version: u32 },
    /// It is not the JSON of a job.
    #[error("not_a_job: {reason}")]
    NotAJob { reason: String },
    /// It is a job that `LlmJob::new` would refuse.
    #[error("invalid_job: {0}")]
    Invalid(#[from] InvalidJob),
}

/// The stable payload format, version 1.
#[derive(Debug, Serialize, Deserialize)]
struct WireJob<'a> {
    version: u32,
    tenant: std::borrow::Cow<'a, str>,
    provider: std::borrow::Cow<'a, str>,
    model: std::borrow::Cow<'a, str>,
    prompt: std::borrow::Cow<'a, str>,
    max_output_tokens: u64,
    #[serde(default)]
    want_daily_budget: bool,
    #[serde(default)]
    context: std::borrow::Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct WireVersion {
    version: u32,
}

impl LlmJob {
    /// A job that makes this call.
    ///
    /// # Errors
    /// See [`InvalidJob`].
    pub fn new(request: LlmRequest) -> Result<LlmJob, InvalidJob> {
        LlmJob::checked(request, String::new())
    }

    /// Adds data of the application for the handler: parameters of the call, or what the answer is for.
    ///
    /// # Errors
    /// [`InvalidJob`] if it is too large.
    pub fn with_context(self, context: impl Into<String>) -> Result<LlmJob, InvalidJob> {
        LlmJob::checked(self.request, context.into())
    }

    fn checked(request: LlmRequest, context: String) -> Result<LlmJob, InvalidJob> {
        if context.len() > CONTEXT_BYTES_MAX {
            return Err(InvalidJob::ContextTooLarge { bytes: context.len() });
        }
        // An invalid call fails here, not in a runner.
        request.requirements()?;
        let topic = LlmJob::topic_of(&request.provider, &request.model)
            .expect("the topic is shorter than the keys, which were just made");
        let LlmRequest { tenant, provider, model, prompt, max_output_tokens, want_daily_budget } =
            &request;
        let wire = WireJob {
            version: JOB_VERSION,
            tenant: tenant.into(),
            provider: provider.into(),
            model: model.into(),
            prompt: prompt.into(),
            max_output_tokens: *max_output_tokens,
            want_daily_budget: *want_daily_budget,
            context: (&context).into(),
        };
        let json = serde_json::to_vec(&wire).expect("strings and numbers are always JSON");
        let payload = Payload::new(json)?;
        Ok(LlmJob { request, context, topic, payload })
    }

    /// The call.
    pub const fn request(&self) -> &LlmRequest {
        &self.request
    }

    /// The application's data for the handler.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The topic of the jobs for this model.
    ///
    /// # Errors
    /// [`InvalidName`] if the names are too long together, or have characters that a topic cannot have.
    pub fn topic_of(provider: &str, model: &str) -> Result<Topic, InvalidName> {
        Topic::new(format!("{TOPIC_PREFIX}{provider}:{model}"))
    }

    /// A new outbox message for this job. Each has its own ID; chain
    /// [`due_at`](NewOutboxMessage::due_at), [`with_id`](NewOutboxMessage::with_id) or
    /// [`correlated_with`](NewOutboxMessage::correlated_with) as you need.
    #[must_use = "a job that is not enqueued is not run"]
    pub fn message(&self) -> NewOutboxMessage {
        NewOutboxMessage::new(self.topic.clone(), self.payload.clone())
    }

    /// The job in a message's payload.
    ///
    /// # Errors
    /// [`UnreadableJob`] if it is no job.
    pub fn read(payload: &Payload) -> Result<LlmJob, UnreadableJob> {
        let not_a_job =
            |error: serde_json::Error| UnreadableJob::NotAJob { reason: error.to_string() };
        let bytes = payload.as_bytes();
        let WireVersion { version } = serde_json::from_slice(bytes).map_err(not_a_job)?;
        if version > JOB_VERSION {
            return Err(UnreadableJob::TooNew { version });
        }
        let wire: WireJob<'_> = serde_json::from_slice(bytes).map_err(not_a_job)?;
        let WireJob {
            version: _,
            tenant,
            provider,
            model,
            prompt,
            max_output_tokens,
            want_daily_budget,
            context,
        } = wire;
        let request = LlmRequest {
            tenant: tenant.into_owned(),
            provider: provider.into_owned(),
            model: model.into_owned(),
            prompt: prompt.into_owned(),
            max_output_tokens,
            want_daily_budget,
        };
        Ok(LlmJob::checked(request, context.into_owned())?)
    }
}

/// True if messages with this topic are jobs.
pub(super) fn is_job(topic: &Topic) -> bool {
    topic.as_str().starts_with(TOPIC_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> LlmRequest {
        LlmRequest {
            tenant: "acme".to_owned(),
            provider: "openai".to_owned(),
            model: "gpt-4o".to_owned(),
            prompt: "Why is the \"sky\" blue?\n".to_owned(),
            max_output_tokens: 500,
            want_daily_budget: true,
        }
    }

    fn read(json: &str) -> Result<LlmJob, UnreadableJob> {
        LlmJob::read(&Payload::new(json).unwrap())
    }

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let job = LlmJob::new(request()).unwrap().with_context("ticket 42").unwrap();
        assert_eq!(LlmJob::read(&job.message().payload).unwrap(), job);
        assert_ne!(job.message().id, job.message().id, "each message is a job of its own");
    }

    #[test]
    fn the_bytes_of_version_1_are_kept() {
        let job = LlmJob::new(request()).unwrap();
        let payload = job.message().payload;
        assert_eq!(
            payload.as_text().unwrap(),
            r#"{"version":1,"tenant":"acme","provider":"openai","model":"gpt-4o","prompt":"Why is the \"sky\" blue?\n","max_output_tokens":500,"want_daily_budget":true,"context":""}"#
        );
        let oldest = r#"{"version":1,"tenant":"","provider":"p","model":"m","prompt":"x","max_output_tokens":1}"#;
        assert_eq!(read(oldest).unwrap().request().provider, "p");
    }

    #[test]
    fn a_message_that_is_no_job_is_reported() {
        let newer = r#"{"version":2,"tool":"x"}"#;
        assert_eq!(read(newer), Err(UnreadableJob::TooNew { version: 2 }));
        for json in ["", "42", "{}", r#"{"version":1}"#, r#"{"version":"1"}"#] {
            assert!(matches!(read(json), Err(UnreadableJob::NotAJob { .. })), "{json}");
        }
        let empty = r#"{"version":1,"tenant":"","provider":"","model":"m","prompt":"x","max_output_tokens":1}"#;
        assert!(matches!(read(empty), Err(UnreadableJob::Invalid(InvalidJob::Request(_)))));
    }

    #[test]
    fn a_job_that_is_too_large_is_refused_with_the_reason() {
        let context = "c".repeat(CONTEXT_BYTES_MAX);
        let job = LlmJob::new(request()).unwrap().with_context(context.clone()).unwrap();
        let refused = job.with_context(context + "c").unwrap_err();
        assert_eq!(refused, InvalidJob::ContextTooLarge { bytes: CONTEXT_BYTES_MAX + 1 });
        let long = LlmRequest { prompt: "p".repeat(1 << 20), ..request() };
        assert!(matches!(LlmJob::new(long), Err(InvalidJob::Payload(_))));
        // The longest names that make keys make a topic too.
        let named = |count| LlmRequest { model: "m".repeat(count), ..request() };
        let longest = 256 - "global:llm:openai::concurrency".len();
        assert!(LlmJob::new(named(longest)).is_ok());
        assert!(matches!(LlmJob::new(named(longest + 1)), Err(InvalidJob::Request(_))));
    }
}

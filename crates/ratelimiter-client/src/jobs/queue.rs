//! Submitting jobs and reading their results.

use coordination::{
    BatchSize, CorrelationId, Delay, ErrorText, MessageId, Outbox, OutboxRecord, OutboxStatus,
    Payload, ProviderError, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::job::{LlmJob, UnreadableJob, is_job};

/// The version of the outcome that this program writes.
const RESULT_VERSION: u32 = 1;

/// Submits jobs to an outbox, and reads their state and results.
///
/// ```
/// use coordination::MemoryProvider;
/// use ratelimiter_client::LlmRequest;
/// use ratelimiter_client::jobs::{JobQueue, JobState, LlmJob};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = JobQueue::new(MemoryProvider::new());
/// let request = LlmRequest {
///     provider: "openai".to_owned(),
///     model: "gpt-4o".to_owned(),
///     prompt: "Why is the sky blue?".to_owned(),
///     max_output_tokens: 500,
///     ..LlmRequest::default()
/// };
/// let id = queue.submit(&LlmJob::new(request)?).await?;
/// let job = queue.job(id).await?.expect("it was just submitted");
/// assert!(matches!(job.state, JobState::Waiting { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct JobQueue<O> {
    outbox: O,
}

/// A job as the outbox stores it, until it is purged some time after its end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRecord {
    /// The job's ID.
    pub id: MessageId,
    /// The job as it was submitted.
    pub job: LlmJob,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// Attempts that began.
    pub attempts: u32,
    /// Failed attempts that were followed by another.
    pub retries: u32,
    /// The last error, or why the job was postponed.
    pub last_error: Option<String>,
    /// The job's state.
    pub state: JobState,
}

/// The state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It waits until it is due, for a runner, or for room.
    Waiting {
        /// When a runner may claim it.
        due_at: Timestamp,
    },
    /// A runner has claimed it, and asks the limiter or runs it.
    Claimed {
        /// When the claim runs out unless the runner extends it.
        until: Timestamp,
    },
    /// Its handler returned a result.
    Done(JobResult),
    /// It failed permanently.
    Failed {
        /// Why.
        reason: String,
    },
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// The handler's output.
    pub output: String,
    /// The tokens that the call used; `None` if unknown.
    pub tokens: Option<u64>,
}

/// Why a job could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The outbox gave no answer.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The message with this ID is no job, or was written by a newer program.
    #[error(transparent)]
    Unreadable(#[from] UnreadableJob),
}

#[derive(Debug, Serialize, Deserialize)]
struct WireResult {
    version: u32,
    #[serde(flatten)]
    result: JobResult,
}

impl<O: Outbox> JobQueue<O> {
    /// A queue on this outbox.
    pub const fn new(outbox: O) -> JobQueue<O> {
        JobQueue { outbox }
    }

    /// Submits a job. To retry safely after a lost answer, make the [message](LlmJob::message) first and
    /// [enqueue](Outbox::enqueue) the same one again.
    ///
    /// # Errors
    /// [`ProviderError`]: it is unknown whether the job was submitted.
    pub async fn submit(&self, job: &LlmJob) -> Result<MessageId, ProviderError> {
        self.outbox.enqueue(job.message()).await
    }

    /// The job with this ID; `None` if it is unknown or was purged.
    ///
    /// # Errors
    /// [`QueueError`] if the outbox does not answer, or the message is no job.
    pub async fn job(&self, id: MessageId) -> Result<Option<JobRecord>, QueueError> {
        match self.outbox.record(id).await? {
            Some(record) => Ok(Some(JobRecord::read(record)?)),
            None => Ok(None),
        }
    }

    /// Up to `max` failed jobs whose ID is greater than `after`, in the order of their IDs. Messages that are no jobs, or
    /// jobs of a newer program, are left out.
    ///
    /// # Errors
    /// [`ProviderError`] if the outbox does not answer.
    pub async fn failed(
        &self,
        mut after: Option<MessageId>,
        max: BatchSize,
    ) -> Result<Vec<JobRecord>, ProviderError> {
        let mut jobs = Vec::new();
        loop {
            let records = self.outbox.dead(after, max).await?;
            let is_last = records.len() < max.as_usize();
            after = records.last().map(|record| record.id);
            let read = records.into_iter().filter(|record| is_job(&record.topic));
            jobs.extend(read.filter_map(|record| JobRecord::read(record).ok()));
            if is_last || jobs.len() >= max.as_usize() {
                jobs.truncate(max.as_usize());
                return Ok(jobs);
            }
        }
    }

    /// Lets failed jobs run again, with all their attempts. Other jobs and messages that are no jobs stay as they are.
    /// Returns how many jobs were revived.
    ///
    /// # Errors
    /// [`ProviderError`]: it is unknown which of them were revived; repeating the call is safe.
    pub async fn revive(&self, ids: &[MessageId]) -> Result<usize, ProviderError> {
        let mut jobs = Vec::with_capacity(ids.len());
        for id in ids {
            // A message's topic never changes, so this check cannot be outdated.
            let record = self.outbox.record(*id).await?;
            jobs.extend(record.filter(|record| is_job(&record.topic)).map(|record| record.id));
        }
        self.outbox.revive(&jobs, &ErrorText::default(), Delay::ZERO).await
    }
}

impl JobRecord {
    fn read(record: OutboxRecord) -> Result<JobRecord, UnreadableJob> {
        let job = LlmJob::read(&record.payload)?;
        let last_error = (!record.last_error.is_empty()).then(|| record.last_error.to_string());
        let state = match record.status {
            OutboxStatus::Ready => JobState::Waiting { due_at: record.due_at },
            OutboxStatus::Claimed { until } => JobState::Claimed { until },
            OutboxStatus::Dead => {
                JobState::Failed { reason: last_error.clone().unwrap_or_default() }
            }
            OutboxStatus::Done { outcome } => {
                let nothing = JobResult { output: String::new(), tokens: None };
                // Another dispatcher may have acknowledged it without an outcome.
                JobState::Done(outcome.map_or(Ok(nothing), |bytes| JobResult::read(&bytes))?)
            }
        };
        let OutboxRecord { id, correlation_id, attempts, retry_count: retries, .. } = record;
        Ok(JobRecord { id, job, correlation_id, attempts, retries, last_error, state })
    }
}

impl JobResult {
    /// The outcome to store, unless it is too large.
    pub(super) fn to_outcome(&self) -> Result<Payload, coordination::InvalidPayload> {
        let wire = WireResult { version: RESULT_VERSION, result: self.clone() };
        Payload::new(serde_json::to_vec(&wire).expect("strings and numbers are always JSON"))
    }

    fn read(outcome: &Payload) -> Result<JobResult, UnreadableJob> {
        let read = serde_json::from_slice::<WireResult>(outcome.as_bytes());
        match read {
            Ok(WireResult { version, .. }) if version > RESULT_VERSION => {
                Err(UnreadableJob::TooNew { version })
            }
            Ok(WireResult { result, .. }) => Ok(result),
            Err(error) => Err(UnreadableJob::NotAJob { reason: error.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read_as_it_was_written() {
        for tokens in [None, Some(7)] {
            let result = JobResult { output: "\"blue\"\n".to_owned(), tokens };
            assert_eq!(JobResult::read(&result.to_outcome().unwrap()).unwrap(), result);
        }
        let result = JobResult { output: "b".to_owned(), tokens: Some(7) };
        let outcome = result.to_outcome().unwrap();
        assert_eq!(outcome.as_text().unwrap(), r#"{"version":1,"output":"b","tokens":7}"#);
    }

    #[test]
    fn a_result_that_is_too_large_is_refused() {
        let result = JobResult { output: "x".repeat(1 << 20), tokens: None };
        assert!(result.to_outcome().is_err());
    }
}

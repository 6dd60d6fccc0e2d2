//! Message handlers by topic.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use thiserror::Error;

use crate::{ProviderError, Topic};

/// Handles messages. Functions and closures that return a future are handlers.
///
/// The same message may be delivered again, so the effect must be idempotent: an insert by the
/// message's ID, a call with an idempotency key.
///
/// ```
/// use coordination::{Handler, HandlerError, InboxMessage};
///
/// struct Bill {
///     currency: &'static str,
/// }
///
/// impl Handler<InboxMessage> for Bill {
///     async fn handle(&self, message: InboxMessage) -> Result<(), HandlerError> {
///         let order = message.payload.as_text().ok_or(HandlerError::permanent("not a text"))?;
///         println!("bills {order} in {}, once per {}", self.currency, message.key);
///         Ok(())
///     }
/// }
/// ```
pub trait Handler<M>: Send + Sync + 'static {
    /// Handles one message.
    fn handle(&self, message: M) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Why a message was not handled, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum HandlerError {
    /// Temporary: retry after a delay, until the attempts are used up.
    #[error("{reason}")]
    Retry { reason: String },
    /// Permanent: fail the message now.
    #[error("{reason}")]
    Permanent { reason: String },
}

/// The handlers of a dispatcher.
///
/// ```
/// use coordination::{HandlerError, OutboxMessage, Topic, TopicHandlers};
///
/// async fn deliver(message: OutboxMessage) -> Result<(), HandlerError> {
///     match message.payload.as_text() {
///         Some(_) => Ok(()),
///         None => Err(HandlerError::permanent("not a text")),
///     }
/// }
///
/// let handlers = TopicHandlers::new().on(Topic::new("order.placed").unwrap(), deliver);
/// # let _ = handlers;
/// ```
pub struct TopicHandlers<M> {
    by_topic: HashMap<Topic, Arc<dyn BoxedHandler<M>>>,
}

type Handling<'a> = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + 'a>>;

/// A handler whose future is boxed, so that handlers of many types live in one table.
pub(super) trait BoxedHandler<M>: Send + Sync {
    fn handle_boxed(&self, message: M) -> Handling<'_>;
}

impl<M: 'static, H: Handler<M>> BoxedHandler<M> for H {
    fn handle_boxed(&self, message: M) -> Handling<'_> {
        Box::pin(self.handle(message))
    }
}

impl<M, F, Fut> Handler<M> for F
where
    F: Fn(M) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), HandlerError>> + Send,
{
    fn handle(&self, message: M) -> impl Future<Output = Result<(), HandlerError>> + Send {
        self(message)
    }
}

impl HandlerError {
    /// A temporary error.
    pub fn retry(reason: impl fmt::Display) -> HandlerError {
        HandlerError::Retry { reason: reason.to_string() }
    }

    /// A permanent error.
    pub fn permanent(reason: impl fmt::Display) -> HandlerError {
        HandlerError::Permanent { reason: reason.to_string() }
    }
}

/// An unanswered provider call is temporary.
impl From<ProviderError> for HandlerError {
    fn from(error: ProviderError) -> HandlerError {
        HandlerError::retry(error)
    }
}

impl<M: 'static> TopicHandlers<M> {
    /// No handlers.
    pub fn new() -> TopicHandlers<M> {
        TopicHandlers { by_topic: HashMap::new() }
    }

    /// Adds a handler for a topic, replacing an earlier one.
    #[must_use]
    pub fn on(mut self, topic: Topic, handler: impl Handler<M>) -> TopicHandlers<M> {
        self.by_topic.insert(topic, Arc::new(handler));
        self
    }

    pub(super) fn for_topic(&self, topic: &Topic) -> Option<Arc<dyn BoxedHandler<M>>> {
        self.by_topic.get(topic).cloned()
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.by_topic.keys()
    }
}

impl<M: 'static> Default for TopicHandlers<M> {
    fn default() -> TopicHandlers<M> {
        TopicHandlers::new()
    }
}

impl<M> fmt::Debug for TopicHandlers<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_topic.keys()).finish()
    }
}

/// Turns a panic of the handler into a retry.
pub(super) async fn catching_panics(
    handling: impl Future<Output = Result<(), HandlerError>>,
) -> Result<(), HandlerError> {
    let mut handling = pin!(handling);
    poll_fn(|context| {
        // Unwind safe: a future that panicked is not polled again.
        let polled = catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(&*panic))))
    })
    .await
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> HandlerError {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    HandlerError::retry(format!("handler panicked: {}", text.as_deref().unwrap_or("no message")))
}

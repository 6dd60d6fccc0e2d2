//! Ledger errors and their probable causes.

use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

/// A call without results. The variant says whether its events were applied.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum LedgerError {
    /// The request was sent and not answered in time. It may have been applied, or may still be.
    #[error("no answer from TigerBeetle after {waited:?}; the outcome is unknown")]
    NoAnswer { waited: Duration },
    /// The request was still queued at its deadline. It was not applied and will not be.
    #[error("TigerBeetle's sessions were busy for {waited:?}; nothing was sent")]
    NotSent { waited: Duration },
    /// As [`LedgerError::NotSent`], and no session works.
    #[error("no session with TigerBeetle, nothing was sent: {0}")]
    NoSession(SessionProblem),
    /// The queue was full. The request was not applied and will not be.
    #[error(
        "{queued_events} events are queued for TigerBeetle; the queue takes {queue_events_max}"
    )]
    QueueFull { queued_events: usize, queue_events_max: usize },
    /// The item does not fit into any request. It was not applied and will not be.
    #[error(transparent)]
    ItemTooLarge(#[from] ItemTooLarge),
    /// The ledger was closed before the request was sent. It was not applied and will not be.
    #[error("the ledger was closed")]
    Closed,
}

impl LedgerError {
    /// Whether the request may have been applied, or may still be.
    pub const fn may_be_applied(&self) -> bool {
        match self {
            Self::NoAnswer { .. } => true,
            Self::NotSent { .. }
            | Self::NoSession(_)
            | Self::QueueFull { .. }
            | Self::ItemTooLarge(_)
            | Self::Closed => false,
        }
    }
}

/// One caller's events, which must stay together, do not fit into one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{events} events in one item; a request takes fewer than {refused_events}")]
pub struct ItemTooLarge {
    /// The item's events.
    pub events: usize,
    /// The smallest number that the client is known to refuse.
    pub refused_events: usize,
}

/// Why a session does not work. It keeps trying.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum SessionProblem {
    /// The session was just started.
    #[error("the session is being opened")]
    Opening,
    /// A host name could not be resolved.
    #[error("{address:?} does not resolve to an address: {reason}")]
    AddressNotResolved { address: String, reason: String },
    /// A host name resolves to another address now; the session reconnects there.
    #[error("the cluster's host names resolve to other addresses now")]
    AddressChanged,
    /// The client refused to start.
    #[error("the TigerBeetle client could not start: {reason}")]
    ClientNotStarted { reason: String },
    /// The cluster did not register the session in time; TigerBeetle gives no reason.
    #[error("{}", not_registered(*.waited, .reachable, .unreachable))]
    NotRegistered { waited: Duration, reachable: Vec<SocketAddr>, unreachable: Vec<SocketAddr> },
    /// A working session has had no answer for longer than the request timeout.
    #[error(
        "the session has had no answer for {waited:?}: the cluster is down, unreachable, or stuck"
    )]
    NoAnswer { waited: Duration },
    /// The cluster dropped the session to make room for others.
    #[error("the session was evicted: more than 64 sessions were opened on this cluster")]
    Evicted,
    /// The client is newer than the server.
    #[error("the client (release 0.17.9) is newer than the server: upgrade the cluster first")]
    ClientTooNew,
    /// The client is older than the server accepts.
    #[error("the client (release 0.17.9) is older than the cluster accepts: upgrade ratelimiter")]
    ClientTooOld,
    /// The client stopped.
    #[error("the session was lost: {reason}")]
    Lost { reason: String },
}

impl LedgerError {
    /// The label for logs and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoAnswer { .. } => "no_answer",
            Self::NotSent { .. } => "not_sent",
            Self::NoSession(_) => "no_session",
            Self::QueueFull { .. } => "queue_full",
            Self::ItemTooLarge(_) => "item_too_large",
            Self::Closed => "closed",
        }
    }
}

impl SessionProblem {
    /// The label for logs and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::AddressNotResolved { .. } => "address_not_resolved",
            Self::AddressChanged => "address_changed",
            Self::ClientNotStarted { .. } => "client_not_started",
            Self::NotRegistered { .. } => "not_registered",
            Self::NoAnswer { .. } => "no_answer",
            Self::Evicted => "evicted",
            Self::ClientTooNew => "client_too_new",
            Self::ClientTooOld => "client_too_old",
            Self::Lost { .. } => "lost",
        }
    }
}

fn not_registered(
    waited: Duration,
    reachable: &[SocketAddr],
    unreachable: &[SocketAddr],
) -> String {
    let causes = if reachable.is_empty() {
        "the address is wrong or the server is down"
    } else {
        "the cluster ID is wrong, or the server has no connection free (8 with --development, 32 \
         in production by default), or the client is newer than the server, or the replicas are \
         starting or have no majority"
    };
    format!(
        "the cluster did not register the session within {waited:?}; reachable: {reachable:?}, \
         unreachable: {unreachable:?}; probably {causes}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(reachable: &[&str], unreachable: &[&str]) -> String {
        let parse = |addresses: &[&str]| addresses.iter().map(|a| a.parse().unwrap()).collect();
        SessionProblem::NotRegistered {
            waited: Duration::from_secs(2),
            reachable: parse(reachable),
            unreachable: parse(unreachable),
        }
        .to_string()
    }

    /// TB-12
    #[test]
    fn tb_12_an_open_port_that_does_not_register_names_the_likely_causes() {
        let text = problem(&["127.0.0.1:3000"], &[]);
        assert!(text.contains("cluster ID is wrong"), "{text}");
        assert!(text.contains("no connection free"), "{text}");
        assert!(text.contains("newer than the server"), "{text}");
    }

    /// TB-12
    #[test]
    fn tb_12_a_closed_port_points_at_the_address() {
        let text = problem(&[], &["127.0.0.1:3000"]);
        assert!(text.contains("address is wrong or the server is down"), "{text}");
    }
}

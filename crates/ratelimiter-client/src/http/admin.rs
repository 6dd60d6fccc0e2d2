//! Administration of a server's limits and leases; needs an admin token.

use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use ratelimiter::{
    Backend, DefineError, DeleteError, ForgiveError, LEASE_AGE_SECONDS_MAX, LeaseId, LeasePage,
    LeasesError, Limit, LimitKey, LimitState, LimitStatus, OpenLease, Page, Refused, ReleaseError,
    StateError, Unanswered,
};
use ratelimiter_wire::{
    DEFINITIONS_BYTES_MAX, DEFINITIONS_MAX, DefineAnswer, DefinitionBody, DefinitionsBody,
    DeleteAnswer, ErrorBody, ErrorCode, ForgiveAnswer, ForgiveBody, LeasesAnswer, ListAnswer,
    OpenLeaseBody, Refusal, ReleaseAnswer, StateAnswer, StateBody,
};

use super::response::ServerResponse;
use super::transport::RetryPolicy;
use super::url::encoded;
use super::{HttpError, HttpLimiter, json};

const LIMITS: &str = "/v1/admin/limits";
const LEASES: &str = "/v1/admin/leases";
const FORGIVE: &str = "/v1/admin/forgive";
/// How much longer than another request one with definitions may take, for each of them.
const TIMEOUT_PER_DEFINITION: Duration = Duration::from_millis(1);

impl Backend for HttpLimiter {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let uri = self.transport.base.at(LIMITS);
        let body = json(&DefinitionBody::from(&limit));
        let into_result = |answer: DefineAnswer| answer.into_result(&limit);
        self.send(&Method::PUT, &uri, body, RetryPolicy::Retry, into_result).await
    }

    /// One request for up to 10 000 limits, which the server applies together or not at all. A server that takes single
    /// definitions only gets them one by one.
    async fn define_all(&self, limits: Vec<Limit>) -> Result<Vec<LimitStatus>, DefineError> {
        let uri = self.transport.base.at(LIMITS);
        let mut statuses = Vec::with_capacity(limits.len());
        for (some, body) in requests_of(&limits) {
            let count = u32::try_from(some.len()).expect("a request has few definitions");
            let timeout = self.transport.timeout + count * TIMEOUT_PER_DEFINITION;
            let retry = RetryPolicy::Retry;
            let answer = self.transport.send_within(
                timeout,
                &Method::PUT,
                &uri,
                body,
                retry,
                ServerResponse::read::<DefineAnswer>,
            );
            let answer = answer.await.map_err(HttpError::into_error::<DefineError>)?;
            if !answer.is_list_unsupported() {
                statuses.extend(answer.into_results(some)?);
                continue;
            }
            for limit in some {
                statuses.push(self.define(limit.clone()).await?);
            }
        }
        Ok(statuses)
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let uri = self.transport.base.at(&path_of(key));
        // If the first request was carried out, a second one would answer that there is no such limit.
        let into_result = |answer: DeleteAnswer| answer.into_result(key);
        self.send(&Method::DELETE, &uri, Bytes::new(), RetryPolicy::Once, into_result).await
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        let answer = self.get::<StateAnswer, StateError>(&path_of(key)).await?;
        match answer {
            Ok(StateAnswer { limit }) => state_of(limit).map(Some),
            Err(ErrorBody { error: ErrorCode::NotFound, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        match self.get::<ListAnswer, StateError>(&list_of(page)).await? {
            Ok(ListAnswer { limits }) => limits.into_iter().map(state_of).collect(),
            Err(error) => Err(error.into()),
        }
    }

    async fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        if page.len_max() == 0 {
            return Ok(Vec::new());
        }
        match self.get::<LeasesAnswer, LeasesError>(&leases_of(page)).await? {
            Ok(LeasesAnswer { leases }) => leases.into_iter().map(open_lease_of).collect(),
            Err(error) => Err(error.into_leases_error(page.after)),
        }
    }

    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        let uri = self.transport.base.at(&format!("{LEASES}/{lease}"));
        // If the first request was carried out, a second one would answer that there is no such lease.
        let into_result = |answer: ReleaseAnswer| answer.into_result(lease);
        self.send(&Method::DELETE, &uri, Bytes::new(), RetryPolicy::Once, into_result).await
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        let uri = self.transport.base.at(FORGIVE);
        let body = json(&ForgiveBody { key: key.clone() });
        // If the first request was carried out, a second one would answer that there was no debt.
        self.send(&Method::POST, &uri, body, RetryPolicy::Once, ForgiveAnswer::into_result).await
    }
}

impl HttpLimiter {
    async fn get<A: serde::de::DeserializeOwned, E: From<Unanswered> + From<Refused>>(
        &self,
        path: &str,
    ) -> Result<Result<A, ErrorBody>, E> {
        let uri = self.transport.base.at(path);
        let answer =
            self.transport.send(&Method::GET, &uri, Bytes::new(), RetryPolicy::Retry, |answer| {
                match answer.status {
                    200 => answer.read().map(Ok),
                    _ => answer.read().map(Err),
                }
            });
        answer.await.map_err(HttpError::into_error)
    }
}

/// The bodies that define these limits, each within the bounds of a request, with its limits.
fn requests_of(limits: &[Limit]) -> Vec<(&[Limit], Bytes)> {
    let mut requests = Vec::new();
    let mut rest: Vec<&[Limit]> = limits.chunks(DEFINITIONS_MAX).rev().collect();
    while let Some(some) = rest.pop() {
        let body = json(&some.iter().collect::<DefinitionsBody>());
        if body.len() <= DEFINITIONS_BYTES_MAX || some.len() == 1 {
            requests.push((some, body));
        } else {
            let (first, second) = some.split_at(some.len() / 2);
            rest.extend([second, first]);
        }
    }
    requests
}

fn path_of(key: &LimitKey) -> String {
    format!("{LIMITS}/{}", encoded(key.as_str()))
}

fn list_of(page: &Page) -> String {
    let Page { prefix, after, count_max, template } = page;
    let mut path = format!("{LIMITS}?prefix={}", encoded(prefix));
    if let Some(after) = after {
        path.push_str(&format!("&after={}", encoded(after.as_str())));
    }
    if let Some(count_max) = count_max {
        path.push_str(&format!("&limit={count_max}"));
    }
    if let Some(template) = template {
        path.push_str(&format!("&template={}", encoded(template.as_str())));
    }
    path
}

fn leases_of(page: &LeasePage) -> String {
    let LeasePage { key, older_than, after, count_max: _ } = page;
    // In whole seconds, rounded up: no lease is younger than was asked for. None is as old as the bound.
    let older_than =
        older_than.as_nanos().div_ceil(1_000_000_000).min(LEASE_AGE_SECONDS_MAX.into());
    let mut path = format!("{LEASES}?older_than_seconds={older_than}&limit={}", page.len_max());
    if let Some(key) = key {
        path.push_str(&format!("&key={}", encoded(key.as_str())));
    }
    if let Some(after) = after {
        path.push_str(&format!("&after={after}"));
    }
    path
}

fn open_lease_of(body: OpenLeaseBody) -> Result<OpenLease, LeasesError> {
    body.try_into().map_err(|refusal: Refusal| {
        let reason = format!("the server sent an invalid lease: {refusal}");
        LeasesError::Refused(Refused { reason })
    })
}

fn state_of(body: StateBody) -> Result<LimitState, StateError> {
    body.try_into().map_err(|refusal| {
        let reason = format!("the server sent an invalid limit: {refusal}");
        StateError::Refused(Refused { reason })
    })
}

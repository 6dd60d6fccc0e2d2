//! Administration of a server's limits; needs an admin token.

use hyper::Method;
use hyper::body::Bytes;
use ratelimiter::{
    Backend, DefineError, DeleteError, Limit, LimitKey, LimitState, LimitStatus, Page, Refused,
    StateError,
};
use ratelimiter_wire::{
    DefineAnswer, DefinitionBody, DeleteAnswer, ErrorBody, ErrorCode, ListAnswer, StateAnswer,
    StateBody,
};

use super::transport::RetryPolicy;
use super::url::encoded;
use super::{HttpLimiter, json};

const LIMITS: &str = "/v1/admin/limits";

impl Backend for HttpLimiter {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let uri = self.transport.base.at(LIMITS);
        let body = json(&DefinitionBody::from(&limit));
        let into_result = |answer: DefineAnswer| answer.into_result(&limit);
        self.send(&Method::PUT, &uri, body, RetryPolicy::Retry, into_result).await
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let uri = self.transport.base.at(&path_of(key));
        // If the first request was carried out, a second one would answer that there is no such limit.
        let into_result = |answer: DeleteAnswer| answer.into_result(key);
        self.send(&Method::DELETE, &uri, Bytes::new(), RetryPolicy::Once, into_result).await
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        let answer = self.get::<StateAnswer>(&path_of(key)).await?;
        match answer {
            Ok(StateAnswer { limit }) => state_of(limit).map(Some),
            Err(ErrorBody { error: ErrorCode::NotFound, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        match self.get::<ListAnswer>(&list_of(page)).await? {
            Ok(ListAnswer { limits }) => limits.into_iter().map(state_of).collect(),
            Err(error) => Err(error.into()),
        }
    }
}

impl HttpLimiter {
    async fn get<A: serde::de::DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Result<A, ErrorBody>, StateError> {
        let uri = self.transport.base.at(path);
        let answer =
            self.transport.send(&Method::GET, &uri, Bytes::new(), RetryPolicy::Retry, |answer| {
                match answer.status {
                    200 => answer.read().map(Ok),
                    _ => answer.read().map(Err),
                }
            });
        answer.await.map_err(super::HttpError::into_error)
    }
}

fn path_of(key: &LimitKey) -> String {
    format!("{LIMITS}/{}", encoded(key.as_str()))
}

fn list_of(page: &Page) -> String {
    let Page { prefix, after, count_max } = page;
    let mut path = format!("{LIMITS}?prefix={}", encoded(prefix));
    if let Some(after) = after {
        path.push_str(&format!("&after={}", encoded(after.as_str())));
    }
    if let Some(count_max) = count_max {
        path.push_str(&format!("&limit={count_max}"));
    }
    path
}

fn state_of(body: StateBody) -> Result<LimitState, StateError> {
    body.try_into().map_err(|refusal| {
        let reason = format!("the server sent an invalid limit: {refusal}");
        StateError::Refused(Refused { reason })
    })
}

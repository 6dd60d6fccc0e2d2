//! What the gateway answers itself, in the shape of the provider's errors.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::json;

use crate::api::Api;
use crate::headers::set_waited;
use crate::settings::Provider;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The providers' SDKs ignore longer times, and retry too early.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A call that the gateway answers itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
    /// How long the call waited for room.
    pub(crate) waited: Option<Duration>,
}

/// Why, which decides the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    Invalid,
    /// A limit in dollars and no price.
    NoPrice,
    /// More than a whole capacity.
    NeverFits,
    Unauthorized,
    ModelNotAllowed,
    ModelNotFound,
    NotFound,
    TooLarge,
    TooSlow,
    /// Nobody reads the answer.
    CallerGone,
    NoRoom,
    /// The provider has refused calls, and it is not over in time.
    Closed,
    NotImplemented,
    /// The provider gave no answer.
    BadGateway,
    GatewayTimeout,
    /// The backend gave no answer, or too much is buffered.
    Unavailable,
}

impl RefusalKind {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Invalid | Self::NoPrice | Self::NeverFits => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::ModelNotAllowed => StatusCode::FORBIDDEN,
            Self::ModelNotFound | Self::NotFound => StatusCode::NOT_FOUND,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow | Self::CallerGone => StatusCode::REQUEST_TIMEOUT,
            Self::NoRoom | Self::Closed => StatusCode::TOO_MANY_REQUESTS,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::BadGateway => StatusCode::BAD_GATEWAY,
            Self::GatewayTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The `type` of an error, as the provider's SDKs know it.
    const fn error_type(self, api: Api) -> &'static str {
        match (self, api) {
            (Self::Invalid | Self::NoPrice | Self::NeverFits, _) => "invalid_request_error",
            (Self::TooLarge, Api::OpenAi) => "invalid_request_error",
            (Self::TooLarge, Api::Anthropic) => "request_too_large",
            (Self::Unauthorized, _) => "authentication_error",
            (Self::ModelNotAllowed, _) => "permission_error",
            (Self::ModelNotFound | Self::NotFound, Api::OpenAi) => "invalid_request_error",
            (Self::ModelNotFound | Self::NotFound, Api::Anthropic) => "not_found_error",
            (Self::TooSlow | Self::CallerGone, _) => "timeout_error",
            (Self::NoRoom | Self::Closed, _) => "rate_limit_error",
            (Self::NotImplemented, _) => "invalid_request_error",
            (Self::BadGateway | Self::GatewayTimeout | Self::Unavailable, _) => "api_error",
        }
    }

    /// The `code` of an error, where SDKs and programs look for one.
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Unauthorized => Some("invalid_api_key"),
            Self::ModelNotFound => Some("model_not_found"),
            Self::ModelNotAllowed => Some("model_not_allowed"),
            Self::NoRoom | Self::Closed => Some("rate_limit_exceeded"),
            Self::NoPrice => Some("no_price"),
            Self::NeverFits => Some("amount_exceeds_capacity"),
            Self::Invalid
            | Self::NotFound
            | Self::TooLarge
            | Self::TooSlow
            | Self::CallerGone
            | Self::NotImplemented
            | Self::BadGateway
            | Self::GatewayTimeout
            | Self::Unavailable => None,
        }
    }
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, waited: None }
    }

    pub(crate) fn retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// The provider was not asked.
    pub(crate) fn unreachable(settings: &Provider) -> Self {
        let name = settings.name.as_str();
        let message = format!("the provider {name} cannot be reached; see the server's log");
        Self::new(RefusalKind::BadGateway, message)
    }

    /// The provider did not answer.
    pub(crate) fn no_answer(settings: &Provider) -> Self {
        let message =
            format!("the provider {} gave no answer; see the server's log", settings.name.as_str());
        Self::new(RefusalKind::BadGateway, message)
    }

    /// What the provider says about the gateway itself, which operators must know.
    pub(crate) fn bad_gateway(settings: &Provider, reason: &str) -> Self {
        let message = format!("the provider {} {reason}", settings.name.as_str());
        tracing::warn!("{message}");
        Self::new(RefusalKind::BadGateway, message)
    }

    /// The provider wants no call of this key and model for a while.
    pub(crate) fn closed(settings: &Provider, model: &str, closed_for: Duration) -> Self {
        let message = format!(
            "the provider {} has no room for calls of {model} with this key, by its own limits; retry after {} ms",
            settings.name.as_str(),
            closed_for.as_millis()
        );
        Self::new(RefusalKind::Closed, message).retry_after(closed_for)
    }

    /// The provider was silent for too long.
    pub(crate) fn timed_out(settings: &Provider) -> Self {
        let ms = settings.upstream_timeout.as_millis();
        let message = format!("the provider {} sent no byte for {ms} ms", settings.name.as_str());
        Self::new(RefusalKind::GatewayTimeout, message)
    }

    /// The answer, in the shape of this API.
    pub(crate) fn response(&self, api: Api) -> Response<Full<Bytes>> {
        let Self { kind, message, retry_after, waited } = self;
        let kind_name = kind.error_type(api);
        let body = match api {
            Api::OpenAi => json!({"error": {
                "message": message, "type": kind_name, "param": null, "code": kind.code(),
            }}),
            Api::Anthropic => {
                json!({"type": "error", "error": {"type": kind_name, "message": message}})
            }
        };
        let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
        *response.status_mut() = kind.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(waited) = waited {
            set_waited(headers, *waited);
        }
        if let Some(after) = retry_after {
            let ms = u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            headers.insert(RETRY_AFTER, ms.div_ceil(1_000).into());
            headers.insert(RETRY_AFTER_MS, ms.into());
            let should_retry = if *after <= RETRY_MAX { "true" } else { "false" };
            headers.insert(SHOULD_RETRY, HeaderValue::from_static(should_retry));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http_body_util::BodyExt;

    use super::*;

    fn shown(refusal: &Refusal, api: Api) -> String {
        let response = refusal.response(api);
        let (parts, body) = response.into_parts();
        let body = body.collect().now_or_never().expect("it is whole").unwrap().to_bytes();
        let header = |name: &str| {
            parts.headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned()
        };
        format!(
            "{} {} {} {} {}",
            parts.status.as_u16(),
            header("retry-after"),
            header("retry-after-ms"),
            header("x-should-retry"),
            std::str::from_utf8(&body).unwrap()
        )
    }

    /// GW-06
    #[test]
    fn gw_06_no_room_is_a_429_in_the_providers_shape() {
        let refusal = Refusal::new(RefusalKind::NoRoom, "k is full");
        let soon = refusal.clone().retry_after(Duration::from_millis(1_200));
        assert_eq!(
            shown(&soon, Api::OpenAi),
            r#"429 2 1200 true {"error":{"code":"rate_limit_exceeded","message":"k is full","param":null,"type":"rate_limit_error"}}"#
        );
        assert_eq!(
            shown(&soon, Api::Anthropic),
            r#"429 2 1200 true {"error":{"message":"k is full","type":"rate_limit_error"},"type":"error"}"#
        );
        let late = refusal.retry_after(Duration::from_millis(60_001));
        assert!(shown(&late, Api::OpenAi).starts_with("429 61 60001 false "));
    }
}

//! One exchange over HTTP.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep_until};

use crate::api::Api;
use crate::body::{Closed, MockBody};
use crate::call::Identity;
use crate::calls::{CallEnd, OpenCall, SeenCall};
use crate::fault::Fault;
use crate::faulty::Ending;
use crate::payload::Payload;
use crate::plan::{Plan, RequestRef, fault_of, plan};
use crate::problem::Problem;
use crate::rate_headers;
use crate::state::State;

/// Answers a request. An error closes the connection without an answer.
pub(crate) async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<MockBody>, Closed> {
    let (head, body) = request.into_parts();
    let body = read(body, state.options.body_bytes_max).await?;
    let mut call = begin(&state, &head, body.as_ref().ok());
    let identity = Identity { seed: state.options.seed, number: call.number() };
    let fault = fault_of(&state, &head.headers, identity);
    if fault == Ok(Some(Fault::Reset)) {
        call.answered();
        return Err(Closed);
    }
    let api = Api::of(head.uri.path(), &head.headers);
    let is_slow = fault == Ok(Some(Fault::Slow));
    let plan = fault.and_then(|fault| {
        let request = RequestRef {
            api,
            method: &head.method,
            path: head.uri.path(),
            headers: &head.headers,
            body: &body?,
        };
        plan(&state, &request, identity, fault)
    });
    let slow_for = if is_slow { state.options.slow_for } else { Duration::ZERO };
    wait(state.options.latency.saturating_add(slow_for)).await;
    Ok(respond(&state, api, &identity.id("req_"), plan, call))
}

/// The whole body, or why it is refused.
async fn read(body: Incoming, bytes_max: usize) -> Result<Result<Bytes, Problem>, Closed> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(body) => Ok(Ok(body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => {
            Ok(Err(Problem::BodyTooLarge { bytes_max }))
        }
        // The client went away in the middle of its request.
        Err(_) => Err(Closed),
    }
}

fn begin(state: &State, head: &Parts, body: Option<&Bytes>) -> OpenCall {
    state.calls.begin(SeenCall {
        number: 0,
        method: head.method.clone(),
        path: head.uri.path_and_query().map_or("", |path| path.as_str()).to_owned(),
        headers: head.headers.clone(),
        body: body.cloned().unwrap_or_default(),
        ended: CallEnd::Open,
    })
}

async fn wait(duration: Duration) {
    if !duration.is_zero() {
        sleep_until(Instant::now() + duration).await;
    }
}

fn respond(
    state: &State,
    api: Api,
    request_id: &str,
    plan: Result<Plan, Problem>,
    call: OpenCall,
) -> Response<MockBody> {
    let (plan, problem) = match plan {
        Ok(plan) => (plan, None),
        Err(problem) => {
            let payload = Payload::json(&problem.body(api, request_id), 0);
            let ending = Ending::Complete;
            (Plan { payload, ending, charge: None, whole_tokens: None }, Some(problem))
        }
    };
    let Plan { payload, ending, mut charge, whole_tokens } = plan;
    // Before the headers, which tell what is left.
    if let (Some(mut charge), Some(tokens)) =
        (charge.take_if(|_| whole_tokens.is_some()), whole_tokens)
    {
        charge.add(tokens);
    }
    let Payload { content_type, content_length, content_encoding, frames } = payload;
    let body = MockBody::new(frames, ending, state.options.chunk_interval, call, charge);
    let mut response = Response::new(body);
    *response.status_mut() = problem.as_ref().map_or(StatusCode::OK, |problem| problem.status(api));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(length) = content_length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    if let Some(encoding) = content_encoding {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    let request_id_name = match api {
        Api::OpenAi => "x-request-id",
        Api::Anthropic => "request-id",
    };
    let request_id = HeaderValue::try_from(request_id).expect("letters and digits");
    headers.insert(request_id_name, request_id);
    rate_headers::insert(headers, api, &state.limits.levels());
    if let Some(problem) = problem {
        problem.insert_retry_after(headers, api);
    }
    state.replace_headers(headers);
    response
}

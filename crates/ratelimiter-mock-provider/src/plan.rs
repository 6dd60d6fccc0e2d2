//! From a request to what will be answered.

use hyper::body::Bytes;
use hyper::{HeaderMap, Method};
use serde_json::Map;

use crate::answer::Answer;
use crate::api::{Api, Endpoint};
use crate::authorisation::has_key;
use crate::call::{Call, Identity, read_body};
use crate::charge::Charge;
use crate::fault::Fault;
use crate::faulty::{Ending, apply};
use crate::options::OUTPUT_TOKENS_MAX;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::state::State;
use crate::{anthropic, openai};

pub(crate) struct Plan {
    pub(crate) payload: Payload,
    pub(crate) ending: Ending,
    /// Of calls that count towards the limits.
    pub(crate) charge: Option<Charge>,
    /// The tokens of a plain answer, which are all used when it is sent. Those of a stream are used one by one.
    pub(crate) whole_tokens: Option<u64>,
}

pub(crate) struct RequestRef<'a> {
    pub(crate) api: Api,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
}

/// The fault that hits a call: the one that the caller asks for, or else one of the provider's.
pub(crate) fn fault_of(
    state: &State,
    headers: &HeaderMap,
    identity: Identity,
) -> Result<Option<Fault>, Problem> {
    let Some(name) = headers.get("x-mock-fault") else { return Ok(state.fault_of(identity)) };
    let name = String::from_utf8_lossy(name.as_bytes());
    name.parse().map(Some).map_err(|error| Problem::invalid(format!("x-mock-fault: {error}")))
}

pub(crate) fn plan(
    state: &State,
    request: &RequestRef<'_>,
    identity: Identity,
    fault: Option<Fault>,
) -> Result<Plan, Problem> {
    let endpoint = endpoint_of(state, request)?;
    match fault {
        Some(Fault::TooManyRequests) => {
            return Err(Problem::TooManyRequests { retry_after: state.options.retry_after });
        }
        Some(Fault::Quota) => return Err(Problem::Quota),
        Some(Fault::Unavailable) => return Err(Problem::Unavailable),
        Some(_) | None => {}
    }
    let call = read_call(state, request, endpoint, identity, fault)?;
    let answer = answer(endpoint, request.api, &call)?;
    let Answer { prompt_tokens, output_tokens, output_tokens_max, payload } = answer;
    let charge = if endpoint.is_limited() {
        Some(state.limits.admit(prompt_tokens, output_tokens_max).map_err(Problem::NoRoom)?)
    } else {
        None
    };
    let whole_tokens = (!payload.is_stream()).then_some(output_tokens);
    let (payload, ending) = match fault {
        Some(fault) => apply(fault, payload, output_tokens),
        None => (payload, Ending::Complete),
    };
    Ok(Plan { payload, ending, charge, whole_tokens })
}

fn endpoint_of(state: &State, request: &RequestRef<'_>) -> Result<Endpoint, Problem> {
    let path = || request.path.to_owned();
    let endpoint =
        Endpoint::at(request.path).ok_or_else(|| Problem::UnknownPath { path: path() })?;
    if *request.method != endpoint.method() {
        return Err(Problem::WrongMethod { path: path() });
    }
    if state.options.api_key.as_ref().is_some_and(|key| !has_key(request.headers, key)) {
        return Err(Problem::WrongKey);
    }
    if request.api == Api::Anthropic && !request.headers.contains_key("anthropic-version") {
        return Err(Problem::invalid("anthropic-version: header is required"));
    }
    Ok(endpoint)
}

fn read_call(
    state: &State,
    request: &RequestRef<'_>,
    endpoint: Endpoint,
    identity: Identity,
    fault: Option<Fault>,
) -> Result<Call, Problem> {
    let body = if endpoint == Endpoint::Models { Map::new() } else { read_body(request.body)? };
    if fault == Some(Fault::RejectStreamOptions) && body.contains_key("stream_options") {
        return Err(Problem::StreamOptions);
    }
    let output_tokens = header_count(request.headers, "x-mock-output-tokens")?;
    let output_tokens = output_tokens.unwrap_or_else(|| state.output_tokens());
    if output_tokens > OUTPUT_TOKENS_MAX {
        let message = format!("x-mock-output-tokens: at most {OUTPUT_TOKENS_MAX}");
        return Err(Problem::invalid(message));
    }
    Ok(Call {
        identity,
        body,
        prompt_tokens: header_count(request.headers, "x-mock-prompt-tokens")?,
        output_tokens,
        is_endless: fault == Some(Fault::Endless),
        gives_usage: fault != Some(Fault::NoUsage),
        fails: fault == Some(Fault::ErrorEvent),
    })
}

fn header_count(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let count = value.to_str().ok().and_then(|value| value.parse().ok());
    let problem = || Problem::invalid(format!("{name}: a whole number is required"));
    count.ok_or_else(problem).map(Some)
}

fn answer(endpoint: Endpoint, api: Api, call: &Call) -> Result<Answer, Problem> {
    match (endpoint, api) {
        (Endpoint::ChatCompletions, _) => openai::chat::answer(call),
        (Endpoint::Completions, _) => openai::completions::answer(call),
        (Endpoint::Responses, _) => openai::responses::answer(call),
        (Endpoint::Embeddings, _) => openai::embeddings::answer(call),
        (Endpoint::Models, Api::OpenAi) => Ok(openai::models::answer()),
        (Endpoint::Models, Api::Anthropic) => Ok(anthropic::models()),
        (Endpoint::Messages, _) => anthropic::messages(call),
        (Endpoint::CountTokens, _) => anthropic::count_tokens(call),
    }
}

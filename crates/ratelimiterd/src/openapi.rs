//! The API's own description, made of the wire's own types.

use ratelimiter_wire::{
    BatchAnswer, BatchBody, CompleteAnswer, CompleteBody, DefineAnswer, DefinitionBody,
    DeleteAnswer, ErrorBody, ListAnswer, ReserveAnswer, ReserveBody, StateAnswer,
};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

/// One call of the API.
struct Call {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// The name of the body's type.
    body: Option<&'static str>,
    /// The name of the answer's type; `None` for text.
    answer: Option<&'static str>,
    /// The statuses beside 200, each with when it comes.
    refusals: &'static [(&'static str, &'static str)],
    parameters: &'static [(&'static str, &'static str, &'static str)],
}

const INVALID: (&str, &str) = ("400", "The request has no valid shape: `invalid_request:<field>`.");
const UNAUTHORIZED: (&str, &str) = ("401", "No valid token: `unauthorized`.");
const FORBIDDEN: (&str, &str) = ("403", "The token is of the wrong class: `forbidden`.");
const NO_ANSWER: (&str, &str) =
    ("503", "No answer in time, so the outcome is unknown: `backend_error`.");
const KEY: (&str, &str, &str) = ("path", "key", "The limit's key, percent-encoded.");

const CALLS: [Call; 13] = [
    Call {
        method: "post",
        path: "/v1/reserve",
        summary: "May this call go ahead? Reserves all that it needs, or nothing.",
        body: Some("ReserveBody"),
        answer: Some("ReserveAnswer"),
        refusals: &[
            (
                "400",
                "The request has no valid shape: `invalid_request:<field>`, `duplicate_key:<key>`.",
            ),
            UNAUTHORIZED,
            ("404", "`unknown_limit_key:<key>`."),
            ("409", "`lease_conflict` or `lease_ended`; take a new lease ID."),
            ("422", "`amount_exceeds_capacity:<key>`; waiting cannot help."),
            ("503", "`backend_error`: the outcome is unknown; repeat with the same lease ID."),
        ],
        parameters: &[],
    },
    Call {
        method: "post",
        path: "/v1/complete",
        summary: "The call is over. Releases its holds and makes its reservations match what was used.",
        body: Some("CompleteBody"),
        answer: Some("CompleteAnswer"),
        refusals: &[
            (
                "400",
                "`invalid_request:<field>`, `duplicate_key:<key>` or `invalid_actual:<key>`; nothing was applied.",
            ),
            UNAUTHORIZED,
            NO_ANSWER,
        ],
        parameters: &[],
    },
    Call {
        method: "post",
        path: "/v1/reserve/batch",
        summary: "1 to 256 reserves, independent of each other; one result each, in order.",
        body: Some("BatchBody_ReserveBody"),
        answer: Some("BatchAnswer_ReserveAnswer"),
        refusals: &[INVALID, UNAUTHORIZED],
        parameters: &[],
    },
    Call {
        method: "post",
        path: "/v1/complete/batch",
        summary: "1 to 256 completes, independent of each other; one result each, in order.",
        body: Some("BatchBody_CompleteBody"),
        answer: Some("BatchAnswer_CompleteAnswer"),
        refusals: &[INVALID, UNAUTHORIZED],
        parameters: &[],
    },
    Call {
        method: "put",
        path: "/v1/admin/limits",
        summary: "Defines a limit, or changes one. When it answers, the definition is safe on disk.",
        body: Some("DefinitionBody"),
        answer: Some("DefineAnswer"),
        refusals: &[
            INVALID,
            UNAUTHORIZED,
            FORBIDDEN,
            (
                "409",
                "`kind_conflict:<key>`: the kind of a limit cannot change; or `too_many_limits`: there is no room for another.",
            ),
            ("503", "`backend_error`: the definition could not be kept; nothing has changed."),
        ],
        parameters: &[],
    },
    Call {
        method: "get",
        path: "/v1/admin/limits",
        summary: "Limits with their figures of the moment, sorted by key.",
        body: None,
        answer: Some("ListAnswer"),
        refusals: &[INVALID, UNAUTHORIZED, FORBIDDEN, NO_ANSWER],
        parameters: &[
            ("query", "prefix", "Only keys that begin with this."),
            ("query", "after", "Only keys that sort after this one."),
            ("query", "limit", "At most this many."),
        ],
    },
    Call {
        method: "get",
        path: "/v1/admin/limits/{key}",
        summary: "One limit with its figures of the moment.",
        body: None,
        answer: Some("StateAnswer"),
        refusals: &[UNAUTHORIZED, FORBIDDEN, ("404", "`not_found`."), NO_ANSWER],
        parameters: &[KEY],
    },
    Call {
        method: "delete",
        path: "/v1/admin/limits/{key}",
        summary: "Removes a limit. Leases that hold it complete without error.",
        body: None,
        answer: Some("DeleteAnswer"),
        refusals: &[UNAUTHORIZED, FORBIDDEN, ("404", "`not_found`."), NO_ANSWER],
        parameters: &[KEY],
    },
    text("/healthz", "200 while the process lives.", &[]),
    text("/readyz", "200 while the backend answers.", &[NO_ANSWER]),
    text("/metrics", "Prometheus metrics.", &[UNAUTHORIZED, FORBIDDEN]),
    text("/openapi.json", "This description.", &[UNAUTHORIZED]),
    text("/", "A page that lists the limits.", &[UNAUTHORIZED, FORBIDDEN]),
];

/// A call that answers with text.
const fn text(
    path: &'static str,
    summary: &'static str,
    refusals: &'static [(&'static str, &'static str)],
) -> Call {
    Call { method: "get", path, summary, body: None, answer: None, refusals, parameters: &[] }
}

/// The description in `OpenAPI` 3.1.
///
/// # Panics
/// Never: it is made of constants.
pub(crate) fn description() -> Value {
    let mut paths = Map::new();
    for call in &CALLS {
        let path = paths.entry(call.path).or_insert_with(|| json!({}));
        path[call.method] = operation(call);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ratelimiter",
            "description": "Capacity control for LLM calls.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{}, { "bearer": [] }],
    })
}

fn operation(call: &Call) -> Value {
    let mut responses = Map::new();
    let content = call.answer.map_or_else(|| json!({ "text/plain": {} }), json_content);
    responses.insert("200".to_owned(), json!({ "description": "Answered.", "content": content }));
    for (status, description) in call.refusals {
        // A refusal has the shape of its call's answer where that says more than `error` and `message`.
        let shape = match call.answer {
            Some(answer) if answer.ends_with("Answer") && !answer.contains("Batch") => answer,
            Some(_) | None => "ErrorBody",
        };
        let shape = if matches!(shape, "ListAnswer" | "StateAnswer") { "ErrorBody" } else { shape };
        let refusal = json!({ "description": description, "content": json_content(shape) });
        responses.insert((*status).to_owned(), refusal);
    }
    let parameter = |(place, name, description): &(&str, &str, &str)| {
        let schema = if *name == "limit" {
            json!({ "type": "integer", "minimum": 1 })
        } else {
            json!({ "type": "string" })
        };
        json!({ "in": place, "name": name, "description": description, "required": *place == "path", "schema": schema })
    };
    let mut operation = json!({
        "summary": call.summary,
        "parameters": call.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "responses": responses,
    });
    if let Some(body) = call.body {
        operation["requestBody"] = json!({ "required": true, "content": json_content(body) });
    }
    operation
}

fn json_content(schema: &str) -> Value {
    json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } })
}

fn schemas() -> Value {
    let mut all = Vec::new();
    add::<ReserveBody>(&mut all);
    add::<ReserveAnswer>(&mut all);
    add::<CompleteBody>(&mut all);
    add::<CompleteAnswer>(&mut all);
    add_as::<BatchBody<ReserveBody>>("BatchBody_ReserveBody", &mut all);
    add_as::<BatchAnswer<ReserveAnswer>>("BatchAnswer_ReserveAnswer", &mut all);
    add_as::<BatchBody<CompleteBody>>("BatchBody_CompleteBody", &mut all);
    add_as::<BatchAnswer<CompleteAnswer>>("BatchAnswer_CompleteAnswer", &mut all);
    add::<DefinitionBody>(&mut all);
    add::<DefineAnswer>(&mut all);
    add::<DeleteAnswer>(&mut all);
    add::<ListAnswer>(&mut all);
    add::<StateAnswer>(&mut all);
    add::<ErrorBody>(&mut all);
    let json = |(name, schema): (String, RefOr<Schema>)| {
        (name, serde_json::to_value(schema).expect("a schema is JSON"))
    };
    Value::Object(all.into_iter().map(json).collect())
}

fn add<T: ToSchema>(all: &mut Vec<(String, RefOr<Schema>)>) {
    add_as::<T>(&T::name(), all);
}

/// A type with a parameter has no name of its own.
fn add_as<T: ToSchema>(name: &str, all: &mut Vec<(String, RefOr<Schema>)>) {
    all.push((name.to_owned(), T::schema()));
    T::schemas(all);
}

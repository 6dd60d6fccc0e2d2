//! `OpenAPI` description, generated from the wire types.

use ratelimiter::{LEASE_AGE_SECONDS_MAX, LEASE_PAGE_MAX};
use ratelimiter_wire::{
    BatchAnswer, BatchBody, CompleteAnswer, CompleteBody, DefineAnswer, DefinitionBody,
    DefinitionsBody, DeleteAnswer, ErrorBody, ForgiveAnswer, ForgiveBody, LeasesAnswer, ListAnswer,
    ReleaseAnswer, RenewAnswer, RenewBody, ReserveAnswer, ReserveBody, StateAnswer,
};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

struct ApiOperation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// Schema name of the request body.
    body: Option<&'static str>,
    /// Schema name of the response; `None` if it is not one of our JSON types.
    answer: Option<&'static str>,
    /// Content type of a response without a schema.
    content_type: &'static str,
    /// The statuses other than 200, each with its description.
    refusals: &'static [(&'static str, &'static str)],
    parameters: &'static [(&'static str, &'static str, &'static str)],
}

const INVALID: (&str, &str) = ("400", "The request is malformed: `invalid_request:<field>`.");
const UNAUTHORIZED: (&str, &str) = ("401", "No valid token: `unauthorized`.");
const FORBIDDEN: (&str, &str) = ("403", "The token does not permit this: `forbidden`.");
const FORBIDDEN_KEY: (&str, &str) =
    ("403", "The token does not permit this: `forbidden`, or `forbidden_key:<key>` for this key.");
const NO_ANSWER: (&str, &str) =
    ("503", "No answer in time, so the outcome is unknown: `backend_error`.");
const NOT_CHANGED: (&str, &str) = (
    "503",
    "`backend_error`: the change was rolled back and does not take effect later, unless the message says that its outcome is not known yet. On Redis it says so of every change that was sent.",
);
/// Errors of every operation with a body.
const BODY_REFUSALS: [(&str, &str); 2] = [
    ("408", "The body did not arrive in time: `request_timeout`."),
    ("413", "The body is larger than 1 MiB, or than the path allows: `body_too_large`."),
];
/// Schema name of one definition or a list.
const DEFINE_BODY: &str = "DefineBody";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
/// A key contains no white space and no control characters.
const KEY_PATTERN: &str = r"^[^\s\u0000-\u001f\u007f-\u009f]+$";
const PART_PATTERN: &str = r"^[^\s\u0000-\u001f\u007f-\u009f]*$";
const LEASES: &str = "/v1/admin/leases";
const LEASE_PATTERN: &str = "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$";
const KEY: (&str, &str, &str) = ("path", "key", "The limit's key, percent-encoded.");

const OPERATIONS: [ApiOperation; 17] = [
    ApiOperation {
        method: "post",
        path: "/v1/reserve",
        summary: "Reserves all requirements of a call, or nothing. A denial is 200, with `denied_keys`, or with `limit_paused:<key>`, `limit_decreasing:<key>` or `too_many_limits:<template>` as its `error`. `shadow_denied_keys` names the limits in shadow mode that would have denied an allowed request.",
        body: Some("ReserveBody"),
        answer: Some("ReserveAnswer"),
        content_type: JSON,
        refusals: &[
            ("400", "The request is malformed: `invalid_request:<field>`, `duplicate_key:<key>`."),
            UNAUTHORIZED,
            FORBIDDEN_KEY,
            ("404", "`unknown_limit_key:<key>`."),
            ("409", "`lease_conflict` or `lease_ended`; use a new lease ID."),
            (
                "422",
                "`amount_exceeds_capacity:<key>`, for a capacity above 0; waiting does not help.",
            ),
            ("503", "`backend_error`: the outcome is unknown; repeat with the same lease ID."),
        ],
        parameters: &[],
    },
    ApiOperation {
        method: "post",
        path: "/v1/renew",
        summary: "Keeps an open lease open: the timeouts of its holds begin again. Also sets what it holds of the named limits, all or none. Giving back always works; more needs room, and a denial is 200 as that of a reserve, with nothing changed. Repeating the last number answers as before.",
        body: Some("RenewBody"),
        answer: Some("RenewAnswer"),
        content_type: JSON,
        refusals: &[
            (
                "400",
                "`invalid_request:<field>`, `duplicate_key:<key>` or `invalid_amount:<key>`, for a key that the lease does not hold; nothing was changed.",
            ),
            UNAUTHORIZED,
            FORBIDDEN_KEY,
            ("404", "`unknown_limit_key:<key>`: more is asked of a limit that was deleted."),
            ("409", "`lease_ended` or `renew_superseded`."),
            (
                "422",
                "`amount_exceeds_capacity:<key>`, for a capacity above 0; waiting does not help.",
            ),
            ("503", "`backend_error`: the outcome is unknown; repeat with the same number."),
        ],
        parameters: &[],
    },
    ApiOperation {
        method: "post",
        path: "/v1/complete",
        summary: "Completes a call: releases its holds and reconciles its reservations with the actual usage.",
        body: Some("CompleteBody"),
        answer: Some("CompleteAnswer"),
        content_type: JSON,
        refusals: &[
            (
                "400",
                "`invalid_request:<field>`, `duplicate_key:<key>` or `invalid_actual:<key>`; nothing was applied.",
            ),
            UNAUTHORIZED,
            FORBIDDEN_KEY,
            NO_ANSWER,
        ],
        parameters: &[],
    },
    ApiOperation {
        method: "post",
        path: "/v1/reserve/batch",
        summary: "1 to 256 reserves, independent of each other; one result each, in order.",
        body: Some("BatchBody_ReserveBody"),
        answer: Some("BatchAnswer_ReserveAnswer"),
        content_type: JSON,
        refusals: &[INVALID, UNAUTHORIZED, FORBIDDEN],
        parameters: &[],
    },
    ApiOperation {
        method: "post",
        path: "/v1/complete/batch",
        summary: "1 to 256 completes, independent of each other; one result each, in order.",
        body: Some("BatchBody_CompleteBody"),
        answer: Some("BatchAnswer_CompleteAnswer"),
        content_type: JSON,
        refusals: &[INVALID, UNAUTHORIZED, FORBIDDEN],
        parameters: &[],
    },
    ApiOperation {
        method: "put",
        path: "/v1/admin/limits",
        summary: "Defines or changes a limit, or all limits of a list or none; a capacity of 0 pauses a limit. A key with a segment `*` (any one segment) or `**` (one or more) is a template, from which limits are made for the keys that it matches. The answer is sent when the definitions are on disk. The body has up to 32 MiB.",
        body: Some(DEFINE_BODY),
        answer: Some("DefineAnswer"),
        content_type: JSON,
        refusals: &[
            (
                "400",
                "The request is malformed: `invalid_request:<field>`, or in a list `invalid_request:limits[3].<field>` or `duplicate_key:<key>`.",
            ),
            UNAUTHORIZED,
            FORBIDDEN_KEY,
            (
                "409",
                "`kind_conflict:<key>`: the kind of a limit cannot change; `too_many_limits`: the maximum number of limits or templates is reached; or `limits_read_only`: the server cannot write its registry.",
            ),
            NOT_CHANGED,
        ],
        parameters: &[],
    },
    ApiOperation {
        method: "get",
        path: "/v1/admin/limits",
        summary: "Limits and templates with current usage, sorted by key; only those that the token permits.",
        body: None,
        answer: Some("ListAnswer"),
        content_type: JSON,
        refusals: &[INVALID, UNAUTHORIZED, FORBIDDEN, NO_ANSWER],
        parameters: &[
            ("query", "prefix", "Only keys that begin with this."),
            (
                "query",
                "template",
                "In place of what is defined, the limits that were made from this template and are in use or owe a debt.",
            ),
            ("query", "after", "Only keys that sort after this one."),
            ("query", "limit", "At most this many."),
        ],
    },
    ApiOperation {
        method: "get",
        path: "/v1/admin/limits/{key}",
        summary: "One limit with current usage. For a key that only a template matches, the limit that was made from it, or would be.",
        body: None,
        answer: Some("StateAnswer"),
        content_type: JSON,
        refusals: &[INVALID, UNAUTHORIZED, FORBIDDEN_KEY, ("404", "`not_found`."), NO_ANSWER],
        parameters: &[KEY],
    },
    ApiOperation {
        method: "delete",
        path: "/v1/admin/limits/{key}",
        summary: "Removes a limit or a template. Leases that hold it complete without error. The keys of a template are left to the next one that matches.",
        body: None,
        answer: Some("DeleteAnswer"),
        content_type: JSON,
        refusals: &[
            INVALID,
            UNAUTHORIZED,
            FORBIDDEN_KEY,
            ("404", "`not_found`."),
            ("409", "`limits_read_only`: the server cannot write its registry."),
            NOT_CHANGED,
        ],
        parameters: &[KEY],
    },
    ApiOperation {
        method: "get",
        path: LEASES,
        summary: "Open leases, the oldest first; on TigerBeetle those that this server knows. A page with fewer than `limit` is the last one.",
        body: None,
        answer: Some("LeasesAnswer"),
        content_type: JSON,
        refusals: &[INVALID, UNAUTHORIZED, FORBIDDEN_KEY, NO_ANSWER],
        parameters: &[
            ("query", "key", "Only leases that have something of this limit."),
            ("query", "older_than_seconds", "Only leases of at least this age."),
            ("query", "limit", "At most this many; 100 by default."),
            ("query", "after", "Only leases that are listed after this one, which may have ended."),
        ],
    },
    ApiOperation {
        method: "delete",
        path: "/v1/admin/leases/{lease_id}",
        summary: "Releases an open lease, exactly as a complete without actuals: its holds return, its rolling reservations stay.",
        body: None,
        answer: Some("ReleaseAnswer"),
        content_type: JSON,
        refusals: &[INVALID, UNAUTHORIZED, FORBIDDEN, ("404", "`not_found`."), NO_ANSWER],
        parameters: &[("path", "lease_id", "The lease.")],
    },
    ApiOperation {
        method: "post",
        path: "/v1/admin/forgive",
        summary: "Sets the debt of a limit to 0, and returns how much it was.",
        body: Some("ForgiveBody"),
        answer: Some("ForgiveAnswer"),
        content_type: JSON,
        refusals: &[
            INVALID,
            UNAUTHORIZED,
            FORBIDDEN_KEY,
            ("404", "`unknown_limit_key:<key>`."),
            NO_ANSWER,
        ],
        parameters: &[],
    },
    page("/healthz", TEXT, "Liveness: 200 while the process runs.", &[]),
    page("/readyz", TEXT, "Readiness: 200 while the backend answers.", &[NO_ANSWER]),
    page("/metrics", TEXT, "Prometheus metrics.", &[UNAUTHORIZED, FORBIDDEN]),
    page("/openapi.json", JSON, "This description.", &[UNAUTHORIZED]),
    page("/", "text/html", "A page that lists the limits.", &[UNAUTHORIZED, FORBIDDEN, NO_ANSWER]),
];

/// A GET whose response has no schema.
const fn page(
    path: &'static str,
    content_type: &'static str,
    summary: &'static str,
    refusals: &'static [(&'static str, &'static str)],
) -> ApiOperation {
    let (method, body, answer) = ("get", None, None);
    ApiOperation { method, path, summary, body, answer, content_type, refusals, parameters: &[] }
}

/// The description in `OpenAPI` 3.1.
///
/// # Panics
/// Never: it is made of constants.
pub(crate) fn description() -> Value {
    let mut paths = Map::new();
    for api in &OPERATIONS {
        let path = paths.entry(api.path).or_insert_with(|| json!({}));
        path[api.method] = operation(api);
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

fn operation(api: &ApiOperation) -> Value {
    let mut responses = Map::new();
    let content = api.answer.map_or_else(|| json!({ api.content_type: {} }), json_content);
    responses.insert("200".to_owned(), json!({ "description": "Answered.", "content": content }));
    let of_body = if api.body.is_some() { &BODY_REFUSALS[..] } else { &[] };
    for (status, description) in api.refusals.iter().chain(of_body) {
        // An error has the schema of the response if that has more fields than `error` and `message`.
        let shape = match api.answer {
            Some(answer) if answer.ends_with("Answer") && !answer.contains("Batch") => answer,
            Some(_) | None => "ErrorBody",
        };
        let shape = match shape {
            "ListAnswer" | "StateAnswer" | "LeasesAnswer" => "ErrorBody",
            other => other,
        };
        let refusal = json!({ "description": description, "content": json_content(shape) });
        responses.insert((*status).to_owned(), refusal);
    }
    let parameter = |(place, name, description): &(&str, &str, &str)| {
        let schema = match *name {
            "limit" if api.path == LEASES => {
                json!({ "type": "integer", "minimum": 1, "maximum": LEASE_PAGE_MAX })
            }
            "older_than_seconds" => {
                json!({ "type": "integer", "minimum": 0, "maximum": LEASE_AGE_SECONDS_MAX })
            }
            "lease_id" => json!({ "type": "string", "pattern": LEASE_PATTERN }),
            "after" if api.path == LEASES => {
                json!({ "type": "string", "pattern": format!("^$|{LEASE_PATTERN}") })
            }
            "limit" => json!({ "type": "integer", "minimum": 1 }),
            "prefix" => json!({ "type": "string" }),
            // An empty value means none.
            "after" | "template" => {
                json!({ "type": "string", "maxLength": 256, "pattern": PART_PATTERN })
            }
            _ => {
                json!({ "type": "string", "minLength": 1, "maxLength": 256, "pattern": KEY_PATTERN })
            }
        };
        json!({ "in": place, "name": name, "description": description, "required": *place == "path", "schema": schema })
    };
    let mut operation = json!({
        "summary": api.summary,
        "parameters": api.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "responses": responses,
    });
    if let Some(body) = api.body {
        operation["requestBody"] = json!({ "required": true, "content": json_content(body) });
    }
    operation
}

fn json_content(schema: &str) -> Value {
    json!({ "application/json": { "schema": schema_ref(schema) } })
}

fn schema_ref(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn schemas() -> Value {
    let mut all = Vec::new();
    add::<ReserveBody>(&mut all);
    add::<ReserveAnswer>(&mut all);
    add::<RenewBody>(&mut all);
    add::<RenewAnswer>(&mut all);
    add::<CompleteBody>(&mut all);
    add::<CompleteAnswer>(&mut all);
    add_as::<BatchBody<ReserveBody>>("BatchBody_ReserveBody", &mut all);
    add_as::<BatchAnswer<ReserveAnswer>>("BatchAnswer_ReserveAnswer", &mut all);
    add_as::<BatchBody<CompleteBody>>("BatchBody_CompleteBody", &mut all);
    add_as::<BatchAnswer<CompleteAnswer>>("BatchAnswer_CompleteAnswer", &mut all);
    add::<DefinitionBody>(&mut all);
    add::<DefinitionsBody>(&mut all);
    add::<DefineAnswer>(&mut all);
    add::<DeleteAnswer>(&mut all);
    add::<ListAnswer>(&mut all);
    add::<StateAnswer>(&mut all);
    add::<LeasesAnswer>(&mut all);
    add::<ReleaseAnswer>(&mut all);
    add::<ForgiveBody>(&mut all);
    add::<ForgiveAnswer>(&mut all);
    add::<ErrorBody>(&mut all);
    let json = |(name, schema): (String, RefOr<Schema>)| {
        (name, serde_json::to_value(schema).expect("a schema is JSON"))
    };
    let mut schemas: Map<_, _> = all.into_iter().map(json).collect();
    let forms = ["DefinitionBody", "DefinitionsBody"].map(schema_ref);
    schemas.insert(DEFINE_BODY.to_owned(), json!({ "oneOf": forms }));
    Value::Object(schemas)
}

fn add<T: ToSchema>(all: &mut Vec<(String, RefOr<Schema>)>) {
    add_as::<T>(&T::name(), all);
}

/// A generic type needs an explicit schema name.
fn add_as<T: ToSchema>(name: &str, all: &mut Vec<(String, RefOr<Schema>)>) {
    all.push((name.to_owned(), T::schema()));
    T::schemas(all);
}

//! `GET /v1/models`: a few names. Calls may name any model.

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::payload::Payload;

pub(crate) fn answer() -> Answer {
    let model = |id: &str| json!({ "id": id, "object": "model", "created": 1_700_000_000, "owned_by": "mock" });
    let data = ["gpt-4o", "gpt-4o-mini", "text-embedding-3-small"].map(model);
    let payload = Payload::json(&json!({ "object": "list", "data": Value::from_iter(data) }), 0);
    Answer { prompt_tokens: 0, output_tokens: 0, output_tokens_max: 0, payload }
}

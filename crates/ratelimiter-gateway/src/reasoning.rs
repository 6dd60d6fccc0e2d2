//! Whether a model may reason before its first output. What it then uses cannot be seen in a stream that breaks off (`GW-05`).

use serde_json::Value;

use crate::model_name::openai_name;

/// OpenAI's models that reason unless they are told not to, by how their names begin.
const REASONING: [&str; 6] = ["o1", "o3", "o4", "gpt-5", "gpt-oss", "codex-mini"];
/// Of these, those that do not.
const NOT_REASONING: &str = "gpt-5-chat";

/// Whether a model reasons if the call does not say.
pub(crate) fn reasons_unless_told(model: &str) -> bool {
    let name = openai_name(model);
    REASONING.iter().any(|prefix| name.starts_with(prefix)) && !name.starts_with(NOT_REASONING)
}

/// What a call says of it: `reasoning_effort` of chat completions, `reasoning.effort` of responses and `thinking.type` of messages.
/// `None` if it says nothing.
pub(crate) fn is_told_to_reason(
    effort: Option<&Value>,
    reasoning: Option<&Value>,
    thinking: Option<&Value>,
) -> Option<bool> {
    let effort = effort.or_else(|| reasoning?.get("effort")).filter(|effort| !effort.is_null());
    let thinking = thinking.and_then(|thinking| thinking.get("type"));
    match (effort, thinking) {
        (Some(effort), _) => Some(effort != "none"),
        (None, Some(thinking)) => Some(thinking != "disabled"),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// GW-05
    #[test]
    fn gw_05_a_call_may_say_whether_the_model_reasons() {
        for (call, expected) in [
            (json!({}), None),
            (json!({"reasoning_effort": "high"}), Some(true)),
            (json!({"reasoning_effort": "none"}), Some(false)),
            (json!({"reasoning_effort": null}), None),
            (json!({"reasoning": {"effort": "low"}}), Some(true)),
            (json!({"reasoning": {"effort": "none"}}), Some(false)),
            (json!({"reasoning": {"summary": "auto"}}), None),
            (json!({"reasoning": null}), None),
            (json!({"thinking": {"type": "enabled", "budget_tokens": 2_000}}), Some(true)),
            (json!({"thinking": {"type": "adaptive"}}), Some(true)),
            (json!({"thinking": {"type": "disabled"}}), Some(false)),
            (json!({"thinking": 7}), None),
        ] {
            let field = |name: &str| call.get(name);
            let told =
                is_told_to_reason(field("reasoning_effort"), field("reasoning"), field("thinking"));
            assert_eq!(told, expected, "{call}");
        }
    }

    /// GW-05
    #[test]
    fn gw_05_some_models_reason_unless_they_are_told_not_to() {
        for model in [
            "o1",
            "o3-mini",
            "o4-mini-2025-04-16",
            "gpt-5.1",
            "openai/gpt-oss-120b",
            "ft:o4-mini:acme",
        ] {
            assert!(reasons_unless_told(model), "{model}");
        }
        for model in ["gpt-4o", "gpt-5-chat-latest", "claude-sonnet-4-5", "llama-3.3-70b"] {
            assert!(!reasons_unless_told(model), "{model}");
        }
    }
}

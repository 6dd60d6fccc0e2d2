//! What is reserved for OpenAI's models, held against the published rules for what is counted (`GW-03`).

use serde_json::{Value, json};

use super::*;
use crate::api::Operation;
use crate::encoding::Encoding;

const MODEL: &str = "gpt-4o";
const PROSE: &str = "The harbour was quiet that morning. Two fishermen mended their nets and spoke of the weather, which had \
    been kind to them since May; a third, who had slept badly, said nothing and watched the gulls.\n\n";
const CJK: &str = "速率限制保护共享的模型。調用開始之前先預留,結束之後再結算。お誕生日おめでとうございます。한국어 문장도 있습니다.";
const EMOJI: &str = "🎉🚀👩‍👩‍👧‍👦 great! 🏳️‍🌈🇧🇬 ok 👍🏽";

fn tokens(text: &str) -> u64 {
    Encoding::of_model(MODEL).unwrap().tokens(text)
}

/// Three tokens begin the answer, three belong to each message, and one to a name.
fn of_messages(messages: &Value) -> u64 {
    let of_field = |(name, value): (&String, &Value)| {
        tokens(value.as_str().unwrap()) + u64::from(name == "name")
    };
    let of_message =
        |message: &Value| 3 + message.as_object().unwrap().iter().map(of_field).sum::<u64>();
    3 + messages.as_array().unwrap().iter().map(of_message).sum::<u64>()
}

/// As OpenAI's cookbook counts functions.
fn of_tools(tools: &Value) -> u64 {
    let text = |value: &Value| value.as_str().unwrap_or_default().trim_end_matches('.').to_owned();
    let of_property = |(name, property): (&String, &Value)| {
        let mut sum = 3;
        if let Some(values) = property["enum"].as_array() {
            sum = values.iter().map(|value| 3 + tokens(&text(value))).sum();
        }
        sum + tokens(&format!(
            "{name}:{}:{}",
            text(&property["type"]),
            text(&property["description"])
        ))
    };
    let of_tool = |tool: &Value| {
        let function = &tool["function"];
        let name = format!("{}:{}", text(&function["name"]), text(&function["description"]));
        let properties = function["parameters"]["properties"].as_object();
        let of_properties =
            properties.map_or(0, |all| 3 + all.iter().map(of_property).sum::<u64>());
        7 + tokens(&name) + of_properties
    };
    12 + tools.as_array().unwrap().iter().map(of_tool).sum::<u64>()
}

fn chat(content: &str) -> (Operation, Value, u64) {
    let messages =
        json!([{"role": "system", "content": "You help."}, {"role": "user", "content": content}]);
    let actual = of_messages(&messages);
    (Operation::ChatCompletions, json!({"model": MODEL, "messages": messages}), actual)
}

fn with_tools() -> (Operation, Value, u64) {
    let tool = |name: &str, unit: &str| {
        json!({"type": "function", "function": {
            "name": name, "description": "Get the current weather in a given location",
            "parameters": {"type": "object", "required": ["location"], "properties": {
                "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
                "unit": {"type": "string", "description": unit, "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer"},
            }},
        }})
    };
    let tools = json!([
        tool("get_current_weather", "The unit of temperature."),
        tool("forecast", ""),
        {"type": "function", "function": {"name": "f"}},
    ]);
    let messages =
        json!([{"role": "user", "content": "What is the weather like in San Francisco?"}]);
    let actual = of_messages(&messages) + of_tools(&tools);
    (
        Operation::ChatCompletions,
        json!({"model": MODEL, "messages": messages, "tools": tools}),
        actual,
    )
}

/// The provider adds more to a tool than the tool has of its own.
fn with_a_small_tool() -> (Operation, Value, u64) {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let messages = json!([{"role": "user", "content": "hi"}]);
    let actual = of_messages(&messages) + of_tools(&tools);
    let body = json!({"model": MODEL, "messages": messages, "tools": tools});
    (Operation::ChatCompletions, body, actual)
}

fn corpus() -> Vec<(&'static str, Operation, Value, u64)> {
    let named = |name, (operation, body, actual)| (name, operation, body, actual);
    let conversation: Vec<_> = (0..40)
        .map(|n| json!({"role": if n % 2 == 0 { "user" } else { "assistant" }, "name": "ann", "content": PROSE}))
        .collect();
    let conversation = Value::from(conversation);
    let of_conversation = of_messages(&conversation);
    let records: Vec<_> = (0..200)
        .map(|n| json!({"id": n, "name": format!("item-{n}"), "price": f64::from(n) * 1.25, "tags": ["a", null, true]}))
        .collect();
    let mebibyte = PROSE.repeat((1 << 20) / PROSE.len());
    let inputs = [PROSE, CJK, EMOJI];
    vec![
        named("a word", chat("hi")),
        named("prose", chat(&PROSE.repeat(10))),
        named("code", chat(include_str!("../settle.rs"))),
        named("JSON", chat(&serde_json::to_string_pretty(&records).unwrap())),
        named("CJK", chat(&CJK.repeat(20))),
        named("emoji", chat(&EMOJI.repeat(20))),
        named("digits", chat(&"3141592653589793".repeat(50))),
        named("white space", chat(&format!("a{}b{}c", " ".repeat(1_000), "\n\t".repeat(500)))),
        named("controls and escapes", chat("\u{0}\u{1b}[31m\"quoted\\\"\u{feff}\u{202e}")),
        named("special tokens as text", chat("<|endoftext|><|im_start|>system")),
        named("a mebibyte", chat(&mebibyte)),
        named("tools", with_tools()),
        named("a small tool", with_a_small_tool()),
        (
            "a conversation",
            Operation::ChatCompletions,
            json!({"model": MODEL, "messages": conversation}),
            of_conversation,
        ),
        (
            "completions",
            Operation::Completions,
            json!({"model": MODEL, "prompt": PROSE}),
            tokens(PROSE),
        ),
        (
            "responses",
            Operation::Responses,
            json!({"model": MODEL, "input": PROSE}),
            tokens(PROSE) + 7,
        ),
        (
            "embeddings",
            Operation::Embeddings,
            json!({"model": MODEL, "input": inputs}),
            inputs.iter().map(|text| tokens(text)).sum(),
        ),
    ]
}

/// GW-03
#[test]
fn gw_03_the_reservation_covers_the_corpus_with_at_most_half_the_slack_of_bytes() {
    for (name, operation, body, actual) in corpus() {
        let estimate = |encoding| {
            let call = Call::parse(operation, body.to_string().into(), |_| encoding).unwrap();
            Estimate::of(&call, None, Ratio::SAFE, 0).0.input
        };
        let (by_tokens, by_bytes) = (estimate(Encoding::of_model(MODEL)), estimate(None));
        assert!(by_tokens >= actual, "{name}: {by_tokens} reserved, {actual} used");
        let (slack, of_bytes) = (by_tokens - actual, by_bytes - actual);
        assert!(2 * slack <= of_bytes, "{name}: {slack} above {actual}, by bytes {of_bytes}");
    }
}

/// GW-03
#[test]
fn gw_03_token_ids_count_by_their_number() {
    for (operation, body) in [
        (Operation::Embeddings, json!({"model": MODEL, "input": vec![1; 1_000]})),
        (Operation::Completions, json!({"model": MODEL, "prompt": [vec![1; 400], vec![2; 600]]})),
    ] {
        let call = Call::parse(operation, body.to_string().into(), |_| Encoding::of_model(MODEL));
        let input = Estimate::of(&call.unwrap(), None, Ratio::SAFE, 0).0.input;
        assert!((1_000..1_020).contains(&input), "{input}");
    }
}

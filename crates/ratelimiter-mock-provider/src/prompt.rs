//! The tokens of a prompt: its words. No tokenizer, but easy to predict.

use serde_json::Value;

const TOKENS_PER_MESSAGE: u64 = 4;

/// Words in all text of a value; token IDs count one each. Of objects, only their text and content are looked at.
pub(crate) fn words(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.split_whitespace().fold(0, |count, _| count + 1),
        Value::Array(parts) => parts.iter().map(words).sum(),
        Value::Object(part) => {
            ["text", "content"].iter().filter_map(|name| part.get(*name)).map(words).sum()
        }
        Value::Number(_) => 1,
        Value::Null | Value::Bool(_) => 0,
    }
}

/// Words and the overhead of messages. A text is one message.
pub(crate) fn message_tokens(messages: &Value) -> u64 {
    let count =
        messages.as_array().map_or(1, |messages| messages.iter().fold(0, |count, _| count + 1));
    words(messages) + TOKENS_PER_MESSAGE * count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_are_words_and_four_a_message() {
        for (messages, tokens) in [
            (json!([]), 0),
            (json!("one two"), 6),
            (json!([{ "role": "user", "content": " one  two\nthree " }]), 7),
            (
                json!([
                    { "role": "system", "content": "one" },
                    { "role": "user", "content": [
                        { "type": "text", "text": "two three" },
                        { "type": "image_url" },
                    ] },
                ]),
                11,
            ),
        ] {
            assert_eq!(message_tokens(&messages), tokens, "{messages}");
        }
    }

    #[test]
    fn token_ids_are_tokens() {
        assert_eq!(words(&json!([[1, 2, 3], [4]])), 4);
    }
}

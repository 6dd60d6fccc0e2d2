//! What the name of a model may be.

/// The most bytes of a model's name.
pub(crate) const MODEL_BYTES_MAX: usize = 128;

/// The key of a limit has no white space, and one with a `*` names a template.
pub(crate) fn is_model_name(model: &str) -> bool {
    let fits = (1..=MODEL_BYTES_MAX).contains(&model.len());
    fits && !model.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*')
}

/// OpenAI's name of a model that may be fine-tuned, or whose vendor is named.
pub(crate) fn openai_name(model: &str) -> &str {
    let model = model.strip_prefix("ft:").unwrap_or(model);
    model.strip_prefix("openai/").unwrap_or(model)
}

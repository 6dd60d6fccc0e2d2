//! Where a path leads (`GW-01`).

use std::borrow::Cow;

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::api::{Api, Operation};

/// Where a path below a provider's name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// Counted; `rest` is the path below the base URL.
    Metered {
        operation: Operation,
        rest: &'a str,
    },
    /// Passed on without being counted.
    Passed {
        rest: &'a str,
    },
    NotFound,
    /// A segment is `.` or `..`, encoded or not: the provider would take it for another path.
    DotSegment,
}

/// The first segment of a path, and what follows it.
pub(crate) fn first_segment(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    Some(path.split_once('/').unwrap_or((path, "")))
}

impl<'a> Route<'a> {
    /// What there is below the name of a provider, for people.
    pub(crate) const fn served(api: Api) -> &'static str {
        match api {
            Api::OpenAi => {
                "POST v1/chat/completions, v1/completions, v1/responses and v1/embeddings, GET v1/models"
            }
            Api::Anthropic => "POST v1/messages and v1/messages/count_tokens, GET v1/models",
        }
    }

    /// Finds the route of a path without the provider's name. `pass_through_paths` are paths below the base URL; one that ends with `/*`
    /// stands for all below it.
    pub(crate) fn find(
        api: Api,
        method: &Method,
        path: &'a str,
        pass_through_paths: &[String],
    ) -> Self {
        if path.split('/').any(is_dot_segment) {
            return Self::DotSegment;
        }
        let rest = match api {
            Api::OpenAi => match path.strip_prefix("v1/") {
                Some(rest) => rest,
                None => return Self::NotFound,
            },
            Api::Anthropic => path,
        };
        let operation = match (api, rest) {
            (Api::OpenAi, "chat/completions") => Some(Operation::ChatCompletions),
            (Api::OpenAi, "completions") => Some(Operation::Completions),
            (Api::OpenAi, "responses") => Some(Operation::Responses),
            (Api::OpenAi, "embeddings") => Some(Operation::Embeddings),
            (Api::Anthropic, "v1/messages") => Some(Operation::Messages),
            (Api::OpenAi | Api::Anthropic, _) => None,
        };
        if let Some(operation) = operation.filter(|_| method == Method::POST) {
            return Self::Metered { operation, rest };
        }
        let models = match api {
            Api::OpenAi => "models",
            Api::Anthropic => "v1/models",
        };
        let below_models = rest.strip_prefix(models);
        let is_models = method == Method::GET
            && below_models.is_some_and(|below| below.is_empty() || below.starts_with('/'));
        let counts_tokens = method == Method::POST && rest == "v1/messages/count_tokens";
        let is_passed = |pattern: &String| match pattern.strip_suffix("/*") {
            Some(folder) => rest.strip_prefix(folder).is_some_and(|below| below.starts_with('/')),
            None => rest == pattern,
        };
        if operation.is_none()
            && (is_models || counts_tokens || pass_through_paths.iter().any(is_passed))
        {
            return Self::Passed { rest };
        }
        Self::NotFound
    }
}

/// True for `.` and `..` as a URL parser sees them, however often they are encoded.
fn is_dot_segment(segment: &str) -> bool {
    let mut segment = Cow::Borrowed(segment);
    loop {
        if segment.split(['/', '\\']).any(|part| matches!(part, "." | "..")) {
            return true;
        }
        let Cow::Owned(decoded) = percent_decode_str(&segment).decode_utf8_lossy() else {
            return false;
        };
        segment = decoded.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(api: Api, method: &Method, path: &str) -> String {
        let extra = ["files/*".to_owned(), "moderations".to_owned()];
        match Route::find(api, method, path, &extra) {
            Route::Metered { operation, rest } => format!("{operation:?} {rest}"),
            Route::Passed { rest } => format!("passed {rest}"),
            Route::NotFound => "not found".to_owned(),
            Route::DotSegment => "dots".to_owned(),
        }
    }

    /// GW-01
    #[test]
    fn gw_01_operations_are_metered_and_the_lists_of_models_pass() {
        for (api, method, path, expected) in [
            (Api::OpenAi, Method::POST, "v1/chat/completions", "ChatCompletions chat/completions"),
            (Api::OpenAi, Method::POST, "v1/completions", "Completions completions"),
            (Api::OpenAi, Method::POST, "v1/responses", "Responses responses"),
            (Api::OpenAi, Method::POST, "v1/embeddings", "Embeddings embeddings"),
            (Api::Anthropic, Method::POST, "v1/messages", "Messages v1/messages"),
            (Api::OpenAi, Method::GET, "v1/models", "passed models"),
            (Api::OpenAi, Method::GET, "v1/models/org/m", "passed models/org/m"),
            (Api::Anthropic, Method::GET, "v1/models/m", "passed v1/models/m"),
            (
                Api::Anthropic,
                Method::POST,
                "v1/messages/count_tokens",
                "passed v1/messages/count_tokens",
            ),
            (Api::OpenAi, Method::POST, "v1/moderations", "passed moderations"),
            (Api::OpenAi, Method::GET, "v1/files/f-1/content", "passed files/f-1/content"),
        ] {
            assert_eq!(route(api, &method, path), expected, "{path}");
        }
    }

    /// GW-01
    #[test]
    fn gw_01_everything_else_is_not_found() {
        for (api, method, path) in [
            (Api::OpenAi, Method::GET, "v1/chat/completions"),
            (Api::OpenAi, Method::POST, "chat/completions"),
            (Api::OpenAi, Method::POST, "v1/chat/completions/"),
            (Api::OpenAi, Method::POST, "v1//chat/completions"),
            (Api::OpenAi, Method::POST, "v1/chat%2Fcompletions"),
            (Api::OpenAi, Method::POST, "v1/Chat/Completions"),
            (Api::OpenAi, Method::POST, "v1/models"),
            (Api::OpenAi, Method::GET, "v1/modelsx"),
            (Api::OpenAi, Method::GET, "v1/files"),
            (Api::OpenAi, Method::POST, "v1/images/generations"),
            (Api::OpenAi, Method::POST, "v1/messages"),
            (Api::Anthropic, Method::POST, "v1/chat/completions"),
            (Api::Anthropic, Method::POST, "messages"),
            (Api::Anthropic, Method::GET, "v1/messages/count_tokens"),
            (Api::OpenAi, Method::GET, ""),
        ] {
            assert_eq!(route(api, &method, path), "not found", "{path}");
        }
    }

    /// GW-10
    #[test]
    fn gw_10_no_segment_leads_out_of_the_base_url() {
        for path in [
            "v1/../admin",
            "v1/files/../../x",
            "v1/files/%2e%2e/x",
            "v1/files/%2E./x",
            "v1/files/%252e%252e/x",
            "v1/files/..%2fx",
            "v1/files/..%5cx",
            "v1/./models",
            "v1/models/.",
        ] {
            assert_eq!(route(Api::OpenAi, &Method::GET, path), "dots", "{path}");
        }
        assert_eq!(
            route(Api::OpenAi, &Method::GET, "v1/models/gpt-3.5..x"),
            "passed models/gpt-3.5..x"
        );
    }
}

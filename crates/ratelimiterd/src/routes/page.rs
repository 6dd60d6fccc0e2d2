//! `GET /`: a plain page that lists the limits.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State};
use ratelimiter::{LimitState, LimitStatus, Page};

use super::AppState;
use crate::config::Permission;
use crate::hosted::HostedBackend;
use crate::response::{self, Response};

const ROWS_MAX: usize = 1_000;

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\"><title>ratelimiter</title>
<style>body{font:14px system-ui;margin:2em}table{border-collapse:collapse}td,th{padding:.3em .8em;text-align:left;\
border-bottom:1px solid #ddd}td.n{text-align:right;font-variant-numeric:tabular-nums}</style>
<h1>Limits</h1>
<table><tr><th>key<th>kind<th>mode<th>used<th>capacity<th>available<th>debt<th>status<th>resets<th>unit<th>description
";

pub(super) async fn index<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    request: Request,
) -> Response {
    let caller = match app.access.check(request.headers(), Permission::Read) {
        Ok(caller) => caller,
        Err(refusal) => return response::error(&refusal.into()),
    };
    let page = Page { count_max: Some(ROWS_MAX), ..Page::default() };
    match app.with_timeout(app.backend.visible_states(&page, |key| caller.may_use(key))).await {
        Ok(states) => response::text("text/html; charset=utf-8", render(&states)),
        Err(error) => response::error(&error.into()),
    }
}

fn render(states: &[LimitState]) -> String {
    let mut html = HEAD.to_owned();
    for LimitState { limit, status, usage, resets_at } in states {
        let status = match status {
            LimitStatus::Active => "active".to_owned(),
            LimitStatus::Paused => "paused".to_owned(),
            LimitStatus::Decreasing { to } => format!("decreasing to {to}"),
        };
        let (kind, mode) = (limit.kind, limit.mode.name());
        let resets = resets_at.map_or_else(String::new, |at| at.to_string());
        let (unit, description) = (escape(limit.unit.as_str()), escape(limit.description.as_str()));
        let row = writeln!(
            html,
            "<tr><td>{}<td>{kind}<td>{mode}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td>{status}<td>{resets}<td>{unit}<td>{description}",
            escape(limit.key.as_str()),
            usage.used,
            limit.capacity,
            usage.available,
            usage.debt,
        );
        row.expect("a string takes every text");
    }
    html.push_str("</table>\n");
    if states.is_empty() {
        html.push_str("<p>No limits are defined yet: <code>PUT /v1/admin/limits</code>.\n");
    }
    html
}

/// Keys, units and descriptions are untrusted text.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

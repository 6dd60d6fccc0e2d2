//! Valid inputs of each target.

pub(crate) const RESERVE: [&str; 3] = [
    r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","job_id":"nightly-7","requirements":[{"key":"global:llm:openai:gpt-4o:rpm","amount":1},{"key":"global:llm:openai:gpt-4o:tpm","amount":1500}]}"#,
    r#"{"lease_id":"7zzzzzzzzzzzzzzzzzzzzzzzzz","requirements":[{"key":"tenant:acme:llm:daily_tokens","amount":18446744073709551615}]}"#,
    r#" { "requirements" : [ { "amount" : 2 , "key" : "global:llm:org/model@v1.2:concurrency" } ] , "lease_id" : "00000000000000000000000000" } "#,
];

pub(crate) const RENEW: [&str; 3] = [
    r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","number":1,"amounts":[{"key":"global:llm:openai:gpt-4o:tpm","amount":600},{"key":"global:llm:openai:gpt-4o:concurrency","amount":0}]}"#,
    r#"{"lease_id":"01j9zc3v9w8q4n2m6t5r7y1k0d","number":18446744073709551615,"amounts":[{"key":"é","amount":18446744073709551615}]}"#,
    r#" { "number" : 2 , "lease_id" : "00000000000000000000000000" } "#,
];

pub(crate) const COMPLETE: [&str; 3] = [
    r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","job_id":"nightly-7","actuals":[{"key":"global:llm:openai:gpt-4o:tpm","actual_amount":740}]}"#,
    r#"{"lease_id":"01j9zc3v9w8q4n2m6t5r7y1k0d","actuals":[{"key":"a","actual_amount":0},{"key":"é","actual_amount":18446744073709551615}]}"#,
    r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","actuals":[]}"#,
];

pub(crate) const RESERVE_BATCH: [&str; 2] = [
    r#"{"requests":[{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"a","amount":1}]},{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0E","requirements":[{"key":"b","amount":2}]}]}"#,
    r#"{"requests":[{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[]},7,{"unknown":{}}]}"#,
];

pub(crate) const COMPLETE_BATCH: [&str; 1] = [
    r#"{"requests":[{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","actuals":[{"key":"a","actual_amount":1}]},{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0E","actuals":[]}]}"#,
];

pub(crate) const DEFINITION: [&str; 6] = [
    r#"{"key":"global:llm:openai:gpt-4o:rpm","kind":"rolling","capacity":500,"window_seconds":60,"timeout_seconds":0,"unit":"requests","description":"per minute","overage":"debt"}"#,
    r#"{"key":"c","kind":"concurrency","capacity":9223372036854775807,"timeout_seconds":86400,"overage":"deny"}"#,
    r#"{"key":"off","kind":"rolling","capacity":0,"window_seconds":2678400}"#,
    r#"{"key":"m","kind":"calendar","capacity":9,"period":"month","time_zone":"Europe/Sofia","resets_at":"06:00","day":28,"mode":"shadow"}"#,
    r#"{"key":"w","kind":"calendar","capacity":9,"period":"week","time_zone":"America/New_York","weekday":"sunday"}"#,
    r#"{"key":"h","kind":"calendar","capacity":9,"period":"hour","resets_at":"13:05","mode":"enforce"}"#,
];

pub(crate) const DEFINITIONS: [&str; 2] = [
    r#"{"limits":[{"key":"global:llm:openai:gpt-4o:rpm","kind":"rolling","capacity":500,"window_seconds":60},{"key":"c","kind":"concurrency","capacity":1,"timeout_seconds":600,"unit":"calls","overage":"deny"}]}"#,
    r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":60}"#,
];

pub(crate) const LIMITS_FILE: [&str; 5] = [
    r#"[
  {"key":"global:llm:openai:gpt-4o:rpm","kind":"rolling","capacity":500,"window_seconds":60,"timeout_seconds":0,"unit":"requests","description":"","overage":"debt","status":"active","pending_decrease_to":null},
  {"key":"global:llm:openai:gpt-4o:concurrency","kind":"concurrency","capacity":10,"window_seconds":0,"timeout_seconds":600,"unit":"","description":"calls","overage":"deny","status":"decreasing","pending_decrease_to":5}
]
"#,
    r#"[{"key":"k","kind":"rolling","capacity":1,"window_seconds":60}]"#,
    r#"{"version":2,"edited_by":{"name":"é"},"limits":[
  {"key":"b","kind":"rolling","capacity":1,"window_seconds":60,"owner":"search","tags":[1, 2.50]},
  {"key":"a","kind":"sliding","steps":7,"capacity":9}]}"#,
    r#"[{"key":"b","kind":"rolling","capacity":1,"window_seconds":60,"mode":"shadow"},
  {"key":"a","kind":"calendar","period":"day","time_zone":"Europe/Sofia","capacity":9}]"#,
    "[]",
];

pub(crate) const CONFIG: [&str; 6] = [
    "server: { listen_addr: \"127.0.0.1:8080\", backend: \"tigerbeetle\", tls: { } }\nregistry: { path: \"./data/limits.json\", limits_max: 10 }\ntigerbeetle: { cluster_id: \"340282366920938463463374607431768211455\", addresses: [\"127.0.0.1:3000\"], sessions: 8, max_batch_events: 8000, flush_interval_micros: 200, request_timeout_ms: 2000 }\n",
    "# comment\nserver:\n  listen_addr: ':8080'\n  connections_max: 7\nauth:\n  client_tokens: [a, \"b\"]\n  admin_tokens:\n    - c\nhints: { rolling_factor: 1.5, decreasing_ms: 10_000 }\n",
    "auth:\n  tokens:\n    - { name: ci, token: abc, may: [call, read] }\n    - name: ops\n      token: def\n      may: [admin]\n      keys: [\"global:**\", tenant:acme:daily_tokens]\n",
    "gateway:\n  wait_ms: 5000\n  tenants: [ { name: acme, key: abc, models: [m] } ]\n  providers:\n    - { name: a, api: openai, base_url: 'https://h/v1', api_key: k, rate_counts: reserved, pass_through_paths: [files/*], models: { m: { aliases: [m-2], price: { input: 2.50, output: 1e1, tiers: [ { above_input_tokens: 9, input: 1, output: 2 } ] } }, o: } }\n",
    "log: &log { format: json, level: warn }\nmetrics:\n  keys_max: 0\nmemory: {remember_seconds: 600}\n",
    "",
];

pub(crate) const KEYS: [&str; 4] = [
    "global:llm:openai:gpt-4o:rpm",
    "tenant:acme:llm:daily_tokens",
    "global:llm:org/model@v1.2:tpm",
    "é:🦀",
];

pub(crate) const PATTERNS: [&str; 4] =
    ["tenant:acme:**", "global:llm:openai:**:rpm", "tenant:*:llm:daily_tokens", "é:🦀"];

pub(crate) const LEASES: [&str; 4] = [
    "01J9ZC3V9W8Q4N2M6T5R7Y1K0D",
    "01j9zc3v9w8q4n2m6t5r7y1k0d",
    "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
    "00000000000000000000000000",
];

pub(crate) const CRON: [&str; 6] = [
    "*/5 * * * *",
    "0 9-17 * * 1-5",
    "15,45 0 1 1 *",
    "0 0 29 2 *",
    "30 2 * * 7",
    "0 0 31 1,3,5 0",
];

pub(crate) const ADDRESSES: [&str; 5] =
    [":8080", "127.0.0.1:0", "[::1]:8080", "localhost:65535", "rate.example.org:443"];

pub(crate) const ERROR_CODES: [&str; 6] = [
    "invalid_request:requirements[0].amount",
    "unknown_limit_key:global:llm:openai:gpt-4o:rpm",
    "lease_conflict",
    "too_many_limits",
    "limits_read_only",
    "kind_conflict:k",
];

//! Order of the sources; errors with path and source.

use expect_test::{Expect, expect};

use super::*;
use crate::RegistryPlace;
use crate::config::{
    BackendChoice, CALLER_KEYS_MAX, CALLERS_MAX, CallerConfig, CallerName, RedisConfig, Token,
};

fn check_errors(yaml: &str, expected: &Expect) {
    let mut layers = Layers::new();
    layers.add_yaml("config.yaml", yaml);
    expected.assert_eq(&layers.config().unwrap_err().to_string());
}

fn environment(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let mut layers = Layers::new();
    let owned = |&(name, text): &(&str, &str)| (name.to_owned(), text.to_owned());
    layers.add_environment(variables.iter().map(owned));
    layers.config()
}

/// CFG-03
#[test]
fn without_a_source_everything_has_its_default() {
    let config = Layers::new().config().unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.server.listen_addr.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.backend, BackendChoice::Memory);
    assert_eq!(config.registry.path, Path::new("./data/limits.json"));
    for empty in ["", "# nothing\n", "server:\n", "{}"] {
        let mut layers = Layers::new();
        layers.add_yaml("config.yaml", empty);
        assert_eq!(layers.config().unwrap(), Config::default(), "{empty:?}");
    }
}

#[test]
fn a_config_in_flow_style_is_read() {
    let mut layers = Layers::new();
    layers.add_yaml(
        "config.yaml",
        r#"
server:      { listen_addr: ":8080", backend: "tigerbeetle" }        # or "memory"
registry:    { path: "./data/limits.json" }
auth:        { client_tokens: [a], admin_tokens: ["b"] }
tigerbeetle: { cluster_id: "0", addresses: ["127.0.0.1:3000"], sessions: 8, max_batch_events: 8000, flush_interval_micros: 200, request_timeout_ms: 2000 }
"#,
    );
    let config = layers.config().unwrap();
    assert_eq!(config.server.backend, BackendChoice::TigerBeetle);
    assert_eq!(config.server.listen_addr.to_string(), "0.0.0.0:8080");
    assert_eq!(config.tigerbeetle.max_batch_events, 8_000);
}

/// CFG-02
#[test]
fn every_error_of_a_file_is_reported_with_its_path() {
    check_errors(
        r#"
server: { listen_adr: ":8080", backend: postgres, request_timeout_ms: soon, connections_max: 0 }
registry: ./data
tigerbeetle: { sessions: 0, max_batch_events: 8190, cluster_id: 0, addresses: [] }
hints: { rolling_factor: 0.5 }
sever: {}
auth: { client_tokens: ["two words"], allow_anonymous: maybe }
"#,
        &expect![[r#"
            config.yaml: registry: must be a section with keys, not a value
            config.yaml: auth.allow_anonymous: invalid type: string "maybe", expected a boolean
            config.yaml: auth.client_tokens: a secret has 1 to 1024 visible ASCII characters
            config.yaml: hints.rolling_factor: must be 1 to 100, not 0.5
            config.yaml: server.backend: unknown variant `postgres`, expected one of `memory`, `tigerbeetle`, `redis`
            config.yaml: server.connections_max: must be 1 to 1000000, not 0
            config.yaml: server.listen_adr: unknown field `listen_adr`, expected one of `listen_addr`, `backend`, `request_timeout_ms`, `header_read_timeout_ms`, `write_timeout_ms`, `shutdown_timeout_ms`, `connections_max`, `waiters_max`, `tls`
            config.yaml: server.request_timeout_ms: invalid type: string "soon", expected u64
            config.yaml: sever: unknown field `sever`, expected one of `server`, `registry`, `auth`, `log`, `metrics`, `hints`, `memory`, `tigerbeetle`, `redis`, `gateway`
            config.yaml: tigerbeetle.addresses: must be 1 to 6 addresses, not 0
            config.yaml: tigerbeetle.cluster_id: invalid type: integer `0`, expected a string
            config.yaml: tigerbeetle.max_batch_events: must be 1 to 8189, not 8190
            config.yaml: tigerbeetle.sessions: must be 1 to 16, not 0"#]],
    );
}

#[test]
fn invalid_yaml_is_refused_with_its_line() {
    check_errors(
        "server: {\n  listen_addr: [\n",
        &expect!["config.yaml: unclosed bracket '[' at line 2, column 16"],
    );
    check_errors(
        "server: {}\nserver: {}\n",
        &expect![
            "config.yaml: duplicate mapping key: server, set DuplicateKeyPolicy in Options if acceptable at line 2, column 1"
        ],
    );
    check_errors("- a\n- b\n", &expect!["config.yaml: must be sections such as `server:`"]);
}

/// CFG-01
#[test]
fn the_environment_overrides_the_file_and_a_flag_overrides_both() {
    let mut layers = Layers::new();
    layers.add_yaml("config.yaml", "server: { listen_addr: '127.0.0.1:1', connections_max: 7 }");
    layers.add_environment([("RATELIMITER_SERVER__LISTEN_ADDR".into(), "127.0.0.1:2".into())]);
    layers.add_text("--listen", "server.listen_addr", "127.0.0.1:3");
    let config = layers.config().unwrap();
    assert_eq!(config.server.listen_addr.to_string(), "127.0.0.1:3");
    assert_eq!(config.server.connections_max, 7);
}

#[test]
fn a_variable_is_parsed_as_the_type_of_its_value() {
    let config = environment(&[
        ("RATELIMITER_TIGERBEETLE__SESSIONS", "3"),
        ("RATELIMITER_TIGERBEETLE__CLUSTER_ID", "7"),
        ("RATELIMITER_TIGERBEETLE__ADDRESSES", "10.0.0.1:3000, 10.0.0.2:3000"),
        ("RATELIMITER_AUTH__CLIENT_TOKENS", "12345"),
        ("RATELIMITER_AUTH__ADMIN_TOKENS", "[a, b]"),
        ("RATELIMITER_AUTH__ALLOW_ANONYMOUS", "true"),
        ("RATELIMITER_PORT", "tcp://10.0.0.1:8080"),
        ("RATELIMITER_SERVICE_HOST", "10.0.0.1"),
        ("HOME", "/"),
    ])
    .unwrap();
    assert_eq!(config.tigerbeetle.sessions, 3);
    assert_eq!(config.tigerbeetle.cluster_id, 7);
    assert_eq!(config.tigerbeetle.addresses, ["10.0.0.1:3000", "10.0.0.2:3000"]);
    assert_eq!(config.auth.client_tokens, [Token::new("12345").unwrap()]);
    assert_eq!(config.auth.admin_tokens, ["a", "b"].map(|text| Token::new(text).unwrap()));
    assert!(config.auth.allow_anonymous);
}

/// CFG-02
#[test]
fn an_error_of_the_environment_names_the_variable() {
    let error = environment(&[
        ("RATELIMITER_SERVER__LISTEN", "127.0.0.1:1"),
        ("RATELIMITER_TIGERBEETLE__SESSIONS", "0"),
        ("RATELIMITER_SERVER__CONNECTIONS_MAX", "many"),
    ]);
    expect![[r#"
        RATELIMITER_SERVER__LISTEN: server.listen: unknown field `listen`, expected one of `listen_addr`, `backend`, `request_timeout_ms`, `header_read_timeout_ms`, `write_timeout_ms`, `shutdown_timeout_ms`, `connections_max`, `waiters_max`, `tls`
        RATELIMITER_TIGERBEETLE__SESSIONS: tigerbeetle.sessions: must be 1 to 16, not 0
        RATELIMITER_SERVER__CONNECTIONS_MAX: server.connections_max: invalid type: string "many", expected u64"#]].assert_eq(&error.unwrap_err().to_string());
}

/// RDS-04
#[test]
fn rds_04_settings_of_redis_come_from_every_source() {
    let config = environment(&[
        ("RATELIMITER_SERVER__BACKEND", "redis"),
        ("RATELIMITER_REDIS__URL", "redis://app:s3cret@cache:7000/3"),
        ("RATELIMITER_REDIS__PREFIX", "acme"),
        ("RATELIMITER_REDIS__CONNECTIONS", "4"),
        ("RATELIMITER_REDIS__REQUEST_TIMEOUT_MS", "250"),
    ])
    .unwrap();
    let RedisConfig { prefix, connections, request_timeout_ms, .. } = &config.redis;
    assert_eq!((prefix.as_str(), *connections, *request_timeout_ms), ("acme", 4, 250));
    assert_eq!(config.registry_place().to_string(), "redis://cache:7000/3");
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
}

/// RDS-04, CFG-02
#[test]
fn rds_04_a_wrong_setting_of_redis_is_refused_by_name() {
    check_errors(
        "redis: { url: 'http://app:s3cret@cache', prefix: 'a b', connections: 65, request_timeout_ms: 0, ca: x }",
        &expect![[r#"
            config.yaml: redis.ca: unknown field `ca`, expected one of `url`, `tls`, `prefix`, `connections`, `request_timeout_ms`
            config.yaml: redis.connections: must be 1 to 64, not 65
            config.yaml: redis.prefix: has 1 to 64 letters, digits and signs, without spaces and braces, not "a b"
            config.yaml: redis.request_timeout_ms: must be 1 to 60000, not 0
            config.yaml: redis.url: is redis://[user:password@]host[:port][/database], rediss://…, redis+sentinel://… or redis+cluster://…: it begins with redis://, rediss://, redis+sentinel:// or redis+cluster://"#]],
    );
    for url in [
        "cache:6379",
        "redis://app:s3cret@cache/many",
        "redis://app:s3cret@cache:port/0",
        "redis://app:s3/cret@cache",
        "redis+sentinel://app:12/s3cret@cache",
        "redis+cluster://app:s3cret@cache/1",
        "redis://",
    ] {
        let error = environment(&[("RATELIMITER_REDIS__URL", url)]).unwrap_err().to_string();
        let before = "RATELIMITER_REDIS__URL: redis.url: is redis://[user:password@]host[:port]";
        assert!(error.starts_with(before) && !error.contains("s3"), "{error}");
    }
    check_errors(
        "redis: { url: 6379 }",
        &expect![[r#"config.yaml: redis.url: must be text, such as "redis://host:6379""#]],
    );
}

/// RDS-01, REG-01
#[test]
fn rds_01_the_limits_of_the_redis_backend_are_in_redis_only() {
    for registry in ["path: limits.json", "url: 'postgresql://db/limits'", "url: 'redis://cache/0'"]
    {
        let mut layers = Layers::new();
        layers.add_yaml("config.yaml", &format!("registry: {{ {registry} }}"));
        layers.add_text("--backend", "server.backend", "redis");
        let name = registry.split(':').next().unwrap();
        let expected = format!(
            "config.yaml: registry.{name}: the Redis backend (server.backend: redis) stores the limits in Redis, so remove this"
        );
        assert_eq!(layers.config().unwrap_err().to_string(), expected);
    }
}

/// REG-01
#[test]
fn reg_01_a_registry_is_a_path_or_a_url() {
    let url = "registry: { url: 'postgresql://app:s3cret@db/limits' }";
    let mut layers = Layers::new();
    layers.add_yaml("config.yaml", url);
    let config = layers.config().unwrap();
    assert_eq!(config.registry_place().to_string(), "postgresql://app@db:5432/limits");
    assert!(!format!("{config:?}").contains("s3cret"));
    check_errors(
        "registry: { path: limits.json, url: 'postgresql://app:s3cret@db/limits' }",
        &expect![
            "config.yaml: registry.url: registry.path is set too (config.yaml); the limits are stored in one place, so remove one of them"
        ],
    );
    let mut layers = Layers::new();
    layers.add_yaml("config.yaml", url);
    layers.add_text("--limits", "registry.path", "limits.json");
    expect!["config.yaml: registry.url: registry.path is set too (--limits); the limits are stored in one place, so remove one of them"]
        .assert_eq(&layers.config().unwrap_err().to_string());
}

/// REG-01
#[test]
fn reg_01_a_registry_in_redis_has_the_prefix_and_the_timeout_of_the_redis_section() {
    let mut layers = Layers::new();
    let redis = "redis: { prefix: acme, request_timeout_ms: 250 }";
    let url = "registry: { url: 'redis://app:s3cret@cache:7000/3' }";
    layers.add_yaml("config.yaml", &format!("{redis}\n{url}"));
    let config = layers.config().unwrap();
    let place = config.registry_place();
    assert_eq!(place.to_string(), "redis://cache:7000/3");
    assert!(matches!(place, RegistryPlace::RedisDocument(_)), "{place:?}");
    let shown = format!("{config:?}{place:?}");
    assert!(shown.contains("{acme}") && shown.contains("250ms"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
    check_errors(
        &format!("{url}\nredis: {{ url: 'redis://:s3cret@other' }}"),
        &expect![
            "config.yaml: redis.url: is only for the Redis backend (server.backend: redis); the limits are in the Redis of registry.url, so remove this"
        ],
    );
    check_errors(
        "registry: { path: limits.json, url: 'redis://:s3cret@cache' }",
        &expect![
            "config.yaml: registry.url: registry.path is set too (config.yaml); the limits are stored in one place, so remove one of them"
        ],
    );
}

/// REG-01
#[test]
fn reg_01_a_url_that_is_not_one_of_a_database_is_refused_without_showing_it() {
    check_errors(
        "registry: { url: 'redis://:s3cret@cache/many' }",
        &expect![
            "config.yaml: registry.url: cannot be read: Invalid database number - InvalidClientConfig"
        ],
    );
    check_errors(
        "registry: { url: 'mysql://app:s3cret@db/limits' }",
        &expect![
            "config.yaml: registry.url: must begin with postgresql:// or redis://, as in postgresql://user@host/database or redis://host:6379"
        ],
    );
    for text in [
        "",
        "7",
        "[",
        "mysql://app:s3cret@db, s3cret",
        "postgresql://app:s3cret@db:x/",
        "redis://:s3cret@c:x",
        "redis+sentinel://app:12/s3cret@cache",
    ] {
        let error = environment(&[("RATELIMITER_REGISTRY__URL", text)]).unwrap_err().to_string();
        assert!(error.starts_with("RATELIMITER_REGISTRY__URL: registry.url: "), "{text}: {error}");
        assert!(!error.contains("s3cret"), "{text}: {error}");
    }
    check_errors(
        "registry: { url: }",
        &expect![[
            r#"config.yaml: registry.url: must be text, such as "postgresql://user@host/database""#
        ]],
    );
}

/// HTTP-16
#[test]
fn without_tokens_only_loopback_is_served_unless_allowed() {
    check_errors(
        "server: { listen_addr: ':8080' }",
        &expect![
            "config.yaml: server.listen_addr: 0.0.0.0:8080 can be reached by others, and no tokens are configured; set auth.client_tokens and auth.admin_tokens, or auth.allow_anonymous: true if this is intended"
        ],
    );
    for yaml in [
        "server: { listen_addr: 'localhost:8080' }",
        "server: { listen_addr: ':8080' }\nauth: { allow_anonymous: true }",
        "server: { listen_addr: ':8080' }\nauth: { client_tokens: [a] }",
    ] {
        let mut layers = Layers::new();
        layers.add_yaml("config.yaml", yaml);
        assert!(layers.config().is_ok(), "{yaml}");
    }
}

#[test]
fn a_token_file_that_cannot_be_read_is_an_error() {
    check_errors(
        "auth: { admin_tokens: ['file:/nowhere/token'] }",
        &expect![
            "config.yaml: auth.admin_tokens: /nowhere/token: No such file or directory (os error 2)"
        ],
    );
}

fn callers(yaml: &str) -> Vec<CallerConfig> {
    let mut layers = Layers::new();
    layers.add_yaml("config.yaml", yaml);
    layers.config().unwrap().auth.tokens
}

/// OPS-04
#[test]
fn ops_04_a_caller_has_a_name_a_token_permissions_and_keys() {
    let read = callers(
        r#"
auth:
  tokens:
    - { name: ci, token: abc, may: [call] }
    - name: acme-ops
      token: "xyz"
      may: [read, admin]
      keys: ["global:**", "tenant:acme:llm:daily_tokens"]
"#,
    );
    expect![[r#"
        [
            CallerConfig {
                name: CallerName(
                    "ci",
                ),
                token: Token(…),
                may: [
                    Call,
                ],
                keys: None,
            },
            CallerConfig {
                name: CallerName(
                    "acme-ops",
                ),
                token: Token(…),
                may: [
                    Read,
                    Admin,
                ],
                keys: Some(
                    [
                        "global:**",
                        "tenant:acme:llm:daily_tokens",
                    ],
                ),
            },
        ]
    "#]]
    .assert_debug_eq(&read);
}

/// OPS-04, CFG-02
#[test]
fn ops_04_every_error_of_the_callers_is_reported_with_its_path() {
    check_errors(
        r#"
auth:
  tokens:
    - { name: ci, token: abc, may: [call] }
    - { name: ci, token: def, may: [call] }
    - { name: "two words", token: "two words", may: [], keys: [] }
    - { name: 7, token: 7, may: [cal, read, 7], keys: ["*", "a:b*", "a:**:**", 7, ""] }
    - { may: call, keys: "a:**", key: a }
    - { name: anonymous, token: "file:", may: [admin], keys: }
    - s3cret
    - { name: good, token: ghi, may: [read] }
"#,
        &expect![[r#"
            config.yaml: auth.tokens[1].name: is the name of auth.tokens[0] too; each caller has its own
            config.yaml: auth.tokens[2].name: a name has 1 to 64 characters, without white space or control characters
            config.yaml: auth.tokens[2].token: a secret has 1 to 1024 visible ASCII characters
            config.yaml: auth.tokens[2].may: must be a list of one or more of call, read and admin
            config.yaml: auth.tokens[2].keys: must be a list of 1 to 100 keys or patterns, such as ["tenant:acme:**"]; leave it out for all keys
            config.yaml: auth.tokens[3].name: must be text; put it in quotes
            config.yaml: auth.tokens[3].token: must be text; put it in quotes
            config.yaml: auth.tokens[3].may[0]: must be call, read or admin
            config.yaml: auth.tokens[3].may[2]: must be call, read or admin
            config.yaml: auth.tokens[3].keys[0]: a pattern needs at least one segment that is not `*` or `**`
            config.yaml: auth.tokens[3].keys[1]: `*` and `**` must be whole segments between `:`
            config.yaml: auth.tokens[3].keys[2]: a pattern has at most one `**`
            config.yaml: auth.tokens[3].keys[3]: must be text; put it in quotes
            config.yaml: auth.tokens[3].keys[4]: a key must not be empty: it has 1 to 256 bytes
            config.yaml: auth.tokens[4]: has an unknown field; a caller has name, token, may, keys
            config.yaml: auth.tokens[4].name: is missing
            config.yaml: auth.tokens[4].token: is missing
            config.yaml: auth.tokens[4].may: must be a list of one or more of call, read and admin
            config.yaml: auth.tokens[4].keys: must be a list of 1 to 100 keys or patterns, such as ["tenant:acme:**"]; leave it out for all keys
            config.yaml: auth.tokens[5].name: `client_tokens`, `admin_tokens` and `anonymous` are reserved for callers without a name
            config.yaml: auth.tokens[5].token: a secret has 1 to 1024 visible ASCII characters
            config.yaml: auth.tokens[5].keys: must be a list of 1 to 100 keys or patterns, such as ["tenant:acme:**"]; leave it out for all keys
            config.yaml: auth.tokens[6]: must be an object with name, token, may and, to bound it, keys"#]],
    );
    check_errors(
        "auth: { tokens: s3cret }",
        &expect![[
            r#"config.yaml: auth.tokens: must be a list, such as [{name: ci, token: "file:/run/secrets/ci", may: [call]}]"#
        ]],
    );
    check_errors(
        "auth: { tokens: { name: ci, token: s3cret } }",
        &expect![[r#"
            config.yaml: auth.tokens: must not be a section with keys
            config.yaml: auth.tokens: must not be a section with keys"#]],
    );
}

/// OPS-04
#[test]
fn ops_04_a_token_has_one_caller_and_can_be_read() {
    check_errors(
        r#"
auth:
  client_tokens: [old]
  admin_tokens: [old]
  tokens:
    - { name: a, token: abc, may: [call] }
    - { name: b, token: abc, may: [admin] }
    - { name: c, token: old, may: [call] }
    - { name: d, token: "file:/nowhere/token", may: [call] }
"#,
        &expect![[r#"
            config.yaml: auth.tokens[1].token: is the same token as auth.tokens[0].token; each caller has its own
            config.yaml: auth.tokens[2].token: is the same token as auth.client_tokens; each caller has its own
            config.yaml: auth.tokens[3].token: /nowhere/token: No such file or directory (os error 2)"#]],
    );
}

/// OPS-04
#[test]
fn ops_04_names_callers_and_their_keys_are_bounded() {
    let caller = |name: &str, keys: &str| {
        format!(r#"{{"name":"{name}","token":"token-of-{name}","may":["call"]{keys}}}"#)
    };
    let of = |items: Vec<String>| {
        let mut layers = Layers::new();
        layers.add_yaml("config.yaml", &format!("auth: {{ tokens: [{}] }}", items.join(",")));
        layers.config().map(|config| config.auth.tokens.len())
    };
    let error = |items: Vec<String>| of(items).unwrap_err().to_string();
    let many = |count: usize| (0..count).map(|at| caller(&format!("c{at}"), "")).collect();
    assert_eq!(of(many(CALLERS_MAX)), Ok(CALLERS_MAX));
    expect!["config.yaml: auth.tokens: has 1001 callers; at most 1000 fit"]
        .assert_eq(&error(many(CALLERS_MAX + 1)));
    let patterns = |count| format!(r#","keys":[{}]"#, vec![r#""a:**""#; count].join(","));
    assert_eq!(of(vec![caller("c", &patterns(CALLER_KEYS_MAX))]), Ok(1));
    expect![[r#"config.yaml: auth.tokens[0].keys: must be a list of 1 to 100 keys or patterns, such as ["tenant:acme:**"]; leave it out for all keys"#]].assert_eq(&error(vec![caller("c", &patterns(CALLER_KEYS_MAX + 1))]));
    for (name, is_valid) in
        [("é".repeat(64), true), ("n".repeat(65), false), (String::new(), false)]
    {
        assert_eq!(CallerName::new(&name).is_ok(), is_valid, "{name}");
    }
}

/// OPS-04
#[test]
fn ops_04_the_environment_can_name_callers() {
    let tokens = r#"[{name: ci, token: abc, may: [call], keys: ["tenant:acme:**"]}]"#;
    let config = environment(&[("RATELIMITER_AUTH__TOKENS", tokens)]).unwrap();
    assert_eq!(config.auth.tokens, callers(&format!("auth: {{ tokens: {tokens} }}")));
    for (text, expected) in [
        (
            "[{name: ci, token: s3cret, may: [cal]}]",
            expect!["RATELIMITER_AUTH__TOKENS: auth.tokens[0].may[0]: must be call, read or admin"],
        ),
        (
            "[{name: ci, token: s3cret",
            expect![[
                r#"RATELIMITER_AUTH__TOKENS: auth.tokens: must be a list, such as [{name: ci, token: "file:/run/secrets/ci", may: [call]}]"#
            ]],
        ),
        (
            "s3cret",
            expect![[
                r#"RATELIMITER_AUTH__TOKENS: auth.tokens: must be a list, such as [{name: ci, token: "file:/run/secrets/ci", may: [call]}]"#
            ]],
        ),
        (
            "",
            expect![[
                r#"RATELIMITER_AUTH__TOKENS: auth.tokens: must be a list, such as [{name: ci, token: "file:/run/secrets/ci", may: [call]}]"#
            ]],
        ),
    ] {
        let error = environment(&[("RATELIMITER_AUTH__TOKENS", text)]).unwrap_err();
        expected.assert_eq(&error.to_string());
    }
}

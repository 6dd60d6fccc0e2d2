use crate::config::{ConfigError, Layers};

fn errors(yaml: &str) -> Vec<String> {
    let mut layers = Layers::new();
    layers.add_yaml("config.yaml", yaml);
    match layers.config() {
        Ok(_) => Vec::new(),
        Err(ConfigError { errors }) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn gateway(listen: &str, rest: &str) -> Vec<String> {
    errors(&format!(
        "server: {{listen_addr: \"{listen}\"}}\nauth: {{allow_anonymous: true}}\ngateway:\n{rest}"
    ))
}

const PROVIDER: &str = "name: openai, api: openai, base_url: 'https://api.openai.com/v1'";

/// GW-11
#[test]
fn gw_11_a_config_that_lends_its_key_to_everybody_is_refused() {
    let with_key = format!("  providers: [{{ {PROVIDER}, api_key: sk-1 }}]");
    let refused = gateway("0.0.0.0:8080", &with_key);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(
        refused[0].contains("gateway.providers[0].api_key: could be used by everybody"),
        "{refused:?}"
    );
    assert_eq!(gateway("127.0.0.1:8080", &with_key), [""; 0]);
    assert_eq!(gateway("0.0.0.0:8080", &format!("  allow_anonymous: true\n{with_key}")), [""; 0]);
    let tenants = "  tenants: [{name: acme, key: k}]";
    assert_eq!(gateway("0.0.0.0:8080", &format!("{tenants}\n{with_key}")), [""; 0]);
    let passing = format!("{tenants}\n  providers: [{{ {PROVIDER} }}]");
    let refused = gateway("127.0.0.1:8080", &passing);
    assert!(refused[0].contains("gateway.providers[0].api_key: is missing"), "{refused:?}");
}

#[test]
fn an_error_names_the_field_and_never_a_key() {
    for (rest, expected) in [
        ("  wait_ms: 60001", "gateway.wait_ms: must be 0 to 60000, not 60001"),
        ("  wait_ms: 5", "gateway.providers: must list at least one provider"),
        ("  provider: []", "unknown field `provider`"),
        ("  providers: {}", "gateway.providers: must be a list"),
        ("  providers: [{name: openai}]", "gateway.providers[0]: missing field `api`"),
        (
            "  providers: [{name: v1, api: openai, base_url: 'http://h'}]",
            "gateway.providers[0].name: is a path of the server itself",
        ),
        (
            "  providers: [{name: 'a:b', api: openai, base_url: 'http://h'}]",
            "gateway.providers[0].name: must be 1 to 64 characters",
        ),
        (
            "  providers: [{name: a, api: gemini, base_url: 'http://h'}]",
            "gateway.providers[0].api: unknown variant `gemini`",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'ftp://h'}]",
            "gateway.providers[0].base_url: must begin with https:// or http://",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'http://h', api_key: [s3cret]}]",
            "gateway.providers[0].api_key: a secret is text; put it in quotes",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'http://h', api_key: 'file:/absent/key'}]",
            "gateway.providers[0].api_key: /absent/key: No such file or directory",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'http://h', models: {m: {price: {input: -1, output: 1}}}}]",
            "gateway.providers[0].models.m.price: must be 0 to 1000000 dollars",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'http://h', models: {gpt-3.5: {max_output_tokens: x}}}]",
            "gateway.providers[0].models.gpt-3.5.max_output_tokens: invalid type",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'https://h', ca_file: /absent.pem}]",
            "gateway.providers[0].ca_file: cannot be read: No such file",
        ),
    ] {
        let errors = gateway("127.0.0.1:8080", rest);
        assert!(errors.iter().any(|error| error.contains(expected)), "{rest}: {errors:?}");
        assert!(errors.iter().all(|error| !error.contains("s3cret")), "{errors:?}");
    }
}

#[test]
fn the_settings_of_the_specification_are_valid() {
    let yaml = r#"
gateway:
  wait_ms: 30000
  tenants: [ { name: acme, key: "k-acme", models: ["gpt-4o"] } ]
  allow_anonymous: false
  on_backend_error: deny
  body_bytes_max: 33554432
  providers:
    - name: openai
      api: openai
      base_url: https://api.openai.com/v1
      api_key: sk-1
      pass_through_paths: []
      upstream_timeout_ms: 600000
      rate_counts: actual
      models:
        gpt-4o: { aliases: ["gpt-4o-2024-08-06"], default_output_tokens: 1024, max_output_tokens: 16384,
                  price: { input: 2.50, cached_input: 1.25, output: 10.00 } }
        gpt-4o-mini:
"#;
    assert_eq!(errors(yaml), [""; 0]);
}

/// GW-08, GW-16
#[test]
fn gw_08_an_error_of_a_deployment_or_a_proxy_names_the_field() {
    for (rest, expected) in [
        (
            "  providers: [{name: a, api: openai, base_url: 'http://h', https_proxy: 'http://p'}]",
            "gateway.providers[0].https_proxy: is for a base_url with https://",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'https://h', https_proxy: 'socks5://u:sk-hidden@p'}]",
            "gateway.providers[0].https_proxy: must begin with http://",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'http://h', models: {m: {deployments: [{provider: b, model: m}]}}}]",
            "gateway.providers[0].models.m.deployments[0]: provider is not the name of one of gateway.providers",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'http://h', models: {m: {deployments: []}}}]",
            "gateway.providers[0].models.m.deployments: must name a deployment",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'http://h', models: {m: {deployments: [b]}}}]",
            "expected a deployment such as { provider: east, model: gpt-4o }",
        ),
        (
            "  providers: [{name: a, api: openai, base_url: 'http://h', models: {m: {deployments: [{model: m}]}}}]",
            "gateway.providers[0].models.m.deployments[0]: missing field `provider`",
        ),
    ] {
        let refused = gateway("127.0.0.1:8080", rest);
        assert!(refused.iter().any(|error| error.contains(expected)), "{rest}: {refused:?}");
        assert!(!refused.concat().contains("sk-hidden"), "{refused:?}");
    }
}

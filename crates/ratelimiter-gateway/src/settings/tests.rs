use super::*;

fn provider(name: &str, api_key: Option<&str>) -> Provider {
    Provider {
        name: Name::new(name).unwrap(),
        api: Api::OpenAi,
        base_url: BaseUrl::new("https://api.openai.com/v1").unwrap(),
        api_key: api_key.map(|key| Secret::new(key).unwrap()),
        pass_through_paths: Vec::new(),
        upstream_timeout: Duration::from_mins(10),
        rate_counts: RateCounts::Actual,
        hidden_input_tokens: 32_768,
        models: None,
        ca_file: None,
        https_proxy: None,
    }
}

fn settings(providers: Vec<Provider>, tenants: &[(&str, &str)]) -> Settings {
    let tenant = |(name, key): &(&str, &str)| Tenant {
        name: Name::new(name).unwrap(),
        key: Secret::new(key).unwrap(),
        models: None,
    };
    Settings {
        wait: Duration::from_secs(30),
        tenants: tenants.iter().map(tenant).collect(),
        allow_anonymous: false,
        on_backend_error: OnBackendError::Deny,
        body_bytes_max: 1 << 25,
        buffered_bytes_max: 1 << 28,
        providers,
    }
}

/// GW-11
#[test]
fn gw_11_a_key_of_the_provider_is_not_for_everybody() {
    let mut open = settings(vec![provider("openai", Some("sk"))], &[]);
    assert_eq!(open.check(false), Err(vec![SettingsError::ApiKeyForEverybody { at: 0 }]));
    assert_eq!(open.check(true), Ok(()), "only this machine reaches it");
    open.allow_anonymous = true;
    assert_eq!(open.check(false), Ok(()));
    let tenants = settings(vec![provider("openai", Some("sk"))], &[("acme", "k")]);
    assert_eq!(tenants.check(false), Ok(()));
    let callers_own = settings(vec![provider("openai", None)], &[]);
    assert_eq!(callers_own.check(false), Ok(()), "callers bring their own keys");
}

/// GW-11
#[test]
fn gw_11_a_key_of_a_tenant_is_never_sent_to_a_provider() {
    let settings = settings(vec![provider("openai", None)], &[("acme", "k")]);
    assert_eq!(settings.check(true), Err(vec![SettingsError::TenantsWithoutApiKey { at: 0 }]));
}

/// GW-01
#[test]
fn gw_01_a_provider_is_not_named_like_a_path_of_the_server() {
    for name in RESERVED_NAMES {
        let settings = settings(vec![provider(name, None)], &[]);
        assert_eq!(settings.check(true), Err(vec![SettingsError::ReservedName { at: 0 }]));
    }
    for name in ["", ".", "..", "a/b", "a:b", "a b", "ä", &"a".repeat(65)] {
        assert_eq!(Name::new(name), Err(NameError), "{name:?}");
    }
    assert!(Name::new(&"a".repeat(64)).is_ok());
}

#[test]
fn names_and_keys_are_given_once() {
    let two = vec![provider("a", Some("sk")), provider("a", Some("sk"))];
    let two = settings(two, &[("x", "k"), ("x", "k")]);
    let expected = [
        SettingsError::ProviderTwice { at: 1 },
        SettingsError::TenantTwice { at: 1 },
        SettingsError::TenantKeyTwice { at: 1 },
    ];
    assert_eq!(two.check(true), Err(expected.into()));
    let mut one = provider("a", None);
    let model = |name: &str, alias: &str| Model {
        name: name.to_owned(),
        aliases: vec![alias.to_owned()],
        ..Model::default()
    };
    one.models = Some(vec![model("m", "n"), model("o", "m")]);
    let twice = SettingsError::ModelTwice { at: 0, model: "o".to_owned(), name: "m".to_owned() };
    assert_eq!(settings(vec![one], &[]).check(true), Err(vec![twice]));
}

/// What no call could use is an error.
#[test]
fn settings_that_can_never_work_are_refused() {
    let mut one = provider("a", Some("sk"));
    let model = |name: &str, default_output_tokens, max_output_tokens| Model {
        name: name.to_owned(),
        default_output_tokens,
        max_output_tokens,
        ..Model::default()
    };
    one.models = Some(vec![
        model("m x", None, None),
        model("m", Some(0), None),
        model("n", Some(2), Some(1)),
    ]);
    let paths = ["files/*", "moderations", "/files", "../x", "*", "files/*/x", "files/**", ""];
    one.pass_through_paths = paths.map(str::to_owned).to_vec();
    let mut two = provider("b", Some("sk"));
    two.api = Api::Anthropic;
    two.models = Some(vec![model("p", Some(1), Some(1))]);
    let mut all = settings(vec![one, two], &[("acme", "k"), ("umbrella", "l")]);
    all.tenants[0].models = Some(vec!["m".to_owned(), "p".to_owned()]);
    all.tenants[1].models = Some(vec!["nope".to_owned()]);
    all.buffered_bytes_max = all.body_bytes_max - 1;
    let errors = all.check(true).unwrap_err();
    let shown: Vec<_> = errors.iter().map(|error| format!("{}: {error}\n", error.path())).collect();
    expect_test::expect![[r#"
        gateway.providers[0].pass_through_paths[2]: is no path below base_url, such as `moderations`, or `files/*` for all below `files/`
        gateway.providers[0].pass_through_paths[3]: is no path below base_url, such as `moderations`, or `files/*` for all below `files/`
        gateway.providers[0].pass_through_paths[4]: is no path below base_url, such as `moderations`, or `files/*` for all below `files/`
        gateway.providers[0].pass_through_paths[5]: is no path below base_url, such as `moderations`, or `files/*` for all below `files/`
        gateway.providers[0].pass_through_paths[6]: is no path below base_url, such as `moderations`, or `files/*` for all below `files/`
        gateway.providers[0].pass_through_paths[7]: is no path below base_url, such as `moderations`, or `files/*` for all below `files/`
        gateway.providers[0].models.m x: is not the name of a model, which has 1 to 128 characters without white space and without `*`
        gateway.providers[0].models.m.default_output_tokens: must be 1 or more
        gateway.providers[0].models.n.default_output_tokens: must be at most max_output_tokens
        gateway.providers[1].base_url: must not end with /v1: callers' paths begin with it
        gateway.buffered_bytes_max: must be at least gateway.body_bytes_max, or a call that large never has room
        gateway.tenants[1].models: lists nope, which no provider has
    "#]].assert_eq(&shown.concat());
}

#[test]
fn a_base_url_keeps_its_path_and_nothing_else() {
    for (text, joined) in [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
        ("http://127.0.0.1:9900", "http://127.0.0.1:9900/chat/completions"),
    ] {
        let joined_url = BaseUrl::new(text).unwrap().join("chat/completions", None).unwrap();
        assert_eq!(joined_url, joined);
    }
    for (text, error) in [
        ("", BaseUrlError::Shape),
        ("api.openai.com", BaseUrlError::Shape),
        ("/v1", BaseUrlError::Shape),
        ("https://host/#x", BaseUrlError::Shape),
        ("ftp://host", BaseUrlError::Scheme),
        ("https://sk-1@host", BaseUrlError::Credentials),
        ("https://host/?key=1", BaseUrlError::Query),
    ] {
        assert_eq!(BaseUrl::new(text), Err(error), "{text}");
    }
}

#[test]
fn a_secret_is_never_shown() {
    assert_eq!(format!("{:?}", Secret::new("s3cret").unwrap()), "Secret(…)");
    for text in ["", "two words", "é", &"x".repeat(4_097)] {
        assert!(Secret::new(text).is_err());
    }
}

/// GW-08
#[test]
fn gw_08_a_deployment_is_a_model_that_can_be_called() {
    let deployed = |provider: &str, model: &str, weight| Deployment {
        provider: provider.to_owned(),
        model: model.to_owned(),
        weight,
    };
    let model = |name: &str, deployments| Model {
        name: name.to_owned(),
        aliases: vec![format!("{name}-alias")],
        deployments,
        ..Model::default()
    };
    let checked = |deployments: Vec<Deployment>| {
        let mut openai = provider("openai", None);
        openai.models = Some(vec![model("m", deployments), model("plain", Vec::new())]);
        let mut east = provider("east", None);
        east.models = Some(vec![model("m-east", Vec::new())]);
        let anthropic = Provider {
            api: Api::Anthropic,
            base_url: BaseUrl::new("https://api.anthropic.com").unwrap(),
            ..provider("anthropic", None)
        };
        let all = vec![openai, east, provider("any", None), anthropic];
        settings(all, &[]).check(true).err().unwrap_or_default()
    };
    let good = vec![
        deployed("east", "m-east", 1),
        deployed("openai", "plain", 1_000),
        deployed("any", "whatever", 1),
    ];
    assert_eq!(checked(good), []);
    for (deployment, error) in [
        (deployed("east", "m-east-alias", 1), DeploymentError::UnknownModel),
        (deployed("west", "m", 1), DeploymentError::UnknownProvider),
        (deployed("anthropic", "m", 1), DeploymentError::OtherApi),
        (deployed("openai", "m", 1), DeploymentError::Chain),
        (deployed("any", "a b", 1), DeploymentError::ModelName),
        (deployed("any", "m", 0), DeploymentError::Weight),
        (deployed("any", "m", 1_001), DeploymentError::Weight),
    ] {
        let errors = checked(vec![deployment]);
        let model = "m".to_owned();
        assert_eq!(errors, [SettingsError::Deployment { at: 0, model, deployment_at: 0, error }]);
        assert_eq!(errors[0].path(), "gateway.providers[0].models.m.deployments[0]");
    }
    let twice = checked(vec![deployed("any", "m", 1), deployed("any", "m", 2)]);
    assert_eq!(twice.len(), 1);
    assert!(twice[0].to_string().contains("there twice"));
}

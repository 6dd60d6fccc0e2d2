//! Commands that talk to a server.

use std::process::Output;

use expect_test::expect;

use crate::process::{Process, program, run, stderr, stdout, with_one_moment};

fn on(server: &Process, arguments: &[&str]) -> Output {
    program().args(arguments).env("RATELIMITER_URL", server.url()).output().unwrap()
}

fn stdout_of(server: &Process, arguments: &[&str]) -> String {
    let output = on(server, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// CMD-03
#[test]
fn limits_are_put_listed_shown_and_deleted_from_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    let put = [
        "limits",
        "put",
        "a/b",
        "--kind",
        "rolling",
        "--capacity",
        "7",
        "--window-seconds",
        "60",
        "--unit",
        "tokens",
    ];
    expect![[r#"
        a/b: active
    "#]]
    .assert_eq(&stdout_of(&server, &put));
    let put = [
        "limits",
        "put",
        "c",
        "--kind",
        "concurrency",
        "--capacity",
        "2",
        "--timeout-seconds",
        "30",
    ];
    expect![[r#"
        c: active
    "#]]
    .assert_eq(&stdout_of(&server, &put));
    expect![[r#"
        KEY  KIND             USED  CAPACITY  DEBT  STATUS  UNIT
        a/b  rolling 60s      0     7         0     active  tokens
        c    concurrency 30s  0     2         0     active
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "list"]));
    expect![[r#"
        KEY  KIND             USED  CAPACITY  DEBT  STATUS  UNIT
        c    concurrency 30s  0     2         0     active
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "list", "--prefix", "c"]));
    expect![[r#"
        KEY  KIND         USED  CAPACITY  DEBT  STATUS  UNIT
        a/b  rolling 60s  0     7         0     active  tokens
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "get", "a/b"]));
    expect![[r#"
        a/b: deleted
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "delete", "a/b"]));
}

/// CMD-03, TPL-06: a page costs the server time in proportion to all limits, so a list is one request if it can be.
#[test]
fn a_list_of_a_thousand_limits_is_one_request() {
    const COUNT: usize = 1_000;
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    let entry = |n: usize| {
        format!(r#"{{"key":"k{n:04}","kind":"rolling","capacity":1,"window_seconds":60}}"#)
    };
    let entries: Vec<_> = (0..COUNT).map(entry).collect();
    let list = format!(r#"{{"limits":[{}]}}"#, entries.join(","));
    assert_eq!(server.ask("PUT", "/v1/admin/limits", &list).unwrap().0, 200);
    let requests = || {
        let metrics = server.ask("GET", "/metrics", "").unwrap().1;
        let name = r#"ratelimiter_request_seconds_count{route="/v1/admin/limits"} "#;
        let count = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        count.parse::<usize>().unwrap()
    };
    let before = requests();
    assert_eq!(stdout_of(&server, &["limits", "list"]).lines().count(), COUNT + 1);
    assert_eq!(requests() - before, 1);
}

fn put<'a>(key: &'a str, flags: &'a str) -> Vec<&'a str> {
    ["limits", "put", key, "--capacity", "7"].into_iter().chain(flags.split(' ')).collect()
}

/// CMD-03, CAL-01, SHD-01
#[test]
fn cal_01_shd_01_calendar_limits_and_limits_in_shadow_mode_are_put_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    let answers: String = [
        put("month", "--calendar month --time-zone Europe/Sofia --resets-at 06:00 --day 28"),
        put("week", "--calendar week --weekday sunday --shadow"),
        put("day", "--calendar day --time-zone america/new_york --unit tokens"),
        put("hour", "--calendar hour"),
        put("rpm", "--kind rolling --window-seconds 60 --shadow"),
    ]
    .iter()
    .map(|arguments| stdout_of(&server, arguments))
    .collect();
    expect![[r#"
        month: active
        week: active, shadow
        day: active
        hour: active
        rpm: active, shadow
    "#]]
    .assert_eq(&answers);
    let list = with_one_moment(&stdout_of(&server, &["limits", "list"]));
    expect![[r#"
        KEY    KIND                                            MODE    USED  CAPACITY  DEBT  STATUS  RESETS                UNIT
        day    calendar day at 00:00 America/New_York                  0     7         0     active  2026-12-01T00:00:00Z  tokens
        hour   calendar hour at minute 0                               0     7         0     active  2026-12-01T00:00:00Z
        month  calendar month on day 28 at 06:00 Europe/Sofia          0     7         0     active  2026-12-01T00:00:00Z
        rpm    rolling 60s                                     shadow  0     7         0     active
        week   calendar week on sunday at 00:00 UTC            shadow  0     7         0     active  2026-12-01T00:00:00Z
    "#]].assert_eq(&list);
    let limit = with_one_moment(&stdout_of(&server, &["limits", "get", "hour"]));
    expect![[r#"
        KEY   KIND                       USED  CAPACITY  DEBT  STATUS  RESETS                UNIT
        hour  calendar hour at minute 0  0     7         0     active  2026-12-01T00:00:00Z
    "#]]
    .assert_eq(&limit);
    expect![[r#"
        KEY  KIND         MODE    USED  CAPACITY  DEBT  STATUS  UNIT
        rpm  rolling 60s  shadow  0     7         0     active
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "get", "rpm"]));
    stdout_of(&server, &put("rpm", "--kind rolling --window-seconds 60"));
    expect![[r#"
        KEY  KIND         USED  CAPACITY  DEBT  STATUS  UNIT
        rpm  rolling 60s  0     7         0     active
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "get", "rpm"]));
}

/// CMD-03, CAL-01
#[test]
fn cal_01_flags_that_contradict_each_other_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    let errors: String = [
        "--shadow",
        "--kind calendar",
        "--calendar year",
        "--calendar month --kind rolling",
        "--calendar month --window-seconds 60",
        "--calendar month --timeout-seconds 60",
        "--kind rolling --window-seconds 60 --time-zone UTC",
        "--kind rolling --window-seconds 60 --resets-at 06:00",
        "--calendar month --weekday monday --day 1",
        "--calendar month --weekday monday",
        "--calendar week --day 1",
        "--calendar week --weekday Montag",
        "--calendar hour --time-zone UTC",
        "--calendar month --day 31",
        "--calendar month --day x",
        "--calendar month --resets-at 25:00",
        "--calendar month --time-zone Europe/Atlantis",
    ]
    .iter()
    .map(|flags| {
        let output = on(&server, &put("k", flags));
        let error = stderr(&output);
        let (error, _) = error.split_once("\n\nUsage").unwrap_or((error.trim_end(), ""));
        format!("{flags} -> {} {error}\n", output.status.code().unwrap())
    })
    .collect();
    expect![[r#"
        --shadow -> 2 error: the following required arguments were not provided:
          <--kind <KIND>|--calendar <PERIOD>>
        --kind calendar -> 2 error: invalid value 'calendar' for '--kind <KIND>'
          [possible values: rolling, concurrency]

        For more information, try '--help'.
        --calendar year -> 2 error: invalid value 'year' for '--calendar <PERIOD>'
          [possible values: hour, day, week, month]

        For more information, try '--help'.
        --calendar month --kind rolling -> 2 error: the argument '--calendar <PERIOD>' cannot be used with '--kind <KIND>'
        --calendar month --window-seconds 60 -> 2 error: the argument '--calendar <PERIOD>' cannot be used with '--window-seconds <WINDOW_SECONDS>'
        --calendar month --timeout-seconds 60 -> 2 error: the argument '--calendar <PERIOD>' cannot be used with '--timeout-seconds <TIMEOUT_SECONDS>'
        --kind rolling --window-seconds 60 --time-zone UTC -> 1 ratelimiterd: invalid_request:time_zone: a rolling limit has no time_zone; leave it out
        --kind rolling --window-seconds 60 --resets-at 06:00 -> 1 ratelimiterd: invalid_request:resets_at: a rolling limit has no resets_at; leave it out
        --calendar month --weekday monday --day 1 -> 1 ratelimiterd: invalid_request:weekday: a monthly limit has no weekday; leave it out
        --calendar month --weekday monday -> 1 ratelimiterd: invalid_request:weekday: a monthly limit has no weekday; leave it out
        --calendar week --day 1 -> 1 ratelimiterd: invalid_request:day: a weekly limit has no day; leave it out
        --calendar week --weekday Montag -> 2 error: invalid value 'Montag' for '--weekday <DAY>'
          [possible values: monday, tuesday, wednesday, thursday, friday, saturday, sunday]

        For more information, try '--help'.
        --calendar hour --time-zone UTC -> 1 ratelimiterd: invalid_request:time_zone: an hourly limit, which resets in UTC, has no time_zone; leave it out
        --calendar month --day 31 -> 1 ratelimiterd: invalid_request:day: a monthly limit resets on day 1 to 28, which every month has, not 31
        --calendar month --day x -> 2 error: invalid value 'x' for '--day <DAY>': invalid digit found in string

        For more information, try '--help'.
        --calendar month --resets-at 25:00 -> 1 ratelimiterd: invalid_request:resets_at: a reset time is HH:MM from 00:00 to 23:59, not "25:00"
        --calendar month --time-zone Europe/Atlantis -> 1 ratelimiterd: invalid_request:time_zone: "Europe/Atlantis" is no time zone of the IANA database; write it like Europe/Sofia, or UTC
    "#]].assert_eq(&errors);
    assert_eq!(server.ask("GET", "/v1/admin/limits", "").unwrap().1, r#"{"limits":[]}"#);
}

/// CMD-03, OPS-05, CAL-01, SHD-01
#[test]
fn ops_05_a_limits_file_of_version_2_is_applied_and_its_difference_shown() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    let file = folder.path().join("wanted.json");
    let apply = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let arguments = ["limits", "apply", file.to_str().unwrap()];
        stdout_of(&server, &[&arguments[..], more].concat())
    };
    let first = r#"[
        {"key":"budget","kind":"calendar","capacity":7,"period":"day"},
        {"key":"rpm","kind":"rolling","capacity":7,"window_seconds":60,"mode":"shadow"}]"#;
    expect![[r#"
        + budget: calendar day at 00:00 UTC, capacity 7
        + rpm: rolling 60s, capacity 7, shadow
    "#]]
    .assert_eq(&apply(first, &[]));
    let exported = stdout_of(&server, &["limits", "list", "--json"]);
    assert!(exported.starts_with("{\n  \"version\": 2,"), "{exported}");
    assert_eq!(std::fs::read_to_string(folder.path().join("data/limits.json")).unwrap(), exported);
    assert_eq!(apply(&exported, &[]), "nothing to change\n");
    let second = r#"{"version":2,"limits":[
        {"key":"budget","kind":"calendar","capacity":7,"period":"month","time_zone":"Europe/Sofia","mode":"shadow"},
        {"key":"rpm","kind":"rolling","capacity":7,"window_seconds":60}]}"#;
    expect![[r#"
        ~ budget: day none -> 1, mode "enforce" -> "shadow", period "day" -> "month", time_zone "UTC" -> "Europe/Sofia"
        ~ rpm: mode "shadow" -> "enforce"
    "#]].assert_eq(&apply(second, &["--dry-run"]));
    assert_eq!(apply(&exported, &["--dry-run"]), "nothing to change\n");
    apply(second, &[]);
    assert_eq!(apply(second, &["--dry-run"]), "nothing to change\n");
}

/// CMD-03, TPL-01, TPL-06
#[test]
fn tpl_06_a_template_is_put_and_its_limits_are_listed_from_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    let flags = "--kind rolling --window-seconds 86400 --unit tokens";
    expect![[r#"
        tenant:*:llm:daily_tokens: active
    "#]]
    .assert_eq(&stdout_of(&server, &put("tenant:*:llm:daily_tokens", flags)));
    for (lease, tenant) in
        [("01J9ZC3V9W8Q4N2M6T5R7Y1K0D", "b"), ("01J9ZC3V9W8Q4N2M6T5R7Y1K0E", "a")]
    {
        let key = format!("tenant:{tenant}:llm:daily_tokens");
        let reserve =
            format!(r#"{{"lease_id":"{lease}","requirements":[{{"key":"{key}","amount":3}}]}}"#);
        server.ask("POST", "/v1/reserve", &reserve).unwrap();
    }
    expect![[r#"
        KEY                        KIND            USED  CAPACITY  DEBT  STATUS  UNIT
        tenant:*:llm:daily_tokens  rolling 86400s  0     7         0     active  tokens
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "list"]));
    let list = ["limits", "list", "--template", "tenant:*:llm:daily_tokens"];
    expect![[r#"
        KEY                        KIND            USED  CAPACITY  DEBT  STATUS  UNIT
        tenant:a:llm:daily_tokens  rolling 86400s  3     7         0     active  tokens
        tenant:b:llm:daily_tokens  rolling 86400s  3     7         0     active  tokens
    "#]]
    .assert_eq(&stdout_of(&server, &list));
    let get = ["limits", "get", "tenant:c:llm:daily_tokens"];
    expect![[r#"
        KEY                        KIND            USED  CAPACITY  DEBT  STATUS  UNIT
        tenant:c:llm:daily_tokens  rolling 86400s  0     7         0     active  tokens
    "#]]
    .assert_eq(&stdout_of(&server, &get));
    let exported = stdout_of(&server, &["limits", "list", "--json"]);
    let file = folder.path().join("wanted.json");
    std::fs::write(&file, &exported).unwrap();
    let apply = ["limits", "apply", file.to_str().unwrap()];
    assert_eq!(stdout_of(&server, &apply), "nothing to change\n");
    let errors: String = [
        &["limits", "list", "--template", "tenant:a*"][..],
        &put("tenant:a*", flags),
        &["limits", "delete", "tenant:a:llm:daily_tokens"],
    ]
    .iter()
    .map(|arguments| stderr(&on(&server, arguments)))
    .collect();
    expect![[r#"
        ratelimiterd: `*` and `**` must be whole segments between `:`, not a part of `a*`
        ratelimiterd: refused: invalid_request:key: tenant:a* cannot be defined: `*` and `**` must be whole segments between `:`, not a part of `a*`
        ratelimiterd: no limit is defined for tenant:a:llm:daily_tokens
    "#]]
    .assert_eq(&errors);
    expect![[r#"
        tenant:*:llm:daily_tokens: deleted
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "delete", "tenant:*:llm:daily_tokens"]));
}

#[test]
fn an_error_is_printed_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    stdout_of(
        &server,
        &[
            "limits",
            "put",
            "c",
            "--kind",
            "concurrency",
            "--capacity",
            "2",
            "--timeout-seconds",
            "30",
            "--overage",
            "deny",
        ],
    );
    let gone = on(&server, &["limits", "get", "a/b"]);
    assert_eq!(gone.status.code(), Some(1));
    expect![[r#"
        ratelimiterd: no limit is defined for a/b
    "#]]
    .assert_eq(&stderr(&gone));
    let refused = on(
        &server,
        &["limits", "put", "c", "--kind", "rolling", "--capacity", "2", "--window-seconds", "30"],
    );
    expect![[r#"
        ratelimiterd: c is a concurrency limit and cannot become another kind; delete it first, or take another key
    "#]].assert_eq(&stderr(&refused));
    let invalid = on(&server, &["limits", "put", "c", "--kind", "rolling", "--capacity", "2"]);
    expect![[r#"
        ratelimiterd: invalid_request:window_seconds: a rolling limit's window is 1 to 2678400 seconds (31 days), not 0
    "#]].assert_eq(&stderr(&invalid));
}

/// CMD-03
#[test]
fn a_limits_file_is_applied_and_its_difference_shown() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    for (key, capacity) in [("changed", 1), ("same", 1), ("gone", 1)] {
        assert_eq!(server.put(key, capacity).unwrap().0, 200);
    }
    let file = folder.path().join("wanted.json");
    let entry = |key: &str, capacity: u64| {
        format!(r#"{{"key":"{key}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#)
    };
    std::fs::write(
        &file,
        format!("[{},{},{}]", entry("changed", 9), entry("same", 1), entry("new", 3)),
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let before = server.ask("GET", "/v1/admin/limits", "").unwrap();
    let difference = stdout_of(&server, &["limits", "apply", file, "--dry-run"]);
    expect![[r#"
        ~ changed: capacity 1 -> 9
        - gone
        + new: rolling 60s, capacity 3
    "#]]
    .assert_eq(&difference);
    assert_eq!(
        server.ask("GET", "/v1/admin/limits", "").unwrap(),
        before,
        "a dry run changes nothing"
    );
    assert!(
        !stdout_of(&server, &["limits", "apply", file, "--dry-run", "--keep-others"])
            .contains("gone")
    );
    assert_eq!(stdout_of(&server, &["limits", "apply", file]), difference);
    assert_eq!(stdout_of(&server, &["limits", "apply", file]), "nothing to change\n");
    let written = stdout_of(&server, &["limits", "list", "--json"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("data/limits.json")).unwrap(), written);

    let missing = on(&server, &["limits", "apply", "nowhere.json"]);
    assert_eq!(
        missing.status.code(),
        Some(1),
        "a file that is not there must not delete everything"
    );
    std::fs::write(folder.path().join("invalid.json"), "[{}]").unwrap();
    let faulty =
        on(&server, &["limits", "apply", folder.path().join("invalid.json").to_str().unwrap()]);
    assert_eq!(faulty.status.code(), Some(1));
    assert_eq!(
        stdout_of(&server, &["limits", "list", "--json"]),
        written,
        "nothing of it was applied"
    );
}

/// CMD-03, OPS-03
#[test]
fn ops_03_a_limits_file_that_conflicts_with_the_server_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    for key in ["a", "gone", "z"] {
        assert_eq!(server.put(key, 1).unwrap().0, 200);
    }
    let before = stdout_of(&server, &["limits", "list", "--json"]);
    let file = folder.path().join("wanted.json");
    let wanted = r#"[{"key":"a","kind":"rolling","capacity":9,"window_seconds":60},
        {"key":"b","kind":"rolling","capacity":9,"window_seconds":60},
        {"key":"z","kind":"concurrency","capacity":9,"timeout_seconds":60}]"#;
    std::fs::write(&file, wanted).unwrap();
    let refused = on(&server, &["limits", "apply", file.to_str().unwrap()]);
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(1), ""));
    expect![[r#"
        ratelimiterd: z is a rolling limit and cannot become another kind; delete it first, or take another key
    "#]].assert_eq(&stderr(&refused));
    assert_eq!(stdout_of(&server, &["limits", "list", "--json"]), before);
    let conflicting = r#"concurrency","capacity":9,"timeout_seconds""#;
    let rolling = r#"rolling","capacity":9,"window_seconds""#;
    std::fs::write(&file, wanted.replace(conflicting, rolling)).unwrap();
    expect![[r#"
        ~ a: capacity 1 -> 9
        + b: rolling 60s, capacity 9
        - gone
        ~ z: capacity 1 -> 9
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "apply", file.to_str().unwrap()]));
}

/// CMD-03, OPS-03: more limits than one request may have.
#[test]
fn ops_03_ten_thousand_limits_and_more_are_applied() {
    let folder = tempfile::tempdir().unwrap();
    // Only a hang takes as long.
    let mut serve = program();
    serve.args(["--listen", "127.0.0.1:0"]).env("RATELIMITER_SERVER__REQUEST_TIMEOUT_MS", "600000");
    let server = Process::start_as(serve, folder.path());
    let file = folder.path().join("wanted.json");
    let entry = |number: u32| {
        format!(r#"{{"key":"{number:05}","kind":"rolling","capacity":1,"window_seconds":60}}"#)
    };
    let entries: Vec<_> = (0..10_001).map(entry).collect();
    std::fs::write(&file, format!("[{}]", entries.join(","))).unwrap();
    let file = file.to_str().unwrap();
    let applied = stdout_of(&server, &["limits", "apply", file]);
    assert_eq!(applied.lines().count(), 10_001);
    assert_eq!(stdout_of(&server, &["limits", "apply", file]), "nothing to change\n");
}

/// CMD-03, OPS-01, OPS-02
#[test]
fn leases_are_listed_and_released_and_a_debt_forgiven_from_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    server.put("tokens", 10).unwrap();
    let slots = r#"{"key":"slots","kind":"concurrency","capacity":5,"timeout_seconds":60}"#;
    server.ask("PUT", "/v1/admin/limits", slots).unwrap();
    let first = r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","job_id":"nightly run 7","requirements":[{"key":"tokens","amount":10},{"key":"slots","amount":1}]}"#;
    server.ask("POST", "/v1/reserve", first).unwrap();
    let second =
        r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0E","requirements":[{"key":"slots","amount":2}]}"#;
    server.ask("POST", "/v1/reserve", second).unwrap();
    // A slow machine may show another age.
    let listed = |arguments: &[&str]| {
        let text = stdout_of(&server, &[&["limits", "leases"], arguments].concat());
        let without_age = |line: &str| {
            let words = line.split_whitespace().enumerate().filter(|(at, _)| *at != 1);
            words.map(|(_, word)| word).collect::<Vec<_>>().join(" ") + "\n"
        };
        text.lines().map(without_age).collect::<String>()
    };
    let both = "LEASE JOB AMOUNTS\n\
        01J9ZC3V9W8Q4N2M6T5R7Y1K0D nightly run 7 slots=1 tokens=10\n\
        01J9ZC3V9W8Q4N2M6T5R7Y1K0E - slots=2\n";
    let first = &both[..both.find("01J9ZC3V9W8Q4N2M6T5R7Y1K0E").unwrap()];
    assert_eq!(listed(&[]), both);
    assert_eq!(listed(&["--key", "slots", "--limit", "2000"]), both);
    assert_eq!(listed(&["--key", "tokens"]), first);
    assert_eq!(listed(&["--limit", "1"]), first);
    assert_eq!(listed(&["--older-than", "86400"]), "LEASE JOB AMOUNTS\n");
    let id = "01j9zc3v9w8q4n2m6t5r7y1k0e";
    expect![[r#"
        01J9ZC3V9W8Q4N2M6T5R7Y1K0E: released
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "release", id]));
    assert_eq!(listed(&[]), first);
    let again = on(&server, &["limits", "release", id]);
    assert_eq!(again.status.code(), Some(1));
    expect![[r#"
        ratelimiterd: no open lease has the ID 01J9ZC3V9W8Q4N2M6T5R7Y1K0E
    "#]]
    .assert_eq(&stderr(&again));

    let complete = r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","actuals":[{"key":"tokens","actual_amount":17}]}"#;
    server.ask("POST", "/v1/complete", complete).unwrap();
    for expected in ["tokens: 7 forgiven\n", "tokens: 0 forgiven\n"] {
        assert_eq!(stdout_of(&server, &["limits", "forgive", "tokens"]), expected);
    }
    let unknown = on(&server, &["limits", "forgive", "other"]);
    assert_eq!(unknown.status.code(), Some(1));
    expect![[r#"
        ratelimiterd: no limit is defined for other
    "#]]
    .assert_eq(&stderr(&unknown));
}

/// CMD-03
#[test]
fn an_unreachable_or_unauthorized_server_is_reported() {
    // A port on which no process listens, and which the system does not assign.
    let output = run(&["limits", "list", "--url", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no answer"), "{}", stderr(&output));

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "s3cret\n").unwrap();
    let mut command = program();
    command.args(["--listen", "127.0.0.1:0"]).env("RATELIMITER_AUTH__ADMIN_TOKENS", "file:token");
    let server = Process::start_as(command, folder.path());
    let output = on(&server, &["limits", "list"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("does not accept the token"), "{}", stderr(&output));
    let token = format!("file:{}", folder.path().join("token").display());
    assert!(stdout_of(&server, &["limits", "list", "--token", &token]).starts_with("KEY"));
    assert!(stdout_of(&server, &["limits", "list", "--token", "s3cret"]).starts_with("KEY"));
}

/// CMD-05
#[test]
fn a_load_test_reports_its_results_and_deletes_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    let short = ["bench", "--seconds", "1", "--workers", "4", "--models", "2"];
    for target in [&[][..], &["--http2"], &["--in-process"]] {
        let report = stdout_of(&server, &[&short[..], target].concat());
        for word in ["throughput", "allowed", "denied     0", "failed     0", "p50", "p95", "p99"] {
            assert!(report.contains(word), "{word}\n{report}");
        }
        assert!(!report.contains("allowed    0\n"), "{report}");
    }
    let report =
        stdout_of(&server, &[&short[..], &["--capacity", "100", "--reserve-only"]].concat());
    assert!(!report.contains("denied     0\n"), "{report}");
    assert_eq!(server.ask("GET", "/v1/admin/limits", "").unwrap().1, r#"{"limits":[]}"#);
}

/// CMD-04, SHD-01
#[test]
fn the_live_view_shows_how_full_the_limits_are() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    server.put("half", 2).unwrap();
    server.put("empty", 2).unwrap();
    let body =
        r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"half","amount":1}]}"#;
    server.ask("POST", "/v1/reserve", body).unwrap();
    let body = body.replace("K0D", "K0E").replace("\"amount\":1", "\"amount\":2");
    server.ask("POST", "/v1/reserve", &body).unwrap();
    let shadow =
        r#"{"key":"shadow","kind":"rolling","capacity":2,"window_seconds":60,"mode":"shadow"}"#;
    server.ask("PUT", "/v1/admin/limits", shadow).unwrap();
    let body = body.replace("K0E", "K0F").replace("half", "shadow").replace(":2}", ":5}");
    server.ask("POST", "/v1/reserve", &body).unwrap();
    expect![[r#"
        FILLED                              USED/CAPACITY  CHANGE/S    DENIED  DENIED/S      DEBT  KEY
        [########################]                    5/2        +0         1         0         0  shadow  (shadow)
        [############............]                    1/2        +0         1         0         0  half
        [........................]                    0/2        +0         0         0         0  empty
    "#]]
    .assert_eq(&stdout_of(&server, &["top", "--times", "1"]));
}

/// CMD-06
#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && stdout(&output).contains("ratelimiterd"), "{shell}");
    }
}

//! The limits file round-trips, and every error is reported with its line.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use expect_test::{Expect, expect};
use ratelimiter::{LimitKey, LimitStatus};
use ratelimiter_wire::{LimitsDocument, read_limits_file, write_limits_file};

fn check(text: &str, expected: &Expect) {
    expected.assert_eq(&read_limits_file(text.as_bytes()).unwrap_err().to_string());
}

/// DEF-08
#[test]
fn def_08_a_limits_file_with_a_decrease_round_trips() {
    let text = r#"[
  {
    "key": "a",
    "kind": "concurrency",
    "capacity": 200,
    "window_seconds": 0,
    "timeout_seconds": 300,
    "unit": "inflight",
    "description": "Max in-flight calls",
    "overage": "debt",
    "status": "active",
    "pending_decrease_to": null
  },
  {
    "key": "b:/ü",
    "kind": "rolling",
    "capacity": 9223372036854775807,
    "window_seconds": 2678400,
    "timeout_seconds": 0,
    "unit": "",
    "description": "two\nlines",
    "overage": "deny",
    "status": "decreasing",
    "pending_decrease_to": 0
  }
]
"#;
    let registry = read_limits_file(text.as_bytes()).unwrap();
    assert_eq!(write_limits_file(registry.iter()), text);
}

/// PAUSE-01: an older server, which knows only `active` and `decreasing`, can read the file.
#[test]
fn pause_01_a_pause_is_written_as_in_version_1_and_read_in_both_forms() {
    let entry =
        |fields: &str| format!(r#"{{"key":"k","kind":"rolling","window_seconds":60,{fields}}}"#);
    for (fields, written) in [
        (r#""capacity":0"#, r#""status": "active""#),
        (r#""capacity":0,"status":"paused""#, r#""status": "active""#),
        (
            r#""capacity":5,"status":"decreasing","pending_decrease_to":0"#,
            r#""status": "decreasing""#,
        ),
        (r#""capacity":5,"status":"paused","pending_decrease_to":0"#, r#""status": "decreasing""#),
    ] {
        let registry = read_limits_file(format!("[{}]", entry(fields)).as_bytes()).unwrap();
        let paused = registry.iter().next().unwrap();
        assert_eq!(paused.status, LimitStatus::Paused, "{fields}");
        let text = write_limits_file(registry.iter());
        assert!(text.contains(written), "{text}");
        assert_eq!(read_limits_file(text.as_bytes()).unwrap(), registry);
    }
    check(
        &format!("[{}]", entry(r#""capacity":5,"status":"paused""#)),
        &expect![
            "line 1: k: pending_decrease_to: a paused limit has the capacity 0, or decreases to 0"
        ],
    );
}

#[test]
fn plain_definitions_are_read_too_and_written_sorted() {
    let text = r#"[{"key":"b","kind":"rolling","capacity":1,"window_seconds":60},
                   {"key":"a","kind":"concurrency","capacity":1,"timeout_seconds":60}]"#;
    let registry = read_limits_file(text.as_bytes()).unwrap();
    let limits: Vec<_> = registry.iter().collect();
    let written = write_limits_file(limits.iter().rev().copied());
    assert_eq!(read_limits_file(written.as_bytes()).unwrap(), registry);
    assert!(written.find("\"a\"") < written.find("\"b\""), "{written}");
}

#[test]
fn a_file_without_limits_is_a_list_too() {
    assert!(read_limits_file(b"[]").unwrap().is_empty());
    assert_eq!(write_limits_file([]), "[]\n");
}

#[test]
fn every_error_is_reported_with_its_line_key_and_field() {
    check(
        r#"[
  {"key":"a","kind":"rolling","capacity":1,"window_seconds":60},
  {
    "key": "b",
    "kind": "leaky",
    "capacity": -1,
    "window_seconds": 60,
    "capacty": 7
  },
  {"key":"c","kind":"rolling","capacity":1},
  {"key":"two words","kind":"rolling","capacity":1,"window_seconds":60},
  {"kind":"rolling","capacity":1,"window_seconds":60},
  7,
  {"key":"a","kind":"rolling","capacity":2,"window_seconds":60},
  {"key":"d","kind":"rolling","capacity":2,"window_seconds":60,
   "status":"decreasing"},
  {"key":"e","kind":"rolling","capacity":2,"window_seconds":60,
   "pending_decrease_to":1},
  {"key":"f","kind":"rolling","capacity":2,"window_seconds":60,"status":"decreasing",
   "pending_decrease_to":2},
  {"key":"g","key":"h","kind":"rolling","capacity":2,"window_seconds":60}
]"#,
        &expect![[r#"
            line 5: b: kind: unknown variant `leaky`, expected one of `rolling`, `concurrency`, `calendar`
            line 6: b: capacity: invalid value: integer `-1`, expected a whole number from 0 to 9223372036854775807
            line 8: b: capacty: unknown field `capacty`, expected one of `key`, `kind`, `capacity`, `window_seconds`, `timeout_seconds`, `period`, `time_zone`, `resets_at`, `weekday`, `day`, `unit`, `description`, `overage`, `mode`, `status`, `pending_decrease_to`
            line 10: c: window_seconds: a rolling limit's window is 1 to 2678400 seconds (31 days), not 0
            line 11: two words: key: a key must not contain white space, this one has some at byte 3
            line 12: key: missing field `key`
            line 13: invalid type: integer `7`, expected an object with key, kind and capacity
            line 14: a: key: the key is listed twice, first on line 2
            line 15: d: pending_decrease_to: a decreasing limit needs its target capacity
            line 18: e: pending_decrease_to: an active limit has none; leave it out
            line 20: f: pending_decrease_to: must be below the capacity of 2, not 2
            line 21: g: key: duplicate field `key`"#]],
    );
}

#[test]
fn a_truncated_file_is_refused_with_the_last_complete_limit() {
    check("", &expect!["line 1: EOF while parsing a value at line 1 column 0"]);
    check("[", &expect!["line 1: EOF while parsing a list at line 1 column 1"]);
    check(
        "[\n{\"key\":\"a\",\"kind\":\"rolling\",\"capacity\":1,\"window_seconds\":60},\n{\"key\":\"b\",\n\"ki",
        &expect!["line 4: EOF while parsing a string at line 4 column 3, after the limit a"],
    );
    check("[]\n[]", &expect!["line 2: trailing characters at line 2 column 1"]);
}

#[test]
fn a_file_that_is_not_utf_8_is_refused_with_its_line() {
    let error = read_limits_file(b"[\n\xff]").unwrap_err();
    expect!["line 2: the file is not UTF-8"].assert_eq(&error.to_string());
}

/// CAL-01, SHD-01, OPS-05: an older server would refuse these limits, so the file says that it needs a newer one.
#[test]
fn ops_05_a_file_with_a_calendar_or_shadow_limit_is_written_as_version_2() {
    let plain = r#"{"key":"a","kind":"rolling","capacity":1,"window_seconds":60}"#;
    let calendar =
        r#"{"key":"b","kind":"calendar","capacity":9,"period":"month","time_zone":"Europe/Sofia"}"#;
    let shadow = r#"{"key":"c","kind":"rolling","capacity":1,"window_seconds":60,"mode":"shadow"}"#;
    let read = |text: &str| LimitsDocument::read(text.as_bytes()).unwrap();
    for newer in [calendar, shadow] {
        let document = read(&format!("[{plain},{newer}]"));
        let written = document.preserved.write(document.registry.iter());
        assert!(written.starts_with("{\n  \"version\": 2,\n  \"limits\": ["), "{written}");
        let again = read(&written);
        assert_eq!(again.registry, document.registry);
        assert!(again.notes.is_empty(), "{:?}", again.notes);
        assert_eq!(again.preserved.write(again.registry.iter()), written);
    }
    let mut document = read(&format!("[{plain},{calendar},{shadow}]"));
    for key in ["b", "c"] {
        document.registry.remove(&LimitKey::new(key).unwrap());
    }
    let written = document.preserved.write(document.registry.iter());
    assert!(written.starts_with('['), "without them it is an array again: {written}");
}

/// CAL-01, SHD-01
#[test]
fn cal_01_shd_01_a_limits_file_with_a_calendar_limit_in_shadow_mode_round_trips() {
    let text = r#"{
  "version": 2,
  "limits": [
    {
      "key": "a",
      "kind": "calendar",
      "capacity": 5,
      "window_seconds": 0,
      "timeout_seconds": 0,
      "period": "week",
      "time_zone": "Europe/Sofia",
      "resets_at": "06:30",
      "weekday": "sunday",
      "unit": "",
      "description": "",
      "overage": "debt",
      "mode": "shadow",
      "status": "active",
      "pending_decrease_to": null
    }
  ]
}
"#;
    let registry = read_limits_file(text.as_bytes()).unwrap();
    assert_eq!(write_limits_file(registry.iter()), text);
}

/// CAL-01: in both forms of the file.
#[test]
fn cal_01_errors_of_a_calendar_limit_are_reported_with_line_and_field() {
    let entries = r#"[
  {"key":"a","kind":"calendar","capacity":1},
  {"key":"b","kind":"calendar","capacity":1,"period":"month",
   "time_zone":"Europe/Atlantis"},
  {"key":"c","kind":"calendar","capacity":1,"period":"fortnight"},
  {"key":"d","kind":"rolling","capacity":1,"window_seconds":60,"mode":"dark"},
  {"key":"e","kind":{"calendar":null},"capacity":1,"period":{"day":null}},
  {"key":"f","kind":"rolling","capacity":1,"window_seconds":60,"status":{"active":null}}
]"#;
    let expected = expect![[r#"
        line 2: a: period: a calendar limit needs a period: hour, day, week or month
        line 4: b: time_zone: "Europe/Atlantis" is no time zone of the IANA database; write it like Europe/Sofia, or UTC
        line 5: c: period: unknown variant `fortnight`, expected one of `hour`, `day`, `week`, `month`
        line 6: d: mode: unknown variant `dark`, expected `enforce` or `shadow`
        line 7: e: kind: invalid type: map, expected one of `rolling`, `concurrency`, `calendar`
        line 7: e: period: invalid type: map, expected one of `hour`, `day`, `week`, `month`
        line 8: f: status: invalid type: map, expected one of `active`, `paused`, `decreasing`"#]];
    check(entries, &expected);
    check(&format!(r#"{{"version":2,"limits":{entries}}}"#), &expected);
}

/// OPS-05: a file of version 2 is written as it was read, with its unknown fields.
#[test]
fn ops_05_unknown_fields_are_preserved_in_place() {
    let text = r#"{
  "version": 3,
  "written_by": {"name":  "newer"},
  "limits": [
    {"key": "a", "kind": "sliding", "steps": 7,
     "capacity": "ten a day"},
    {
      "key": "b",
      "kind": "rolling",
      "capacity": 5,
      "window_seconds": 60,
      "timeout_seconds": 0,
      "unit": "",
      "description": "",
      "overage": "debt",
      "status": "active",
      "pending_decrease_to": null,
      "owner": "search",
      "tags": [1, 2.50]
    }
  ]
}
"#;
    let LimitsDocument { registry, preserved, notes } =
        LimitsDocument::read(text.as_bytes()).unwrap();
    let keys: Vec<_> = registry.iter().map(|limit| limit.limit.key.as_str()).collect();
    assert_eq!(keys, ["b"], "only known kinds are registered");
    assert_eq!(preserved.unknown_kind_of(&LimitKey::new("a").unwrap()), Some("sliding"));
    assert_eq!(preserved.unknown_kind_of(&LimitKey::new("b").unwrap()), None);
    assert_eq!(preserved.write(registry.iter()), text);
    let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
    expect![[r#"
        line 5: a: kind: "sliding" is unknown to this version; this limit is ignored and preserved
        line 18: b: owner: unknown to this version; ignored and preserved
        line 19: b: tags: unknown to this version; ignored and preserved"#]]
    .assert_eq(&notes.join("\n"));
}

/// OPS-05: a later version may know more periods, modes and time zones; in this version they are mistakes.
#[test]
fn ops_05_a_limit_with_a_value_of_a_later_version_is_preserved() {
    let text = |version: u64| {
        let calendar = r#""kind":"calendar","capacity":1"#;
        format!(
            r#"{{"version":{version},"limits":[
{{"key":"a",{calendar},"period":"year"}},
{{"key":"b",{calendar},"period":"day","mode":"dry"}},
{{"key":"c",{calendar},"period":"day","time_zone":"Mars/Olympus"}},
{{"key":"d",{calendar},"period":"day"}}]}}"#
        )
    };
    let LimitsDocument { registry, preserved, notes } =
        LimitsDocument::read(text(3).as_bytes()).unwrap();
    let keys: Vec<_> = registry.iter().map(|limit| limit.limit.key.as_str()).collect();
    assert_eq!(keys, ["d"]);
    let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
    expect![[r#"
        line 2: a: period: "year" is unknown to this version; this limit is ignored and preserved
        line 3: b: mode: "dry" is unknown to this version; this limit is ignored and preserved
        line 4: c: time_zone: "Mars/Olympus" is unknown to this version; this limit is ignored and preserved"#]]
    .assert_eq(&notes.join("\n"));
    let written = preserved.write(registry.iter());
    for kept in ["year", "dry", "Mars/Olympus"] {
        assert!(written.contains(kept), "{written}");
    }
    let errors = LimitsDocument::read(text(2).as_bytes()).unwrap_err().errors;
    let fields: Vec<_> = errors.iter().filter_map(|error| error.field.as_deref()).collect();
    assert_eq!(fields, ["period", "mode", "time_zone"]);
}

/// OPS-05: a deleted limit loses its unknown fields, a redefined one keeps them.
#[test]
fn ops_05_unknown_fields_are_removed_with_their_limit() {
    let text = r#"{"version":2,"limits":[
        {"key":"a","kind":"rolling","capacity":1,"window_seconds":60,"owner":"search"},
        {"key":"b","kind":"rolling","capacity":1,"window_seconds":60,"owner":"chat"}]}"#;
    let LimitsDocument { mut registry, preserved, .. } =
        LimitsDocument::read(text.as_bytes()).unwrap();
    registry.remove(&LimitKey::new("a").unwrap());
    let written = preserved.write(registry.iter());
    assert!(!written.contains("search") && written.contains("chat"), "{written}");
    assert!(written.contains("\"version\": 2"), "{written}");
}

/// OPS-05: an array stays an array, so that an older server can read it.
#[test]
fn ops_05_a_file_is_written_in_the_form_in_which_it_was_read() {
    let entry = r#"{"key":"a","kind":"rolling","capacity":1,"window_seconds":60}"#;
    let array = LimitsDocument::read(format!("[{entry}]").as_bytes()).unwrap();
    assert!(array.preserved.write(array.registry.iter()).starts_with('['));
    let object = format!(r#"{{"limits":[{entry}],"version":2}}"#);
    let object = LimitsDocument::read(object.as_bytes()).unwrap();
    assert!(object.preserved.write(object.registry.iter()).starts_with("{\n  \"version\": 2"));
    assert!(object.preserved.is_empty(), "nothing in it is unknown");
    assert_eq!(object.registry, array.registry);
}

/// OPS-05: what no newer server would write is an error in version 2 too.
#[test]
fn ops_05_errors_in_a_versioned_file_are_reported() {
    check(
        r#"{"version":2,"limits":[
  {"key":"a","kind":"rolling","capacity":-1,"window_seconds":60,"owner":"search"},
  {"key":"b","kind":7,"capacity":1,"window_seconds":60},
  {"kind":"sliding"},
  {"key":"c","kind":"sliding"},
  {"key":"c","kind":"rolling","capacity":1,"window_seconds":60},
  {"key":"d","kind":"rolling","capacity":1,"owner":1},
  {"key":"e","kind":"rolling","capacity":1,"window_seconds":60,"owner":1,"owner":2}]}"#,
        &expect![[r#"
            line 2: a: capacity: invalid value: integer `-1`, expected a whole number from 0 to 9223372036854775807
            line 3: b: kind: invalid type: integer `7`, expected one of `rolling`, `concurrency`, `calendar`
            line 4: kind: unknown variant `sliding`, expected one of `rolling`, `concurrency`, `calendar`
            line 6: c: key: the key is listed twice, first on line 5
            line 7: d: window_seconds: a rolling limit's window is 1 to 2678400 seconds (31 days), not 0
            line 8: e: owner: is listed twice"#]],
    );
    check(
        r#"{"limits":[]}"#,
        &expect![[
            r#"line 1: version: missing; a file that is an object has "version": 2, and a file of version 1 is a list"#
        ]],
    );
    check(r#"{"version":2}"#, &expect!["line 1: limits: missing; it is the list of limits"]);
    check(
        r#"{"version":1,"limits":[]}"#,
        &expect!["line 1: version: must be a whole number of at least 2"],
    );
    check(
        "{\"version\":\n\"two\",\"limits\":{}}",
        &expect![[r#"
        line 2: invalid type: map, expected a list of limits at line 2 column 15
        line 2: version: must be a whole number of at least 2"#]],
    );
    check(
        "{\"version\":2,\"limits\":[],\n\"limits\":[]}",
        &expect!["line 2: limits: is listed twice"],
    );
    check(
        "{\"version\":2,\"limits\":[\n{\"key\":\"a\"},",
        &expect![[r#"
        line 2: EOF while parsing a value at line 2 column 12, after the limit a
        line 2: a: kind: missing field `kind`"#]],
    );
}

fn rolling(key: &str) -> String {
    format!(
        r#"{{ "kind": "rolling", "capacity": 1, "window_seconds": 60,
              "key": "{key}" }}"#
    )
}

fn file_of(version: Option<u64>, keys: &[&str]) -> String {
    let limits = keys.iter().map(|key| rolling(key)).collect::<Vec<_>>().join(",\n");
    match version {
        None => format!("[\n{limits}\n]"),
        Some(version) => format!("{{ \"version\": {version}, \"limits\": [\n{limits}\n] }}"),
    }
}

/// TPL-01
#[test]
fn tpl_01_a_template_needs_a_file_of_version_2() {
    check(
        &file_of(None, &["a", "tenant:*:rpm", "a*b", "**:rpm"]),
        &expect![[r#"
            line 5: tenant:*:rpm: key: a `*` segment makes it a template, which needs a file of version 2: {"version": 2, "limits": [...]}
            line 9: **:rpm: key: a `*` segment makes it a template, which needs a file of version 2: {"version": 2, "limits": [...]}"#]],
    );
    check(
        &file_of(Some(2), &["tenant:*:rpm", "a:**:**", "*", "a*:*"]),
        &expect![[r#"
            line 5: a:**:**: key: a pattern has at most one `**`
            line 7: *: key: a pattern needs at least one segment that is not `*` or `**`
            line 9: a*:*: key: `*` and `**` must be whole segments between `:`, not a part of `a*`"#]],
    );
}

/// TPL-01, OPS-05: templates are read beside fields that only a newer version knows.
#[test]
fn tpl_01_templates_and_old_keys_are_read_and_written() {
    let file = file_of(Some(3), &["tenant:*:rpm", "a*b"]).replace("\"key\"", "\"new\": 1, \"key\"");
    let document = LimitsDocument::read(file.as_bytes()).unwrap();
    let keys: Vec<_> = document.registry.iter().map(|limit| limit.limit.key.to_string()).collect();
    assert_eq!(keys, ["a*b", "tenant:*:rpm"]);
    assert_eq!(document.notes.len(), 2);
    let mut registry = read_limits_file(file_of(None, &["a", "a*b"]).as_bytes()).unwrap();
    assert!(write_limits_file(registry.iter()).starts_with('['), "an array stays an array");
    let template = document.registry.get(&LimitKey::new("tenant:*:rpm").unwrap()).unwrap();
    registry.put(template.clone());
    let written = write_limits_file(registry.iter());
    assert!(written.contains("\"version\": 2"), "{written}");
    assert_eq!(read_limits_file(written.as_bytes()).unwrap(), registry);
}

//! The documents agree with the repository: rule IDs, the tests that prove them, and links.
//!
//! A rule is a list item ``- `RES-04` …`` or a table row ``| `RES-04` | …`` of a page in `docs/reference`. A test proves a
//! rule by naming its ID at the start of its own name (`res_04_…`, in Python `test_py_02_…`) or in the comment above it (`/// RES-04`).

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected stops there")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Looks like an ID and is none.
const NOT_RULES: [&str; 2] = ["SHA-256", "SHA-512"];

/// A text file of the repository.
struct Source {
    /// Relative to the root.
    path: PathBuf,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files with one of these extensions, except what builds and package managers put there.
fn sources(folder: &str, extensions: &[&str]) -> Vec<Source> {
    let root = root();
    let mut folders = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "node_modules" {
                    folders.push(path);
                }
            } else if extensions.contains(&extension.as_str()) {
                let text = fs::read_to_string(&path).unwrap();
                found.push(Source { path: path.strip_prefix(&root).unwrap().to_owned(), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Rule IDs in a text: groups of capitals, then two or three digits or one capital, as in `RES-04` or `PRIM-SQLITE-OUTBOX-A`.
fn ids_in(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    text.split(move |c: char| !is_word(c)).filter(|word| is_id(word)).map(canonical)
}

fn is_id(word: &str) -> bool {
    let Some((families, last)) = word.rsplit_once('-') else { return false };
    let is_family = |group: &str| group.len() >= 2 && group.bytes().all(|b| b.is_ascii_uppercase());
    let is_number = matches!(last.len(), 2 | 3) && last.bytes().all(|b| b.is_ascii_digit());
    let is_letter = last.len() == 1 && last.bytes().all(|b| b.is_ascii_uppercase());
    families.split('-').all(is_family) && (is_number || is_letter) && !NOT_RULES.contains(&word)
}

/// Without the provider that a conformance scenario ran on: `PRIM-SQLITE-OUTBOX-A` is `OUTBOX-A`, `PRIM-GEN-A` is `GEN-A`.
fn canonical(id: &str) -> &str {
    let Some(rest) = id.strip_prefix("PRIM-") else { return id };
    match rest.split_once('-') {
        Some((_provider, scenario)) if scenario.contains('-') => scenario,
        _ => rest,
    }
}

/// Every rule of the reference, with where it is defined.
fn rules() -> Vec<(String, String)> {
    let mut rules = Vec::new();
    for Source { path, text } in sources("docs/reference", &["md"]) {
        for (number, line) in (1..).zip(text.lines()) {
            let marked = line.strip_prefix("- `").or_else(|| line.strip_prefix("| `"));
            if let Some((id, _)) = marked.and_then(|marked| marked.split_once('`'))
                && is_id(id)
            {
                rules.push((id.to_owned(), format!("{}:{number}", path.display())));
            }
        }
    }
    assert!(rules.len() > 100, "the reference has lost its rules: {rules:?}");
    rules
}

/// The rules that tests of a source name. A function is a test if it has such an attribute, or if its name begins with a rule:
/// the facts of conformance suites, and tests that run without the usual harness, have no attribute.
fn proofs(source: &str, rules: &BTreeSet<String>) -> Vec<String> {
    let (mut proofs, mut above) = (Vec::new(), String::new());
    for line in source.lines().map(str::trim) {
        if let Some(name) = function_name(line) {
            let named: Vec<_> = ids_of_name(name).filter(|id| rules.contains(id)).collect();
            if !named.is_empty() || above.contains("test]") || above.contains("test(") {
                proofs.extend(ids_in(&above).map(str::to_owned));
                proofs.extend(named);
            }
            above.clear();
        } else if line.starts_with("//") || line.starts_with("#[") {
            above += line;
            above.push('\n');
        } else {
            above.clear();
        }
    }
    proofs
}

/// Of Rust or Python.
fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ").or_else(|| line.split_once("def "))?;
    let rest = rest.strip_prefix("test_").unwrap_or(rest);
    let is_modifier =
        |word: &str| matches!(word, "" | "async" | "const") || word.starts_with("pub");
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    before.split(' ').all(is_modifier).then(|| &rest[..end])
}

/// `def_02_def_03_a_definition` begins with `DEF-02` and `DEF-03`.
fn ids_of_name(name: &str) -> impl Iterator<Item = String> {
    let mut words = name.split('_');
    let pairs = std::iter::from_fn(move || Some(format!("{}-{}", words.next()?, words.next()?)));
    pairs.map(|id| id.to_uppercase()).take_while(|id| is_id(id))
}

#[test]
fn every_id_in_the_repository_is_a_rule() {
    let rules: BTreeSet<_> = rules().into_iter().map(|(id, _)| id).collect();
    let mut unknown = Vec::new();
    for Source { path, text } in sources("", &["rs", "py", "md"]) {
        // This file has IDs that only look like some.
        if path.ends_with("testkit/tests/documents.rs") {
            continue;
        }
        for (number, line) in (1..).zip(text.lines()) {
            let ids = ids_in(line).filter(|id| !rules.contains(*id));
            unknown.extend(ids.map(|id| format!("{}:{number}: {id}", path.display())));
        }
    }
    assert!(unknown.is_empty(), "not defined in docs/reference:\n{}", unknown.join("\n"));
}

#[test]
fn every_rule_has_a_test() {
    let places: BTreeMap<_, _> = rules().into_iter().collect();
    let rules = places.keys().cloned().collect();
    let code = ["clients", "crates", "proof"].map(|folder| sources(folder, &["rs", "py"]));
    let proved = code.iter().flatten().flat_map(|code| proofs(&code.text, &rules));
    let proved: BTreeSet<_> = proved.collect();
    let unproved: Vec<_> = places.iter().filter(|(id, _)| !proved.contains(*id)).collect();
    assert!(unproved.is_empty(), "no test names these rules: {unproved:#?}");
}

#[test]
fn no_rule_is_defined_twice() {
    let mut places = BTreeMap::<_, Vec<_>>::new();
    for (id, place) in rules() {
        places.entry(id).or_default().push(place);
    }
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "defined more than once: {places:#?}");
}

#[test]
fn every_test_that_security_md_names_exists() {
    let document = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let rows = document.lines().filter(|line| line.starts_with("| "));
    let is_test = |name: &&str| name.matches('_').count() >= 3 && !name.contains(['.', ' ', '/']);
    let named = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(is_test);
    let named: BTreeSet<_> = named.collect();
    assert!(named.len() > 20, "{named:?}");
    let code = ["clients", "crates", "proof"].map(|folder| sources(folder, &["rs", "py"]));
    let lines = code.iter().flatten().flat_map(|code| code.text.lines());
    let functions: BTreeSet<_> = lines.filter_map(|line| function_name(line.trim())).collect();
    let missing: Vec<_> = named.difference(&functions).collect();
    assert!(missing.is_empty(), "docs/security.md names tests that do not exist: {missing:#?}");
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let mut dead = Vec::new();
    for Source { path, text } in sources("", &["md"]) {
        let folder = root().join(path.parent().unwrap());
        for (number, link) in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { root().join(&path) } else { folder.join(file) };
            let has_heading = || {
                let text = fs::read_to_string(&target).unwrap_or_default();
                text.lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| anchor(line) == heading)
            };
            if !target.exists() || !heading.is_empty() && !has_heading() {
                dead.push(format!("{}:{number}: {link}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "these links lead nowhere:\n{}", dead.join("\n"));
}

/// The targets of links and images outside of code blocks, except for URLs and Rust paths.
fn links(text: &str) -> Vec<(usize, &str)> {
    let (mut links, mut is_code) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let is_relative = |link: &&str| !link.contains("://") && !link.contains("::");
            links.extend(targets.filter(is_relative).map(|link| (number, link)));
        }
    }
    links
}

/// The anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[test]
fn ids_are_found_in_prose_and_in_scenario_names() {
    for (text, ids) in [
        ("see RES-04, and `GEN-A`.", vec!["RES-04", "GEN-A"]),
        ("`OUTBOX-001..009` PRIM-SQLITE-OUTBOX-001", vec!["OUTBOX-001", "OUTBOX-001"]),
        ("PRIM-GEN-A and PRIM-POSTGRES-GEN-A", vec!["GEN-A", "GEN-A"]),
        ("SHA-256, UTF-8, RFC-3339, RUSTSEC-2024-0436, gpt-04, a-B", vec![]),
        ("XRES-04x RES-4 RES_04 -RES-04", vec![]),
    ] {
        assert_eq!(ids_in(text).collect::<Vec<_>>(), ids, "{text}");
    }
}

#[test]
fn a_test_proves_what_its_name_and_its_comment_say() {
    let rules = ["RES-04", "DEF-02", "DEF-03", "LEASE-A"].map(str::to_owned).into();
    for (source, ids) in [
        ("#[test]\nfn res_04_repeats() {", vec!["RES-04"]),
        ("/// COM-05: once\n#[tokio::test(flavor = \"x\")]\nasync fn twice() {", vec!["COM-05"]),
        ("pub(crate) fn def_02_def_03_a_b() {", vec!["DEF-02", "DEF-03"]),
        ("/// CRD-20\npub async fn lease_a_held<F>(f: &F) {", vec!["CRD-20", "LEASE-A"]),
        ("async def test_res_04_repeats(server: Server) -> None:", vec!["RES-04"]),
        ("/// RES-01\nfn is_a_helper() {", vec![]),
        ("/// RES-01\n\n#[test]\nfn other() {", vec![]),
    ] {
        assert_eq!(proofs(source, &rules), ids, "{source}");
    }
}

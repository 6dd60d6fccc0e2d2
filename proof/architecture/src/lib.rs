//! The imports between the files of a target, and the circles among them.
//!
//! A file imports another if it names one of its items, in a `use` or in a path that begins with `crate`, `self` or `super`. A re-export
//! leads to the file that defines the item. A module and the modules around it may import each other. Paths inside the arguments of macros
//! are not seen.

#![allow(clippy::panic, reason = "a source that cannot be read fails the test that asked")]

mod modules;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

pub use modules::Modules;

/// Which files each file imports.
pub type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// The root files of all targets of the workspace.
///
/// # Panics
/// If cargo cannot describe the workspace.
pub fn target_roots(workspace: &Path) -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let output = command.current_dir(workspace).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let array = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let packages = array(&metadata["packages"]);
    let targets = packages.iter().flat_map(|package| array(&package["targets"]));
    let roots = targets.filter_map(|target| target["src_path"].as_str().map(PathBuf::from));
    roots.collect()
}

/// What is left of the imports when all files are taken out, again and again, that import none of the others or are imported by none:
/// the circles, and what lies between them.
#[must_use]
pub fn circles(mut imports: Imports) -> Imports {
    loop {
        let before = imports.len();
        let imported: BTreeSet<PathBuf> = imports.values().flatten().cloned().collect();
        imports.retain(|file, _| imported.contains(file));
        let left: BTreeSet<PathBuf> = imports.keys().cloned().collect();
        for files in imports.values_mut() {
            files.retain(|file| left.contains(file));
        }
        imports.retain(|_, files| !files.is_empty());
        if imports.len() == before {
            return imports;
        }
    }
}

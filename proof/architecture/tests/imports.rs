//! No circle of imports between files, except between a module and those around it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use architecture::{Imports, Modules, circles, target_roots};

fn relative(imports: &Imports, root: &Path) -> String {
    let name = |file: &Path| file.strip_prefix(root).unwrap_or(file).display().to_string();
    let line = |(file, files): (&std::path::PathBuf, &BTreeSet<std::path::PathBuf>)| {
        let files: Vec<String> = files.iter().map(|file| name(file)).collect();
        format!("{} imports {}\n", name(file), files.join(", "))
    };
    imports.iter().map(line).collect()
}

#[test]
fn no_files_import_each_other() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let roots = target_roots(&workspace);
    assert!(roots.len() > 50, "{roots:?}");
    let found: String = roots
        .iter()
        .map(|root| relative(&circles(Modules::read(root).imports()), &workspace))
        .collect();
    assert!(found.is_empty(), "files import each other:\n{found}");
}

/// The check can fail: it finds a circle through a re-export, a nested module and an inline path, and leaves parents and children alone.
#[test]
fn a_circle_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write("lib.rs", "mod a; mod b; mod c; pub use a::A;");
    write("a.rs", "use crate::b::inner::B; use self::child::Child; pub struct A; mod child;");
    write("a/child.rs", "use super::A; pub struct Child;");
    write("b.rs", "pub mod inner; pub struct Other;");
    write("b/inner.rs", "pub struct B; fn call() { let _ = crate::c::call(); }");
    write("c.rs", "use crate::{A, b::Other}; pub fn call() {}");
    let imports = Modules::read(&folder.path().join("lib.rs")).imports();
    assert_eq!(
        relative(&circles(imports), folder.path()),
        "a.rs imports b/inner.rs\nb/inner.rs imports c.rs\nc.rs imports a.rs\n"
    );
}

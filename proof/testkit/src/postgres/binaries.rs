//! Finding the server's programs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian and its kin install servers, each version in a folder of its own.
const DEBIAN_FOLDER: &str = "/usr/lib/postgresql";
/// What a private cluster is made and run with.
const PROGRAMS: [&str; 2] = ["initdb", "postgres"];

/// The folder with the programs of an installed server: that of the `postgres` on the `PATH`, what
/// `pg_config --bindir` says, else the newest version under `/usr/lib/postgresql`.
pub fn find_binaries() -> Option<PathBuf> {
    let candidates = on_path().into_iter().chain(by_pg_config()).chain(in_debian_folder());
    candidates.into_iter().find(|folder| has_programs(folder))
}

fn has_programs(folder: &Path) -> bool {
    PROGRAMS.iter().all(|program| folder.join(program).is_file())
}

fn on_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // A link on the PATH stands for the folder that it leads to.
    let real = |folder: PathBuf| fs::canonicalize(folder.join("postgres")).ok();
    let folders = env::split_paths(&path).filter_map(real);
    folders.filter_map(|program| program.parent().map(Path::to_owned)).collect()
}

fn by_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}

/// Newest first.
fn in_debian_folder() -> Vec<PathBuf> {
    let entries = fs::read_dir(DEBIAN_FOLDER).into_iter().flatten().filter_map(Result::ok);
    let version = |name: &str| name.split('.').map(|part| part.parse().ok()).collect();
    let mut versions: Vec<(Option<Vec<u32>>, PathBuf)> = entries
        .map(|entry| (version(&entry.file_name().to_string_lossy()), entry.path().join("bin")))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, folder)| folder).collect()
}

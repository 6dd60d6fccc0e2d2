//! Location of a server's binary.

use std::env;
use std::path::PathBuf;

/// The file that the environment variable names, else the first of `names` on the `PATH`.
pub(crate) fn find(variable: &str, names: &[&str]) -> Option<PathBuf> {
    if let Some(named) = env::var_os(variable).filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH")?;
    let on_path = |name: &&str| {
        env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    names.iter().find_map(on_path)
}

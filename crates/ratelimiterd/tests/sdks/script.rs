//! A script that uses an SDK, and what it says of its calls.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{self, Path, PathBuf};
use std::process::Command;

use testkit::{Process, run};

use crate::gateway::Gateway;
use crate::sdk::{Sdk, Used};

/// What the SDKs read from the environment, and the libraries below them.
const FOREIGN_SETTINGS: [&str; 4] = ["OPENAI_", "ANTHROPIC_", "PYTHON", "NODE_"];
const GIVEN: &str = "tests without it are ignored";

#[derive(Debug, Clone, Copy)]
pub(crate) enum Language {
    Python,
    Node,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    pub(crate) sdk: Sdk,
    pub(crate) language: Language,
}

impl Language {
    /// The environment variable that says where the SDKs are.
    const fn variable(self) -> &'static str {
        match self {
            Self::Python => "SDK_PYTHON",
            Self::Node => "SDK_NODE_MODULES",
        }
    }

    /// Where the SDKs are, if they are anywhere.
    pub(crate) fn place(self) -> Option<OsString> {
        env::var_os(self.variable()).filter(|place| !place.is_empty())
    }

    const fn extension(self) -> &'static str {
        match self {
            Self::Python => "py",
            Self::Node => "mjs",
        }
    }
}

impl Script {
    pub(crate) fn file_name(self) -> String {
        format!("{}_sdk.{}", self.sdk.name(), self.language.extension())
    }

    /// Runs the script, and compares the limits with what it says.
    pub(crate) fn check(self) {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let gateway = Gateway::start(self.sdk, folder.path()).await;
            gateway.occupy();
            let mut process = Process::start(self.command(&gateway, folder.path()));
            gateway.give_way(&mut process).await;
            let (status, output) = process.wait();
            assert!(status.success(), "{output}");
            gateway.check(&used_of(&output)).await;
        });
    }

    fn command(self, gateway: &Gateway, folder: &Path) -> Command {
        let mut command = match self.language {
            Language::Python => Command::new(self.language.place().expect(GIVEN)),
            Language::Node => Command::new("node"),
        };
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy().to_uppercase();
            let is_foreign = FOREIGN_SETTINGS.iter().any(|prefix| text.starts_with(prefix));
            if is_foreign || text.ends_with("_PROXY") {
                command.env_remove(name);
            }
        }
        let name = self.sdk.name().to_uppercase();
        command
            .arg(self.placed_in(folder))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env(format!("{name}_BASE_URL"), format!("{}{}", gateway.url(), self.sdk.path()))
            .env(format!("{name}_API_KEY"), Gateway::KEY);
        command
    }

    /// The file to run. Node looks for packages beside the script.
    fn placed_in(self, folder: &Path) -> PathBuf {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdks");
        match self.language {
            Language::Python => scripts.join(self.file_name()),
            Language::Node => {
                let packages = path::absolute(self.language.place().expect(GIVEN)).unwrap();
                symlink(packages, folder.join("node_modules")).unwrap();
                for name in ["checks.mjs", &self.file_name()] {
                    fs::copy(scripts.join(name), folder.join(name)).unwrap();
                }
                folder.join(self.file_name())
            }
        }
    }
}

/// By model, from the line `used {…}`.
fn used_of(output: &str) -> BTreeMap<String, Used> {
    let line = output.lines().find_map(|line| line.split_once("used {"));
    let (_, json) = line.unwrap_or_else(|| panic!("it does not say what it used:\n{output}"));
    serde_json::from_str(&format!("{{{json}")).unwrap()
}

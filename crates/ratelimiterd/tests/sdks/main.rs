//! The official SDKs of OpenAI and Anthropic, for Python and Node, talk to the program with a gateway and a mock provider behind it.
//! What is missing of them counts as ignored.
//!
//! A script makes the calls and prints what they used. After it, the limits must say the same.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod gateway;
mod script;
mod sdk;

use std::process::ExitCode;

use testkit::Suite;

use crate::script::{Language, Script};
use crate::sdk::Sdk;

fn main() -> ExitCode {
    let no_python = Language::Python.place().is_none().then_some(
        "SDK_PYTHON is not set; it names a Python with the packages of requirements.txt",
    );
    let no_node = Language::Node.place().is_none().then_some(
        "SDK_NODE_MODULES is not set; it names a node_modules with the packages of package.json",
    );
    let ended = [
        suite("SDKs for Python", Language::Python, no_python).run(),
        suite("SDKs for Node", Language::Node, no_node).run(),
    ];
    // Both run, whatever comes of the first.
    ended.into_iter().find(|ended| *ended != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
}

fn suite(name: &'static str, language: Language, missing: Option<&'static str>) -> Suite<()> {
    let test = |suite: Suite<()>, sdk: Sdk| {
        let script = Script { sdk, language };
        suite.test(script.file_name(), move |()| script.check())
    };
    Sdk::ALL.into_iter().fold(Suite::new("SDK", name, missing, ()), test)
}

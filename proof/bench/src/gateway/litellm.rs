//! The LiteLLM proxy, which its users install from PyPI: `pip install 'litellm[proxy]'`.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use testkit::{Process, eventually};

use super::servers::{Endpoint, MODEL};
use crate::load::one_thread;

/// Names its program.
pub(super) const PROGRAM_VARIABLE: &str = "LITELLM_BIN";

/// The program, if the environment names it.
pub(super) fn find() -> Option<PathBuf> {
    std::env::var_os(PROGRAM_VARIABLE).map(PathBuf::from)
}

/// One worker, without limits, keys or a database.
pub(super) fn start(program: &Path, provider: &Endpoint, folder: &Path) -> Endpoint {
    let api_base = format!("http://{}/v1", provider.addr);
    let deployment = json!({
        "model": format!("openai/{MODEL}"), "api_base": api_base, "api_key": "sk-bench" });
    let models = json!([{ "model_name": MODEL, "litellm_params": deployment }]);
    let config = folder.join("litellm.yaml");
    // YAML contains JSON.
    fs::write(&config, json!({ "model_list": models }).to_string()).expect("the folder is there");
    // It takes no port 0. Nobody else takes this one meanwhile: the system gives ports out in turn.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let addr = port.expect("a port is free");
    let mut command = Command::new(program);
    command.arg("--config").arg(config).args(["--num_workers", "1", "--host", "127.0.0.1"]);
    command.args(["--port", &addr.port().to_string()]).current_dir(folder);
    // The prices that it has, instead of those that it would fetch.
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_LOG", "ERROR");
    // It serves without keys, as the others do.
    command.env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
    let mut process = Process::start(command);
    // With errors alone in its log, it does not say when it is ready.
    one_thread().block_on(eventually("LiteLLM listens", async || {
        assert!(process.is_running(), "the program that the environment names has ended");
        TcpStream::connect(addr).is_ok()
    }));
    Endpoint { process, addr, path: "/v1/chat/completions" }
}

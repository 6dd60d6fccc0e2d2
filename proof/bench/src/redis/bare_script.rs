//! Redis with one Lua script that checks four keys and increments all of them or none.
//!
//! The script has fixed windows and no leases, so it does less than a limiter: it shows the cost of the round trip and of the
//! script alone.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use testkit::{PATIENCE, Process};

use crate::child::Server;
use crate::load::request::Template;
use crate::workload::{AMOUNTS, keys};

/// `ARGV` has the amounts of all keys, then their capacities, then their windows in milliseconds.
const SCRIPT: &str = "
for i, key in ipairs(KEYS) do
  local used = tonumber(redis.call('GET', key) or '0')
  if used + ARGV[i] > tonumber(ARGV[#KEYS + i]) then return 0 end
end
for i, key in ipairs(KEYS) do
  local used = redis.call('INCRBY', key, ARGV[i])
  if used == tonumber(ARGV[i]) then redis.call('PEXPIRE', key, ARGV[2 * #KEYS + i]) end
end
return 1";
/// More than a run uses, and exact in the script's floating-point numbers.
const CAPACITY: u64 = 1 << 52;
const WINDOWS_MS: [u64; 4] = [60_000, 60_000, 300_000, 86_400_000];
const PROGRAM: &str = "redis-server";
/// Another program may take the port before the server does.
const START_TRIES: usize = 3;

/// A Redis server with the script in it.
#[derive(Debug)]
pub(crate) struct Redis {
    pub(crate) server: Server,
    script: String,
}

impl Redis {
    /// Starts `redis-server`, if it is on the `PATH`.
    pub(crate) fn start(folder: &Path) -> Option<Self> {
        Command::new(PROGRAM).arg("--version").output().ok()?;
        (0..START_TRIES).find_map(|_| {
            let listener = TcpListener::bind("127.0.0.1:0").ok()?;
            let addr = listener.local_addr().ok()?;
            drop(listener);
            let process = spawn(folder, addr);
            process.wait_for_line("Ready to accept connections")?;
            let script = load_script(addr).ok()?;
            Some(Self { server: Server { process, addr }, script })
        })
    }

    /// The script for a call to each of these models, sent together.
    pub(crate) fn check(&self, models: impl IntoIterator<Item = usize>) -> Template {
        Template::of_bytes(models.into_iter().flat_map(|model| self.one_check(model)).collect())
    }

    fn one_check(&self, model: usize) -> Vec<u8> {
        let keys = keys(model).map(|key| key.to_string());
        let mut words = vec!["EVALSHA".to_owned(), self.script.clone(), keys.len().to_string()];
        let capacities = keys.each_ref().map(|_| CAPACITY);
        words.extend(keys);
        words.extend([AMOUNTS, capacities, WINDOWS_MS].as_flattened().iter().map(u64::to_string));
        command(&words)
    }
}

fn spawn(folder: &Path, addr: SocketAddr) -> Process {
    let port = addr.port().to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"]);
    command.current_dir(folder);
    Process::start(command)
}

/// Loads the script; returns its name.
fn load_script(addr: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let words = ["SCRIPT", "LOAD", SCRIPT].map(str::to_owned);
    stream.write_all(&command(&words))?;
    // `$40`, a line's end, 40 characters, a line's end.
    let mut reply = [0; 47];
    stream.read_exact(&mut reply)?;
    let name = std::str::from_utf8(&reply[5..45]).map_err(io::Error::other)?;
    Ok(name.to_owned())
}

/// A command in Redis' own form.
fn command(words: &[String]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

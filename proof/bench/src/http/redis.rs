//! Redis with one Lua script that checks four keys and increments all of them or none.
//!
//! The script has fixed windows and no leases, so it does less than a limiter: it shows the cost of the round trip and of the
//! script alone.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};

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
const START_TIMEOUT: Duration = Duration::from_secs(10);
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
        (0..START_TRIES).find_map(|_| {
            let listener = TcpListener::bind("127.0.0.1:0").ok()?;
            let addr = listener.local_addr().ok()?;
            drop(listener);
            let process = spawn(folder, addr).ok()?;
            let server = Server::listening(process, addr);
            let script = load_script(addr).ok()?;
            Some(Self { server, script })
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

fn spawn(folder: &Path, addr: SocketAddr) -> io::Result<Child> {
    let port = addr.port().to_string();
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Waits until the server takes the script; its name.
fn load_script(addr: SocketAddr) -> io::Result<String> {
    let clock = MonotonicClock::new();
    let until = clock.now().after(START_TIMEOUT);
    let mut stream = loop {
        match TcpStream::connect(addr) {
            Ok(stream) => break stream,
            Err(error) if clock.now() >= until => return Err(error),
            Err(_) => std::thread::park_timeout(Duration::from_millis(10)),
        }
    };
    stream.set_read_timeout(Some(START_TIMEOUT))?;
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

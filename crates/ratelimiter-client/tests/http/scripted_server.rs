//! A server that sends scripted responses, byte for byte.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Sends these bytes and keeps the connection.
    Bytes(String),
    /// Sends these bytes and closes the connection.
    LastBytes(String),
    /// Sends nothing and keeps the connection.
    Silence,
}

/// One request as it was received.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// The number of the connection, from 0.
    pub(crate) connection: usize,
    /// Method and path.
    pub(crate) line: String,
    /// The value of `Authorization`.
    pub(crate) authorization: Option<String>,
    pub(crate) body: String,
}

pub(crate) struct ScriptedServer {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl ScriptedServer {
    /// Answers the first request with the first reply and so on; the last reply is repeated.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = seen.clone();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, connection, replies.clone(), shared.clone()));
            }
        });
        Self { url, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    stream: TcpStream,
    connection: usize,
    replies: Vec<Reply>,
    seen: Arc<Mutex<Vec<Seen>>>,
) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream, connection).await {
        let at = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            seen.len() - 1
        };
        let reply = replies.get(at).or(replies.last()).unwrap();
        match reply {
            Reply::Bytes(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            Reply::LastBytes(bytes) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                return;
            }
            Reply::Silence => {}
        }
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>, connection: usize) -> Option<Seen> {
    let mut seen = Seen { connection, ..Seen::default() };
    let mut length = 0;
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    seen.line = line.strip_suffix(" HTTP/1.1\r\n")?.to_owned();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => seen.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    seen.body = String::from_utf8(body).unwrap();
    Some(seen)
}

/// A response with this status, these headers and this body.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

/// A JSON response.
pub(crate) fn json(status: &str, body: &str) -> Reply {
    Reply::Bytes(answer(status, "content-type: application/json\r\n", body))
}

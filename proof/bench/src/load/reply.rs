//! Minimal reply parser: finds the end of a reply and checks that it is the expected one.

use std::io;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedReply {
    /// HTTP/1.1 with status 200 and a body that begins with these bytes.
    Http { body: &'static [u8] },
    /// This many integer replies of Redis, each of them 1.
    RedisOne { count: usize },
    /// This many answers of the script of a reserve, each of them "allowed".
    RedisAllowed { count: usize },
}

/// A single reserve that was allowed.
pub(crate) const ALLOWED: ExpectedReply = ExpectedReply::Http { body: br#"{"allowed":true"# };
/// A batch whose first reserve was allowed.
pub(crate) const BATCH_ALLOWED: ExpectedReply =
    ExpectedReply::Http { body: br#"{"results":[{"allowed":true"# };
/// A batch whose first complete succeeded.
pub(crate) const BATCH_COMPLETED: ExpectedReply =
    ExpectedReply::Http { body: br#"{"results":[{"ok":true"# };

/// A call that a provider answered, with JSON.
pub(crate) const ANSWERED: ExpectedReply = ExpectedReply::Http { body: b"{" };

/// State of a reply that may not have arrived completely.
#[derive(Debug, PartialEq, Eq)]
enum ReplyState {
    Partial,
    /// Complete, with its length.
    Complete(usize),
    Unexpected,
}

impl ExpectedReply {
    fn check(self, bytes: &[u8]) -> ReplyState {
        match self {
            Self::Http { body } => check_http(bytes, body),
            Self::RedisOne { count } => check_redis(bytes, count, b":1\r\n", 0),
            Self::RedisAllowed { count } => {
                check_redis(bytes, count, b"*4\r\n$7\r\nallowed\r\n", 3)
            }
        }
    }
}

/// Reads one reply into `reply`, whose old content is discarded.
pub(crate) async fn read_one(
    stream: &mut TcpStream,
    expected: ExpectedReply,
    reply: &mut Vec<u8>,
) -> io::Result<()> {
    reply.clear();
    loop {
        if stream.read_buf(reply).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match expected.check(reply) {
            ReplyState::Partial => {}
            ReplyState::Complete(_) => return Ok(()),
            ReplyState::Unexpected => {
                return Err(io::Error::other(String::from_utf8_lossy(reply).into_owned()));
            }
        }
    }
}

fn check_http(bytes: &[u8], expected: &[u8]) -> ReplyState {
    let Some(head_end) = find(bytes, b"\r\n\r\n") else { return ReplyState::Partial };
    let head = &bytes[..head_end + 2];
    let Some(length) = content_length(head) else { return ReplyState::Unexpected };
    let (start, end) = (head_end + 4, head_end + 4 + length);
    if bytes.len() < end {
        return ReplyState::Partial;
    }
    let is_expected = head.starts_with(b"HTTP/1.1 200") && bytes[start..end].starts_with(expected);
    if is_expected { ReplyState::Complete(end) } else { ReplyState::Unexpected }
}

fn content_length(head: &[u8]) -> Option<usize> {
    let name = b"content-length: ";
    let mut lines = head.split(|&byte| byte == b'\n');
    let line = lines.find(|line| {
        line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    })?;
    std::str::from_utf8(&line[name.len()..]).ok()?.trim().parse().ok()
}

/// `count` replies, each with this `start`, which so many more lines follow.
fn check_redis(bytes: &[u8], count: usize, start: &[u8], lines: usize) -> ReplyState {
    let mut at = 0;
    for _ in 0..count {
        let rest = &bytes[at..];
        if !rest.starts_with(start) {
            let is_partial = start.starts_with(rest);
            return if is_partial { ReplyState::Partial } else { ReplyState::Unexpected };
        }
        at += start.len();
        for _ in 0..lines {
            let Some(line) = find(&bytes[at..], b"\r\n") else { return ReplyState::Partial };
            at += line + 2;
        }
    }
    ReplyState::Complete(at)
}

pub(crate) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end is found however the reply is split.
    fn check(expected: ExpectedReply, reply: &[u8]) {
        for cut in 0..reply.len() {
            assert_eq!(expected.check(&reply[..cut]), ReplyState::Partial, "cut at {cut}");
        }
        assert_eq!(expected.check(reply), ReplyState::Complete(reply.len()));
        let two = [reply, reply].concat();
        assert_eq!(
            expected.check(&two),
            ReplyState::Complete(reply.len()),
            "followed by another one"
        );
    }

    #[test]
    fn a_reply_ends_after_its_content_length() {
        check(
            ALLOWED,
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nContent-Length: 17\r\ndate: x\r\n\r\n{\"allowed\":true }",
        );
        check(ExpectedReply::RedisOne { count: 3 }, b":1\r\n:1\r\n:1\r\n");
        let allowed = b"*4\r\n$7\r\nallowed\r\n:1731\r\n:1731\r\n:1\r\n";
        check(ExpectedReply::RedisAllowed { count: 2 }, &[&allowed[..], allowed].concat());
    }

    #[test]
    fn any_other_reply_is_unexpected() {
        let of = |reply: &[u8]| ALLOWED.check(reply);
        assert_eq!(
            of(b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"allowed\":false"),
            ReplyState::Unexpected
        );
        assert_eq!(
            of(b"HTTP/1.1 503 No\r\ncontent-length: 15\r\n\r\n{\"allowed\":true"),
            ReplyState::Unexpected
        );
        assert_eq!(of(b"HTTP/1.1 200 OK\r\n\r\n"), ReplyState::Unexpected);
        assert_eq!(
            ExpectedReply::RedisOne { count: 2 }.check(b":1\r\n:0\r\n"),
            ReplyState::Unexpected
        );
        assert_eq!(
            ExpectedReply::RedisOne { count: 2 }.check(b"-NOSCRIPT"),
            ReplyState::Unexpected
        );
    }
}

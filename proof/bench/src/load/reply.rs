//! Finding the end of a reply, and seeing that it is the right one, with as little work as possible.

use std::io;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// What replies look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replies {
    /// HTTP/1.1 with a status of 200 and a body that begins like this.
    Http {
        /// The first bytes of a body that says yes.
        body: &'static [u8],
    },
    /// So many integer replies of Redis, each of which says 1.
    Redis {
        /// How many.
        count: usize,
    },
}

/// A single reserve that was allowed.
pub(crate) const ALLOWED: Replies = Replies::Http { body: br#"{"allowed":true"# };
/// A batch whose first reserve was allowed.
pub(crate) const BATCH_ALLOWED: Replies = Replies::Http { body: br#"{"results":[{"allowed":true"# };
/// A batch of completes, of which the first was right.
pub(crate) const BATCH_COMPLETED: Replies = Replies::Http { body: br#"{"results":[{"ok":true"# };

/// What is known of a reply so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// More must come.
    Part,
    /// It is as long as this.
    Whole(usize),
    /// It is not what was asked for.
    Wrong,
}

impl Replies {
    /// What the bytes that have come so far are.
    pub(crate) fn look(self, bytes: &[u8]) -> Seen {
        match self {
            Self::Http { body } => look_at_http(bytes, body),
            Self::Redis { count } => look_at_redis(bytes, count),
        }
    }
}

/// Reads one reply in the place of whatever is in `reply`.
pub(crate) async fn read_one(
    stream: &mut TcpStream,
    replies: Replies,
    reply: &mut Vec<u8>,
) -> io::Result<()> {
    reply.clear();
    loop {
        if stream.read_buf(reply).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match replies.look(reply) {
            Seen::Part => {}
            Seen::Whole(_) => return Ok(()),
            Seen::Wrong => {
                return Err(io::Error::other(String::from_utf8_lossy(reply).into_owned()));
            }
        }
    }
}

fn look_at_http(bytes: &[u8], expected: &[u8]) -> Seen {
    let Some(head_end) = find(bytes, b"\r\n\r\n") else { return Seen::Part };
    let head = &bytes[..head_end + 2];
    let Some(length) = content_length(head) else { return Seen::Wrong };
    let (start, end) = (head_end + 4, head_end + 4 + length);
    if bytes.len() < end {
        return Seen::Part;
    }
    let is_right = head.starts_with(b"HTTP/1.1 200") && bytes[start..end].starts_with(expected);
    if is_right { Seen::Whole(end) } else { Seen::Wrong }
}

fn content_length(head: &[u8]) -> Option<usize> {
    let name = b"content-length: ";
    let mut lines = head.split(|&byte| byte == b'\n');
    let line = lines.find(|line| {
        line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    })?;
    std::str::from_utf8(&line[name.len()..]).ok()?.trim().parse().ok()
}

fn look_at_redis(bytes: &[u8], count: usize) -> Seen {
    const YES: &[u8] = b":1\r\n";
    let whole = YES.len() * count;
    let came = &bytes[..bytes.len().min(whole)];
    if !came.chunks(YES.len()).all(|reply| YES.starts_with(reply)) {
        return Seen::Wrong;
    }
    if bytes.len() < whole { Seen::Part } else { Seen::Whole(whole) }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However a reply is cut into pieces, its end is found where it is.
    fn check(replies: Replies, reply: &[u8]) {
        for cut in 0..reply.len() {
            assert_eq!(replies.look(&reply[..cut]), Seen::Part, "cut at {cut}");
        }
        assert_eq!(replies.look(reply), Seen::Whole(reply.len()));
        let two = [reply, reply].concat();
        assert_eq!(replies.look(&two), Seen::Whole(reply.len()), "another one behind it");
    }

    #[test]
    fn a_reply_ends_where_it_says() {
        check(
            ALLOWED,
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nContent-Length: 17\r\ndate: x\r\n\r\n{\"allowed\":true }",
        );
        check(Replies::Redis { count: 3 }, b":1\r\n:1\r\n:1\r\n");
    }

    #[test]
    fn another_answer_is_wrong() {
        let of = |reply: &[u8]| ALLOWED.look(reply);
        assert_eq!(
            of(b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"allowed\":false"),
            Seen::Wrong
        );
        assert_eq!(
            of(b"HTTP/1.1 503 No\r\ncontent-length: 15\r\n\r\n{\"allowed\":true"),
            Seen::Wrong
        );
        assert_eq!(of(b"HTTP/1.1 200 OK\r\n\r\n"), Seen::Wrong);
        assert_eq!(Replies::Redis { count: 2 }.look(b":1\r\n:0\r\n"), Seen::Wrong);
        assert_eq!(Replies::Redis { count: 2 }.look(b"-NOSCRIPT"), Seen::Wrong);
    }
}

//! One command over a connection of its own, in Redis' protocol.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use crate::PATIENCE;

/// Sends a command; returns the reply as text.
pub(super) fn ask(addr: SocketAddr, words: &[&str]) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&packed(words))?;
    read_reply(&mut BufReader::new(stream))
}

/// A command in Redis' own form.
pub fn packed<T: AsRef<str>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words.iter().map(AsRef::as_ref) {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}

/// An error keeps its `-`, the elements of an array are lines, and what is missing is `(nil)`.
fn read_reply(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
    match kind {
        "-" => Ok(line.to_owned()),
        "+" | ":" => Ok(rest.to_owned()),
        "$" | "*" if rest == "-1" => Ok("(nil)".to_owned()),
        "$" => read_bulk(reader, length(rest)?),
        "*" => {
            let elements = (0..length(rest)?).map(|_| read_reply(reader));
            Ok(elements.collect::<io::Result<Vec<_>>>()?.join("\n"))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, line)),
    }
}

fn length(digits: &str) -> io::Result<usize> {
    digits.parse().map_err(io::Error::other)
}

fn read_bulk(reader: &mut impl BufRead, length: usize) -> io::Result<String> {
    let mut bytes = vec![0; length + "\r\n".len()];
    reader.read_exact(&mut bytes)?;
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_is_text() {
        let replies = [
            ("+OK\r\n", "OK"),
            ("-ERR unknown command\r\n", "-ERR unknown command"),
            (":-7\r\n", "-7"),
            ("$0\r\n\r\n", ""),
            ("$5\r\na\r\nbc\r\n", "a\r\nbc"),
            ("$-1\r\n", "(nil)"),
            ("*-1\r\n", "(nil)"),
            ("*0\r\n", ""),
            ("*3\r\n$1\r\na\r\n*1\r\n:1\r\n$-1\r\n", "a\n1\n(nil)"),
        ];
        for (bytes, text) in replies {
            assert_eq!(read_reply(&mut bytes.as_bytes()).unwrap(), text, "{bytes:?}");
        }
    }

    #[test]
    fn a_reply_that_ends_early_is_an_error() {
        for bytes in ["", "+OK", "\r\n", "$5\r\nabc\r\n", "*2\r\n:1\r\n", "?\r\n"] {
            read_reply(&mut bytes.as_bytes()).unwrap_err();
        }
    }
}

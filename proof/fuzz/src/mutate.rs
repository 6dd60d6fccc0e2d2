//! Mutation of inputs, by token or by byte range.

/// The most bytes of an input. The bounds on bodies and files reject larger ones before they are parsed.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;

/// Inputs that parsers often mishandle: ends of ranges, syntax characters, special code points.
const TOKENS: [&str; 44] = [
    "0",
    "-1",
    "1",
    "-0",
    "1.0",
    "1e400",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "0x10",
    "null",
    "true",
    "\"\"",
    "{}",
    "[]",
    "[[[[[[[[",
    "{\"a\":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "\u{feff}",
    "\u{2028}",
    "é",
    "🦀",
    " ",
    "\t",
    "\n",
    "\r\n",
    ",",
    ":",
    "*/0",
    "59-0",
    "*/99",
    "31 2",
    "&a [*a]",
    "<<: *a",
    "!!binary",
    "|",
    "---",
    "%",
];

/// An input of the corpus with up to four changes.
pub(crate) fn mutate(random: &mut fastrand::Rng, corpus: &[&str]) -> Vec<u8> {
    let mut bytes = choice(random, corpus).as_bytes().to_vec();
    for _ in 0..random.usize(1..=4) {
        change(random, &mut bytes, corpus);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn change(random: &mut fastrand::Rng, bytes: &mut Vec<u8>, corpus: &[&str]) {
    let (from, until) = match random.bool() {
        true => token(random, bytes),
        false => range(random, bytes.len()),
    };
    match random.u8(..9) {
        0 => drop(bytes.drain(from..until)),
        1 => drop(bytes.splice(from..until, choice(random, &TOKENS).bytes())),
        2 => drop(bytes.splice(from..from, choice(random, &TOKENS).bytes())),
        3 => {
            let again = bytes[from..until].to_vec();
            drop(bytes.splice(from..from, again));
        }
        // Many repetitions: long lists, long names, deep nesting.
        4 => {
            let again = bytes[from..until].repeat(random.usize(2..300));
            drop(bytes.splice(from..until, again.into_iter().take(INPUT_BYTES_MAX)));
        }
        // Overwrites a part with another part of the same input.
        5 => {
            let (other_from, other_until) = token(random, bytes);
            let other = bytes[other_from..other_until].to_vec();
            drop(bytes.splice(from..until, other));
        }
        // Overwrites a part with one of another input.
        6 => {
            let other = choice(random, corpus).as_bytes();
            let (other_from, other_until) = range(random, other.len());
            drop(bytes.splice(from..until, other[other_from..other_until].to_vec()));
        }
        7 => {
            for byte in &mut bytes[from..until] {
                *byte = random.u8(..);
            }
        }
        _ => {
            if let Some(byte) = bytes.get_mut(from) {
                *byte ^= 1 << random.u8(..8);
            }
        }
    }
}

fn choice<'a>(random: &mut fastrand::Rng, of: &[&'a str]) -> &'a str {
    of[random.usize(..of.len())]
}

/// Any range of up to 32 bytes.
fn range(random: &mut fastrand::Rng, length: usize) -> (usize, usize) {
    let from = random.usize(..=length);
    let until = from + random.usize(..=(length - from).min(32));
    (from, until)
}

/// A word, a number, or a single other character.
fn token(random: &mut fastrand::Rng, bytes: &[u8]) -> (usize, usize) {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let at = random.usize(..=bytes.len());
    let Some(&byte) = bytes.get(at) else { return (at, at) };
    if !is_word(byte) {
        return (at, at + 1);
    }
    let before = bytes[..at].iter().rev().take_while(|&&byte| is_word(byte)).count();
    let after = bytes[at..].iter().take_while(|&&byte| is_word(byte)).count();
    (at - before, at + after)
}

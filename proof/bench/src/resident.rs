//! The memory of a process.

use std::fs;

/// Its resident set, in bytes.
pub(crate) fn resident_bytes(process: u32) -> f64 {
    let statm = fs::read_to_string(format!("/proc/{process}/statm"));
    let statm = statm.expect("it is running, on Linux");
    let pages = statm.split(' ').nth(1).expect("the second field");
    pages.parse::<f64>().expect("a number of pages") * 4_096.0
}

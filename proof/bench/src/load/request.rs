//! Requests as bytes, made before anything is measured; only the lease IDs are new each time.

use std::io::Write;

use ratelimiter::LeaseId;
use ratelimiter::clock::Timestamp;

use crate::workload::{AMOUNTS, keys};

/// How many characters a lease ID has.
const LEASE_CHARACTERS: usize = ratelimiter::LEASE_ID_CHARACTERS;
/// Stands for a lease ID in a template. No other text of a request has it.
const PLACEHOLDER: &str = "@@@@@@@@@@@@@@@@@@@@@@@@@@";

/// A request whose lease IDs are filled in when it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// Where the lease IDs are.
    leases: Vec<usize>,
}

impl Template {
    fn new(text: &str) -> Self {
        let leases = text.match_indices(PLACEHOLDER).map(|(at, _)| at).collect();
        Self { bytes: text.as_bytes().to_vec(), leases }
    }

    /// `POST /v1/reserve` for a call to a model.
    pub(crate) fn reserve(model: usize) -> Self {
        Self::new(&post("/v1/reserve", &reserve_body(model)))
    }

    /// `POST /v1/reserve/batch` for calls to these models.
    pub(crate) fn reserve_batch(models: impl IntoIterator<Item = usize>) -> Self {
        let bodies: Vec<_> = models.into_iter().map(reserve_body).collect();
        let body = format!(r#"{{"requests":[{}]}}"#, bodies.join(","));
        Self::new(&post("/v1/reserve/batch", &body))
    }

    /// Anything without a lease.
    pub(crate) const fn of_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes, leases: Vec::new() }
    }

    /// Writes the request in the place of whatever is in `buffer`, with leases of this moment, which are handed to `made`.
    pub(crate) fn fill(&self, now: Timestamp, buffer: &mut Vec<u8>, mut made: impl FnMut(LeaseId)) {
        buffer.clear();
        buffer.extend_from_slice(&self.bytes);
        for &at in &self.leases {
            let random = fastrand::u128(..) >> 48;
            let lease = LeaseId::from_u128(u128::from(now.unix_ms()) << 80 | random);
            let mut place = &mut buffer[at..at + LEASE_CHARACTERS];
            write!(place, "{lease}").expect("a lease ID has as many characters as its place");
            made(lease);
        }
    }
}

/// `POST /v1/complete/batch` for leases of which it is not known what they used.
pub(crate) fn complete_batch(leases: &[LeaseId]) -> Vec<u8> {
    let bodies: Vec<_> =
        leases.iter().map(|lease| format!(r#"{{"lease_id":"{lease}"}}"#)).collect();
    let body = format!(r#"{{"requests":[{}]}}"#, bodies.join(","));
    post("/v1/complete/batch", &body).into_bytes()
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn reserve_body(model: usize) -> String {
    let need = |(key, amount)| format!(r#"{{"key":"{key}","amount":{amount}}}"#);
    let needs: Vec<_> = keys(model).into_iter().zip(AMOUNTS).map(need).collect();
    format!(r#"{{"lease_id":"{PLACEHOLDER}","requirements":[{}]}}"#, needs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lease_of_a_batch_is_new_and_of_the_moment() {
        let template = Template::reserve_batch([3, 5, 3]);
        let now = Timestamp::from_unix_ms(1_736_660_000_123);
        let mut buffer = b"what was here before".to_vec();
        let mut made = Vec::new();
        template.fill(now, &mut buffer, |lease| made.push(lease));
        let text = String::from_utf8(buffer).unwrap();
        let leases: Vec<LeaseId> = text
            .match_indices(r#""lease_id":""#)
            .map(|(at, found)| text[at + found.len()..][..LEASE_CHARACTERS].parse().unwrap())
            .collect();
        assert_eq!(leases, made);
        assert_eq!(leases.len(), 3);
        assert!(leases.iter().all(|lease| lease.timestamp_ms() == 1_736_660_000_123));
        assert!(leases[0] != leases[1] && leases[1] != leases[2] && leases[0] != leases[2]);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        let requests =
            ratelimiter_wire::read_batch::<ratelimiter_wire::ReserveBody>(body.as_bytes());
        assert!(requests.unwrap().iter().all(Result::is_ok), "our server reads it");
    }
}

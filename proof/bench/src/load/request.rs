//! Prepared requests; only the lease IDs are new each time.

use std::io::Write;

use ratelimiter::clock::Timestamp;
use ratelimiter::{LEASE_ID_CHARACTERS, LeaseId};

use crate::workload::{AMOUNTS, keys};

/// Stands for a lease ID in a template.
const PLACEHOLDER: &str = "@@@@@@@@@@@@@@@@@@@@@@@@@@";

/// A request whose lease IDs are filled in when it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// Offsets of the lease IDs.
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

    /// A request with these lease IDs, each of which will be replaced.
    pub(crate) fn with_leases(text: &str, leases: &[LeaseId]) -> Self {
        let replace = |text: String, lease: &LeaseId| text.replace(&lease.to_string(), PLACEHOLDER);
        Self::new(&leases.iter().fold(text.to_owned(), replace))
    }

    /// A request without lease IDs.
    pub(crate) const fn of_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes, leases: Vec::new() }
    }

    /// Writes the request into `buffer`, whose old content is discarded, with new lease IDs, each passed to `made`.
    pub(crate) fn fill(&self, now: Timestamp, buffer: &mut Vec<u8>, mut made: impl FnMut(LeaseId)) {
        buffer.clear();
        buffer.extend_from_slice(&self.bytes);
        for &at in &self.leases {
            let random = fastrand::u128(..) >> 48;
            let lease = LeaseId::from_u128(u128::from(now.unix_ms()) << 80 | random);
            let mut place = &mut buffer[at..at + LEASE_ID_CHARACTERS];
            write!(place, "{lease}").expect("a lease ID is as long as the placeholder");
            made(lease);
        }
    }
}

/// `POST /v1/complete/batch` without actuals.
pub(crate) fn complete_batch(leases: &[LeaseId]) -> Vec<u8> {
    let bodies: Vec<_> =
        leases.iter().map(|lease| format!(r#"{{"lease_id":"{lease}"}}"#)).collect();
    let body = format!(r#"{{"requests":[{}]}}"#, bodies.join(","));
    post("/v1/complete/batch", &body).into_bytes()
}

pub(crate) fn post(path: &str, body: &str) -> String {
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
    fn every_lease_of_a_batch_is_new_and_has_the_current_time() {
        let template = Template::reserve_batch([3, 5, 3]);
        let now = Timestamp::from_unix_ms(1_736_660_000_123);
        let mut buffer = b"old content".to_vec();
        let mut made = Vec::new();
        template.fill(now, &mut buffer, |lease| made.push(lease));
        let text = String::from_utf8(buffer).unwrap();
        let leases: Vec<LeaseId> = text
            .match_indices(r#""lease_id":""#)
            .map(|(at, found)| text[at + found.len()..][..LEASE_ID_CHARACTERS].parse().unwrap())
            .collect();
        assert_eq!(leases, made);
        assert_eq!(leases.len(), 3);
        assert!(leases.iter().all(|lease| lease.timestamp_ms() == 1_736_660_000_123));
        assert!(leases[0] != leases[1] && leases[1] != leases[2] && leases[0] != leases[2]);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        let requests =
            ratelimiter_wire::read_batch::<ratelimiter_wire::ReserveBody>(body.as_bytes());
        assert!(requests.unwrap().iter().all(Result::is_ok), "the server parses it");
    }
}

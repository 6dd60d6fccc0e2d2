//! The policy alone: no runtime, no limiter, and time as a number.

mod answers;
mod gates;
mod going_first;
mod scans;
mod turns;

use expect_test::Expect;

use super::*;

const STARVING_AFTER: u32 = 3;

/// Plays a script on an admission, and shows the result of each line.
///
/// - `add NAME queue tenant key=amount…` adds a job
/// - `next` lets jobs ask as long as they may
/// - `allow NAME`, `deny NAME key… for SECONDS`, `silence NAME`, `refuse NAME` answers one that asks
/// - `end NAME key…` ends one that runs, which frees these limits
/// - `cancel NAME` removes one that waits
/// - `scarce` shows the limits that hold jobs up
///
/// A line may begin with a time, as `5s`.
#[derive(Debug)]
struct Script {
    admission: Admission<String>,
    names: BTreeMap<String, WaiterId>,
    now: Timestamp,
    shown: String,
}

const START: Timestamp = Timestamp::from_unix_ms(1_736_660_000_000);

#[expect(clippy::needless_pass_by_value, reason = "so that `expect!` stands in the call")]
fn check(workers_max: usize, script: &str, expected: Expect) {
    let mut played = Script::new(workers_max);
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let led_to = played.play(line);
        let led_to = if led_to.is_empty() { String::new() } else { format!(" -> {led_to}") };
        played.shown.push_str(&format!("{line}{led_to}\n"));
    }
    expected.assert_eq(&played.shown);
}

impl Script {
    fn new(workers_max: usize) -> Script {
        Script {
            admission: Admission::new(workers_max, STARVING_AFTER),
            names: BTreeMap::new(),
            now: START,
            shown: String::new(),
        }
    }

    fn play(&mut self, line: &str) -> String {
        let mut words: Vec<_> = line.split_whitespace().collect();
        if let Some(seconds) = words[0].strip_suffix('s').and_then(|text| text.parse().ok()) {
            self.now = START.after(Duration::from_secs_f64(seconds));
            words.remove(0);
        }
        match words[..] {
            ["add", name, queue, tenant, ..] => self.add(name, queue, tenant, &words[4..]),
            ["next"] => return self.next(),
            ["scarce"] => return self.scarce(),
            ["allow", name] => drop(self.admission.allowed(self.names[name])),
            ["deny", name, ..] => self.deny(name, &words[2..]),
            ["silence", name] => {
                let lease = LeaseId::from_u128(7);
                let job = self.names[name];
                self.admission.unanswered(self.now, job, lease, Duration::ZERO, 0.0);
            }
            ["refuse", name] => drop(self.admission.refused(self.names[name])),
            ["end", _, ..] => {
                self.admission.ended();
                let keys: Vec<_> =
                    words[2..].iter().map(|key| LimitKey::new(key).unwrap()).collect();
                self.admission.released(&keys);
            }
            ["cancel", name] => {
                let removed = self.admission.remove(self.names[name]);
                assert!(matches!(removed, Removed::Waiting(_)), "{removed:?}");
            }
            _ => panic!("no such line: {line}"),
        }
        String::new()
    }

    fn add(&mut self, name: &str, queue: &str, tenant: &str, needs: &[&str]) {
        let pairs = needs.iter().map(|need| {
            let (key, amount) = need.split_once('=').unwrap();
            (LimitKey::new(key).unwrap(), amount.parse().unwrap())
        });
        let requirements = Requirements::of(pairs).unwrap();
        let number = self.admission.add(queue, tenant, &requirements, name.to_owned());
        self.names.insert(name.to_owned(), number);
    }

    fn deny(&mut self, name: &str, words: &[&str]) {
        let (seconds, words) = words.split_last().unwrap();
        let wait = Duration::from_secs_f64(seconds.parse().unwrap());
        let keys = words.iter().filter(|word| **word != "for");
        let keys: Vec<_> = keys.map(|key| LimitKey::new(key).unwrap()).collect();
        self.admission.denied(self.now, self.names[name], &keys, wait);
    }

    fn scarce(&self) -> String {
        let scarce = self.admission.scarce();
        assert_eq!(self.admission.has_scarce(), !scarce.is_empty());
        scarce.iter().map(|(key, amount)| format!("{key}={amount}")).collect::<Vec<_>>().join(", ")
    }

    fn next(&mut self) -> String {
        let mut asking = Vec::new();
        while let Some(id) = self.admission.next(self.now) {
            let Waiter { work: name, attempts, unanswered_lease, .. } =
                self.admission.get(id).unwrap();
            let again = if unanswered_lease.is_some() { " same lease" } else { "" };
            asking.push(format!("{name}#{attempts}{again}"));
        }
        if asking.is_empty() {
            asking.push("nobody".to_owned());
        }
        let wake = match self.admission.wake_at() {
            Some(at) => format!("then at {}s", at.since(START).as_secs_f64()),
            None => "then on an event".to_owned(),
        };
        format!("{}; {wake}", asking.join(", "))
    }
}

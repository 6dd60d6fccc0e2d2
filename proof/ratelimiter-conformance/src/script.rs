//! The language of the facts: that of [`testkit::script`] without times, with what every limiter must answer. One call and its
//! answer per line, or several between semicolons.
//!
//! ```text
//! limit rate rolling 60s 10            a definition, with `deny` at the end for that overage, `shadow` for that mode
//! limit budget calendar day@06:30/Europe/Sofia 10
//! limit slots concurrency 60s 5 -> decreasing to 5
//! defined rate rolling 60s 10          the whole definition in force
//! delete rate
//! undefined rate
//! reserve A rate=1 slots=2             a lease and its requirements
//! reserve B rate=9 -> denied rate      the keys without room; `denied` alone for any of them
//! reserve C slots=1 -> decreasing slots, retry 10s
//! reserve D slots=1 wait 60s           waits for room
//! renew A 1 rate=5                     a lease, the number of the renew, and the new amounts
//! complete A rate=3                    a lease and its actuals
//! used rate=3 slots=0                  also `available`, `debt`, `uncovered`, `capacity`
//! status slots -> decreasing to 5
//! resets budget -> in 1600s            when a calendar limit resets
//! limit tenant:a*b rolling 60s 1 -> refused    a key that no new limit can have
//! instances tenant:*:rate -> tenant:a:rate     the limits in use that were made from a template
//! leases rate -> A rate=1 slots=2, B rate=1    the open leases of a key, with all their amounts
//! leases rate older 5s -> A rate=1 slots=2     and those of at least this age
//! release A                            a lease; `unknown` if it is not open
//! forgive rate -> 7                    a debt; `unknown rate` without such a limit
//! pass 1s                              what expires by then may not be visible yet
//! outlast 1s                           what expires by then is visibly gone
//! outlast reconciled 1s                as well if it was reconciled
//! wait slots                           until a decrease that is possible is applied
//! lifetime W 3s                        of what is reserved next
//! within W: used rate=3                checked only if the answer came within that lifetime
//! restart                              go on at the server's replacement
//! move                                 go on at another server; the first keeps running
//! ```
//!
//! `MOST` is the largest capacity that the limiter counts, `MOST+1` one more.
//!
//! Without an arrow a limit is active, a reserve allowed, and a complete or delete ok. A reserve
//! may also be `allowed as before` (with the time of its first answer), allowed but
//! `shadow denied KEY`, `paused KEY`, denied because there are `too many TEMPLATE`,
//! `unknown KEY`, `exceeds KEY`, a `conflict`, or its lease `ended`; a renew may also be `renewed as before`
//! (as the last renew of the lease), `superseded` or `invalid KEY`; a complete may be
//! `invalid KEY`. The lines between `batch` and `end` are one batch of reserves or completes. Those between `together` and `end`
//! are reserves, completes and limits that are under way at the same time, in any order.

use std::time::Duration;

use futures::future::join_all;
use ratelimiter::{
    Actuals, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, Denial,
    DenialReason, ForgiveError, HeldAmount, KeyPattern, LeasePage, Limit, LimitKey, NewAmounts,
    OpenLease, Page, ReleaseError, RenewError, RenewNumber, RenewRequest, Renewal, Requirements,
    ReserveError, ReserveRequest, Wait,
};
use testkit::script::{amount_of, duration_of, limit_of, status_text};

use crate::context::TestContext;
use crate::fixture::Capabilities;

/// One line.
#[derive(Clone, Copy)]
struct Statement<'a> {
    line: &'a str,
    verb: &'a str,
    rest: &'a str,
    expected: &'a str,
    /// The lifetimes within which the answer is checked.
    lifetimes: &'a str,
}

/// An answer that is checked when others have arrived.
enum Unchecked {
    Reserved(Result<Decision, ReserveError>),
    Text(String),
}

impl<'a> Statement<'a> {
    fn parse(line: &'a str) -> Self {
        let (lifetimes, statement) = match line.strip_prefix("within ") {
            Some(rest) => rest.split_once(": ").expect("lifetimes, then a statement"),
            None => ("", line),
        };
        let (command, expected) = match statement.split_once(" ->") {
            Some((command, expected)) => (command, Some(expected.trim_start())),
            None => (statement, None),
        };
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let expected = expected.unwrap_or(match verb {
            "limit" => "active",
            "reserve" => "allowed",
            "renew" => "renewed",
            "complete" | "delete" | "release" => "ok",
            "used" | "available" | "debt" | "uncovered" | "capacity" => rest,
            _ => "",
        });
        Self { line, verb, rest, expected, lifetimes }
    }
}

impl TestContext {
    /// Runs a script, and checks every answer.
    pub(crate) async fn run(&mut self, script: &str) {
        let most = self.capabilities.capacity_max;
        let script = script.replace("MOST+1", &(most + 1).to_string());
        let script = script.replace("MOST", &most.to_string());
        let lines = script.lines().flat_map(|line| line.split("; "));
        let mut lines = lines.map(str::trim).filter(|line| !line.is_empty());
        while let Some(line) = lines.next() {
            if line == "batch" {
                let batch = lines.by_ref().take_while(|line| *line != "end");
                self.run_batch(&batch.map(Statement::parse).collect::<Vec<_>>()).await;
            } else if line == "together" {
                let calls = lines.by_ref().take_while(|line| *line != "end");
                self.run_together(&calls.map(Statement::parse).collect::<Vec<_>>()).await;
            } else {
                let statement = Statement::parse(line);
                let answer = self.answer(statement).await;
                self.check(statement, &answer);
            }
        }
    }

    fn check(&self, statement: Statement<'_>, answer: &str) {
        let Statement { line, expected, lifetimes, .. } = statement;
        if lifetimes.split_whitespace().all(|lifetime| self.is_within(lifetime)) {
            assert_eq!(answer, expected, "{}: {line}", self.fact);
        }
    }

    async fn answer(&mut self, statement: Statement<'_>) -> String {
        let Statement { verb, rest, .. } = statement;
        match verb {
            "limit" => return self.define_text(rest).await,
            "defined" => {
                let limit = self.limit(rest);
                let found = self.state(self.name(&limit.key)).await.limit;
                assert_eq!(found, limit, "{}", self.fact);
            }
            "undefined" => assert_eq!(self.state_if_defined(rest).await, None, "{}", self.fact),
            "delete" => match self.world.delete(&self.key(rest)).await {
                Ok(()) => return "ok".to_owned(),
                Err(DeleteError::UnknownKey { key }) => {
                    return format!("unknown {}", self.name(&key));
                }
                Err(other) => return format!("{other:?}"),
            },
            "reserve" => {
                let result = self.world.reserve(&self.reserve_request(rest)).await;
                return self.reserve_text(statement, result);
            }
            "renew" => {
                let (lease, request) = self.renew_request(rest);
                let result = self.world.renew(&request).await;
                return self.renew_text(lease, statement.expected, result);
            }
            "complete" => {
                let result = self.world.complete(&self.complete_request(rest)).await;
                return self.complete_text(result);
            }
            "instances" => return self.instances_text(rest).await,
            "leases" => return self.leases_text(rest).await,
            "release" => match self.world.release(self.lease(rest)).await {
                Ok(()) => return "ok".to_owned(),
                Err(ReleaseError::UnknownLease { .. }) => return "unknown".to_owned(),
                Err(other) => return format!("{other:?}"),
            },
            "forgive" => match self.world.forgive(&self.key(rest)).await {
                Ok(forgiven) => return forgiven.to_string(),
                Err(ForgiveError::UnknownKey { key }) => {
                    return format!("unknown {}", self.name(&key));
                }
                Err(other) => return format!("{other:?}"),
            },
            "used" | "available" | "debt" | "uncovered" | "capacity" => {
                return self.amounts(verb, rest).await;
            }
            "status" => return status_text(self.state(rest).await.status),
            "resets" => return self.until_reset(rest).await,
            "pass" => self.pass(duration(rest)).await,
            "outlast" => {
                let Capabilities { expiry_lag, reconciled_expiry_lag, .. } = self.capabilities;
                let (reconciled, lag) = match rest.strip_prefix("reconciled ") {
                    Some(time) => (time, expiry_lag + reconciled_expiry_lag),
                    None => (rest, expiry_lag),
                };
                self.pass(duration(reconciled) + lag).await;
            }
            "wait" => self.wait_for_decrease(rest).await,
            "lifetime" => {
                let (name, time) = rest.split_once(' ').expect("a name and a duration");
                self.begin_lifetime(name, duration(time));
            }
            "restart" => self.world.restart().await,
            "move" => self.world.move_to_another_server().await,
            other => unreachable!("no such statement: {other}"),
        }
        String::new()
    }

    async fn define_text(&self, definition: &str) -> String {
        match self.world.define(self.limit(definition)).await {
            Ok(status) => status_text(status),
            Err(DefineError::KindConflict { key, is }) => format!("{} is {is}", self.name(&key)),
            Err(DefineError::InvalidKey { .. } | DefineError::Refused(_)) => "refused".to_owned(),
            Err(other) => format!("{other:?}"),
        }
    }

    async fn run_batch(&mut self, batch: &[Statement<'_>]) {
        let is_of = |verb| batch.iter().all(|statement| statement.verb == verb);
        if is_of("reserve") {
            let requests: Vec<_> =
                batch.iter().map(|statement| self.reserve_request(statement.rest)).collect();
            let results = self.world.reserve_batch(&requests).await;
            assert_eq!(results.len(), requests.len(), "one answer per request");
            for (statement, result) in batch.iter().zip(results) {
                let answer = self.reserve_text(*statement, result);
                self.check(*statement, &answer);
            }
        } else {
            assert!(is_of("complete"), "a batch has reserves or completes");
            let requests: Vec<_> =
                batch.iter().map(|statement| self.complete_request(statement.rest)).collect();
            let results = self.world.complete_batch(&requests).await;
            assert_eq!(results.len(), requests.len(), "one answer per request");
            for (statement, result) in batch.iter().zip(results) {
                self.check(*statement, &self.complete_text(result));
            }
        }
    }

    async fn run_together(&mut self, calls: &[Statement<'_>]) {
        let answers = join_all(calls.iter().map(|call| self.unchecked(*call))).await;
        for (call, answer) in calls.iter().zip(answers) {
            let text = match answer {
                Unchecked::Reserved(result) => self.reserve_text(*call, result),
                Unchecked::Text(text) => text,
            };
            self.check(*call, &text);
        }
    }

    /// The answer to a call, while others are under way.
    async fn unchecked(&self, Statement { verb, rest, .. }: Statement<'_>) -> Unchecked {
        match verb {
            "reserve" => Unchecked::Reserved(self.world.reserve(&self.reserve_request(rest)).await),
            "complete" => {
                let result = self.world.complete(&self.complete_request(rest)).await;
                Unchecked::Text(self.complete_text(result))
            }
            "limit" => Unchecked::Text(self.define_text(rest).await),
            _ => unreachable!("{verb} is not possible together with others"),
        }
    }

    /// `rate rolling 60s 10`, with `deny` at the end for that overage.
    pub(crate) fn limit(&self, text: &str) -> Limit {
        let limit = limit_of(text).expect("facts define valid limits");
        Limit { key: self.key(limit.key.as_str()), ..limit }
    }

    fn lease_and_pairs<'a>(&self, text: &'a str) -> (&'a str, Vec<(LimitKey, u64)>) {
        let (lease, pairs) = text.split_once(' ').unwrap_or((text, ""));
        let pair = |pair: &str| {
            let (name, amount) = pair.rsplit_once('=').expect("a key and an amount");
            (self.key(name), amount_of(amount).expect("facts use valid amounts"))
        };
        (lease, pairs.split_whitespace().map(pair).collect())
    }

    /// `A rate=1 slots=2`, with `wait 60s` at the end for one that waits.
    pub(crate) fn reserve_request(&self, text: &str) -> ReserveRequest {
        let (text, wait) = match text.split_once(" wait ") {
            Some((text, wait)) => (text, Some(Wait::new(duration(wait), ""))),
            None => (text, None),
        };
        let (lease, pairs) = self.lease_and_pairs(text);
        let requirements = Requirements::of(pairs).expect("facts use valid requirements");
        let wait = wait.transpose().expect("facts wait for a minute at most");
        ReserveRequest { wait, ..ReserveRequest::new(self.lease(lease), requirements) }
    }

    fn renew_request<'a>(&self, text: &'a str) -> (&'a str, RenewRequest) {
        let (lease, rest) = text.split_once(' ').expect("a lease and a number");
        let (number, amounts) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = RenewNumber::new(number.parse().expect("a number"));
        let (_, pairs) = self.lease_and_pairs(&format!("{lease} {amounts}"));
        let amounts = NewAmounts::of(pairs).expect("facts use valid amounts");
        let number = number.expect("facts use valid numbers");
        (lease, RenewRequest::new(self.lease(lease), number, amounts))
    }

    pub(crate) fn complete_request(&self, text: &str) -> CompleteRequest {
        let (lease, pairs) = self.lease_and_pairs(text);
        let actuals = Actuals::of(pairs).expect("facts use valid actuals");
        CompleteRequest::new(self.lease(lease), actuals)
    }

    fn reserve_text(
        &mut self,
        statement: Statement<'_>,
        result: Result<Decision, ReserveError>,
    ) -> String {
        match result {
            Ok(Decision::Allowed { reserved_at, shadow_denied }) => {
                let lease = statement.rest.split_once(' ').map_or("", |(lease, _)| lease);
                let first = self.allowed_at.get(lease).copied();
                self.allowed_at.entry(lease.to_owned()).or_insert(reserved_at);
                if !shadow_denied.is_empty() {
                    let names: Vec<&str> = shadow_denied.iter().map(|key| self.name(key)).collect();
                    return format!("shadow denied {}", names.join(" "));
                }
                match first {
                    _ if statement.expected != "allowed as before" => "allowed".to_owned(),
                    Some(first) if first == reserved_at => "allowed as before".to_owned(),
                    first => format!("allowed at {reserved_at:?}, before at {first:?}"),
                }
            }
            Ok(Decision::Denied(denial)) => self.denial_text(statement.expected, &denial),
            Err(ReserveError::UnknownKey { key }) => format!("unknown {}", self.name(&key)),
            Err(ReserveError::AmountExceedsCapacity { key }) => {
                format!("exceeds {}", self.name(&key))
            }
            Err(ReserveError::LeaseConflict) => "conflict".to_owned(),
            Err(ReserveError::LeaseEnded) => "ended".to_owned(),
            Err(other) => format!("{other:?}"),
        }
    }

    fn renew_text(
        &mut self,
        lease: &str,
        expected: &str,
        result: Result<Renewal, RenewError>,
    ) -> String {
        match result {
            Ok(Renewal::Renewed { renewed_at, lapses_at, shadow_denied }) => {
                let times = (renewed_at, lapses_at);
                let before = self.renewed_at.insert(lease.to_owned(), times);
                if !shadow_denied.is_empty() {
                    let names: Vec<&str> = shadow_denied.iter().map(|key| self.name(key)).collect();
                    return format!("shadow denied {}", names.join(" "));
                }
                match before {
                    _ if expected != "renewed as before" => "renewed".to_owned(),
                    Some(before) if before == times => "renewed as before".to_owned(),
                    before => format!("renewed {times:?}, before {before:?}"),
                }
            }
            Ok(Renewal::Denied(denial)) => self.denial_text(expected, &denial),
            Err(RenewError::LeaseEnded) => "ended".to_owned(),
            Err(RenewError::Superseded) => "superseded".to_owned(),
            Err(RenewError::InvalidAmount { key }) => format!("invalid {}", self.name(&key)),
            Err(RenewError::UnknownKey { key }) => format!("unknown {}", self.name(&key)),
            Err(RenewError::AmountExceedsCapacity { key }) => {
                format!("exceeds {}", self.name(&key))
            }
            Err(other) => format!("{other:?}"),
        }
    }

    /// A denial in the words of `expected`, where it agrees: the keys may be left out there, and
    /// so may the hint, which is a time or a range of times.
    fn denial_text(&self, expected: &str, denial: &Denial) -> String {
        let (reason, hint) = match expected.split_once(", retry ") {
            Some((reason, hint)) => (reason, Some(hint)),
            None => (expected, None),
        };
        let denied = match &denial.reason {
            DenialReason::NoRoom { keys } if keys.is_empty() => "denied without a key".to_owned(),
            DenialReason::NoRoom { .. } if denial.retry_after_ms() == 0 => {
                "denied without a hint".to_owned()
            }
            DenialReason::NoRoom { keys } => self.no_room_text(reason, keys),
            DenialReason::Paused { key } => format!("paused {}", self.name(key)),
            DenialReason::Decreasing { key } => format!("decreasing {}", self.name(key)),
            DenialReason::TooManyInstances { template } => {
                format!("too many {}", self.name(template))
            }
            DenialReason::TooManyWaiters { .. } => "too many waiters".to_owned(),
        };
        let retry_after = denial.retry_after;
        match hint {
            None => denied,
            Some(hint) if is_in(hint, retry_after) => format!("{denied}, retry {hint}"),
            Some(_) => format!("{denied}, retry {retry_after:?}"),
        }
    }

    /// A limiter that names only one key without room may name any of them.
    fn no_room_text(&self, expected: &str, keys: &[LimitKey]) -> String {
        let names: Vec<&str> = keys.iter().map(|key| self.name(key)).collect();
        let may_name_one = self.capabilities.names_every_denied_key.is_err();
        let is_expected = match expected.strip_prefix("denied ") {
            Some(expected) => {
                let expected: Vec<&str> = expected.split(' ').collect();
                may_name_one && names.iter().all(|name| expected.contains(name))
            }
            None => expected == "denied",
        };
        if is_expected { expected.to_owned() } else { format!("denied {}", names.join(" ")) }
    }

    fn complete_text(&self, result: Result<(), CompleteError>) -> String {
        match result {
            Ok(()) => "ok".to_owned(),
            Err(CompleteError::InvalidActual { key }) => format!("invalid {}", self.name(&key)),
            Err(other) => format!("{other:?}"),
        }
    }

    /// `tenant:a:rate tenant:b:rate`
    async fn instances_text(&self, template: &str) -> String {
        let template = KeyPattern::new(self.key(template)).expect("facts use valid templates");
        let page = Page { template: Some(template), ..Page::default() };
        let states = self.world.states(&page).await.expect("a working limiter lists its limits");
        states.iter().map(|state| self.name(&state.limit.key)).collect::<Vec<_>>().join(" ")
    }

    /// `A rate=1 slots=2, B rate=1`
    async fn leases_text(&self, text: &str) -> String {
        let (name, older_than) = match text.split_once(" older ") {
            Some((name, age)) => (name, duration(age)),
            None => (text, Duration::ZERO),
        };
        let page = LeasePage { key: Some(self.key(name)), older_than, ..LeasePage::default() };
        let open = |open: &OpenLease| {
            let amount = |held: &HeldAmount| format!(" {}={}", self.name(&held.key), held.amount);
            let amounts = open.amounts.iter().map(amount).collect::<String>();
            format!("{}{amounts}", self.lease_name(open.lease))
        };
        self.leases(&page).await.iter().map(open).collect::<Vec<_>>().join(", ")
    }

    async fn amounts(&self, verb: &str, expected: &str) -> String {
        let mut found = Vec::new();
        for pair in expected.split_whitespace() {
            let (name, _) = pair.rsplit_once('=').expect("a key and an amount");
            let state = self.state(name).await;
            let amount = match verb {
                "used" => state.usage.used.into(),
                "available" => state.usage.available.into(),
                "debt" => state.usage.debt,
                "uncovered" => state.usage.uncovered,
                _ => u128::from(state.limit.capacity.get()),
            };
            found.push(format!("{name}={amount}"));
        }
        found.join(" ")
    }
}

/// `10s`, or `50ms..75ms` with both ends.
fn is_in(hint: &str, found: Duration) -> bool {
    let (from, until) = hint.split_once("..").unwrap_or((hint, hint));
    (duration(from)..=duration(until)).contains(&found)
}

fn duration(text: &str) -> Duration {
    duration_of(text).expect("facts use valid durations")
}

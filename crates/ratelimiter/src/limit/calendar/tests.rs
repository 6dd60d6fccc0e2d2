//! Resets, against the clocks of the time zones.

use jiff::civil::Date;

use super::*;
use crate::{LEASE_AGE_SECONDS_MAX, WINDOW_SECONDS_MAX};

const MINUTE_NANOS: u64 = 60_000_000_000;

fn zone(name: &str) -> TimeZone {
    TimeZone::new(name).unwrap()
}

fn time(text: &str) -> ResetTime {
    text.parse().unwrap()
}

/// Parses `2026-03-29T00:00:00Z`.
fn moment(text: &str) -> Timestamp {
    let moment: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_unix_nanos(u64::try_from(moment.as_nanosecond()).unwrap())
}

fn check(schedule: ResetSchedule, now: &str, expected: &[&str]) {
    let mut now = moment(now);
    for expected in expected {
        now = schedule.next_reset(now);
        assert_eq!(to_jiff(now).to_string(), *expected, "{schedule}");
    }
}

/// CAL-01
#[test]
fn cal_01_every_period_resets_at_its_time() {
    let (at, sofia) = (time("06:30"), zone("Europe/Sofia"));
    check(
        ResetSchedule::Hourly { minute: at.minute() },
        "2026-01-01T10:29:59.999Z",
        &["2026-01-01T10:30:00Z", "2026-01-01T11:30:00Z"],
    );
    check(
        ResetSchedule::Daily { at, zone: sofia },
        "2026-01-01T04:29:59Z",
        &["2026-01-01T04:30:00Z", "2026-01-02T04:30:00Z"],
    );
    check(
        ResetSchedule::Weekly { weekday: Weekday::Sunday, at, zone: sofia },
        "2026-01-01T00:00:00Z",
        &["2026-01-04T04:30:00Z", "2026-01-11T04:30:00Z"],
    );
    check(
        ResetSchedule::Monthly { day: ResetDay::new(28).unwrap(), at, zone: sofia },
        "2026-01-28T04:30:00Z",
        &["2026-02-28T04:30:00Z", "2026-03-28T04:30:00Z", "2026-04-28T03:30:00Z"],
    );
}

/// CAL-02: in Sofia the clocks skip 03:00 to 04:00 on 29 March 2026, and show it twice on 25 October.
#[test]
fn cal_02_a_skipped_time_is_the_end_of_the_gap_and_a_repeated_one_the_first() {
    let schedule = ResetSchedule::Daily { at: time("03:30"), zone: zone("Europe/Sofia") };
    check(
        schedule,
        "2026-03-28T00:00:00Z",
        &["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
    );
    check(
        schedule,
        "2026-10-24T00:00:00Z",
        &["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
    );
}

/// CAL-02: Samoa had no 30 December 2011.
#[test]
fn cal_02_a_day_that_does_not_exist_has_no_reset_of_its_own() {
    let schedule = ResetSchedule::Daily { at: time("12:00"), zone: zone("Pacific/Apia") };
    check(
        schedule,
        "2011-12-29T00:00:00Z",
        &["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"],
    );
}

/// The resets at these times on all days in a span of minutes, found without any rule: a reset is the first moment at which the clocks
/// show its time or a later one.
fn resets_by_the_clocks<const TIMES: usize>(
    zone: TimeZone,
    times: [ResetTime; TIMES],
    minutes: std::ops::Range<u64>,
) -> [Vec<(Date, Timestamp)>; TIMES] {
    let moment = |minute: u64| Timestamp::from_unix_nanos(minute * MINUTE_NANOS);
    let local = |minute: u64| zone.0.to_datetime(to_jiff(moment(minute)));
    let first = local(minutes.start).date().yesterday().unwrap();
    let mut due = times.map(|at| at.on(first));
    let mut resets = times.map(|_| Vec::new());
    for minute in minutes {
        let now = local(minute);
        for (due, resets) in due.iter_mut().zip(&mut resets) {
            while now >= *due {
                resets.push((due.date(), moment(minute)));
                *due = due.checked_add(1.day()).unwrap();
            }
        }
    }
    resets
}

/// CAL-02: 400 days in 12 zones with 5 reset times each, for days, weeks and months.
#[test]
fn cal_02_every_reset_is_where_the_clocks_say() {
    const ZONES: [&str; 12] = [
        "UTC",
        "Europe/Sofia",
        "Europe/London",
        "America/New_York",
        "America/Los_Angeles",
        "America/Sao_Paulo",
        "America/St_Johns",
        "Africa/Casablanca",
        "Asia/Kolkata",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "Pacific/Chatham",
    ];
    let start = moment("2026-01-01T00:00:00Z").unix_nanos() / MINUTE_NANOS;
    let minutes = start..start + 400 * 24 * 60;
    let times = ["00:00", "02:00", "02:30", "03:15", "23:59"].map(time);
    let weekday = Weekday::Wednesday;
    for zone in ZONES.map(zone) {
        let by_the_clocks = resets_by_the_clocks(zone, times, minutes.clone());
        for (at, resets) in times.into_iter().zip(by_the_clocks) {
            let day = ResetDay::new(28).unwrap();
            for schedule in [
                ResetSchedule::Daily { at, zone },
                ResetSchedule::Weekly { weekday, at, zone },
                ResetSchedule::Monthly { day, at, zone },
            ] {
                let is_due = |date: Date| match schedule {
                    ResetSchedule::Weekly { .. } => date.weekday() == weekday.to_jiff(),
                    ResetSchedule::Monthly { .. } => date.day() == 28,
                    ResetSchedule::Hourly { .. } | ResetSchedule::Daily { .. } => true,
                };
                // The first may have been due before.
                let mut now = Timestamp::from_unix_nanos((start + 2 * 24 * 60) * MINUTE_NANOS);
                let due = resets.iter().filter(|(date, reset)| is_due(*date) && *reset > now);
                let due: Vec<_> = due.map(|(_, reset)| *reset).collect();
                assert!(due.len() >= 13, "{schedule}");
                for expected in due {
                    now = schedule.next_reset(now);
                    assert_eq!(now, expected, "{schedule}");
                }
            }
        }
    }
}

/// CAL-02, OPS-01: clocks that go back make a month longer than 31 days.
#[test]
fn cal_02_no_month_is_as_long_as_the_bound_of_a_leases_age() {
    let mut longest_seconds = 0;
    for name in TimeZoneDatabase::bundled().available() {
        let Ok(zone) = TimeZone::new(name.as_str()) else { continue };
        let schedule =
            ResetSchedule::Monthly { day: ResetDay::FIRST, at: ResetTime::MIDNIGHT, zone };
        let mut now = schedule.next_reset(moment("2026-01-15T00:00:00Z"));
        for _ in 0..24 {
            let next = schedule.next_reset(now);
            longest_seconds = longest_seconds.max(next.since(now).as_secs());
            now = next;
        }
    }
    let days_31 = u64::from(WINDOW_SECONDS_MAX);
    assert!(longest_seconds > days_31, "{longest_seconds}");
    assert!(longest_seconds < LEASE_AGE_SECONDS_MAX.into(), "{longest_seconds}");
}

/// CAL-01
#[test]
fn cal_01_an_unknown_zone_a_time_of_25_00_and_day_31_are_refused() {
    for name in [
        "Europe/Atlantis",
        "",
        "../etc/passwd",
        "Local",
        "localtime",
        "+02:00",
        "Factory",
        "factory",
        "Etc/Unknown",
    ] {
        let error = TimeZone::new(name).unwrap_err();
        assert_eq!(error, LimitError::UnknownTimeZone { name: name.to_owned() });
    }
    assert_eq!(zone("europe/sofia"), zone("Europe/Sofia"));
    assert_eq!((TimeZone::utc(), TimeZone::utc().name()), (zone("utc"), "UTC"));
    for text in ["25:00", "24:00", "12:60", "6:30", "06:3", "0630", "", "+6:30", "06:30:00"] {
        let error = text.parse::<ResetTime>().unwrap_err();
        assert_eq!(error, LimitError::ResetTime { text: text.to_owned() });
    }
    assert_eq!(time("06:05").to_string(), "06:05");
    for day in [0, 29, 31, u64::MAX] {
        assert_eq!(ResetDay::new(day), Err(LimitError::ResetDayOutOfRange { day }));
    }
    assert_eq!(ResetDay::new(28).unwrap().get(), 28);
}

//! Cron schedules in a time zone.
//!
//! The line is matched on civil time and the zone converts civil times to timestamps.
//! [`CronSchedule`] explains what happens when the clocks change.

mod ticks;

use std::fmt;
use std::sync::OnceLock;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use thiserror::Error;

/// The most bytes a cron line has.
pub const CRON_LINE_BYTES_MAX: usize = 255;

/// When a job is due: a cron line of 5 fields (minute, hour, day of month, month, day of week) or 6
/// (seconds first), in a time zone.
///
/// Fields take `*`, numbers, names (`MON`, `JAN`), ranges, steps and lists, and `L`, `W` and `#` as
/// [croner](https://docs.rs/croner) does. Days follow the tradition: if both day fields are
/// restricted, a day matches if either does.
///
/// **When the clocks change.** A line whose hour field is `*` or `*/n` follows elapsed time: it
/// skips the hour that does not exist and runs through both passes of the hour that exists twice.
/// Every other line names times of day, and each of them runs **once on either night**:
/// - a time that does not exist runs at the first moment after the gap (02:30 in Berlin on 29 March
///   2026 runs at 03:00 summer time, 01:00 UTC); several such times are one run;
/// - a time that exists twice runs on its first pass (02:30 in Berlin on 25 October 2026 runs at
///   02:30 summer time, 00:30 UTC).
///
/// ```
/// use coordination::CronSchedule;
///
/// let nightly = CronSchedule::parse("30 2 * * *", "Europe/Berlin").unwrap();
/// let tick = nightly.next_after("2026-03-28T12:00:00Z".parse().unwrap()).unwrap();
/// assert_eq!(tick.to_string(), "2026-03-29T01:00:00Z");
///
/// let error = CronSchedule::parse("30 24 * * *", "Europe/Berlin").unwrap_err();
/// assert!(error.to_string().starts_with("invalid_cron_field: hour \"24\""));
/// ```
#[derive(Clone)]
pub struct CronSchedule {
    line: String,
    zone_name: String,
    cron: Cron,
    zone: TimeZone,
    follows_elapsed_time: bool,
}

/// The fields of a cron line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CronField {
    /// 0–59, only in lines of 6 fields.
    Second,
    /// 0–59.
    Minute,
    /// 0–23.
    Hour,
    /// 1–31.
    DayOfMonth,
    /// 1–12 or `JAN`–`DEC`.
    Month,
    /// 0–7 or `SUN`–`SAT`; 0 and 7 are Sunday.
    DayOfWeek,
}

/// Why a schedule was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum InvalidSchedule {
    /// Not 5 and not 6 fields.
    #[error("cron_field_count: {count} fields, 5 or 6 are expected")]
    FieldCount { count: usize },
    /// One field is invalid.
    #[error("invalid_cron_field: {field} {text:?}: {reason}")]
    Field { field: CronField, text: String, reason: String },
    /// Each field is valid, but the combination is not.
    #[error("invalid_cron_line: {line:?}: {reason}")]
    Line { line: String, reason: String },
    /// The line is longer than [`CRON_LINE_BYTES_MAX`].
    #[error("cron_line_too_long: {bytes} bytes, at most {CRON_LINE_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    /// The line names a day that no year has, such as 30 February.
    #[error(
        "cron_never_due: {line:?} matches no day of month \"{day_of_month}\" in month \"{month}\""
    )]
    NeverDue { line: String, day_of_month: String, month: String },
    /// No such time zone.
    #[error("unknown_time_zone: {name:?} is not an IANA time zone")]
    UnknownTimeZone { name: String },
}

const SIX_FIELDS: [CronField; 6] = [
    CronField::Second,
    CronField::Minute,
    CronField::Hour,
    CronField::DayOfMonth,
    CronField::Month,
    CronField::DayOfWeek,
];

impl CronSchedule {
    /// A schedule by a cron line and the name of an IANA time zone, such as `UTC` or
    /// `Europe/Berlin`.
    ///
    /// # Errors
    /// [`InvalidSchedule`], which names the field that is wrong.
    pub fn parse(line: &str, zone_name: &str) -> Result<CronSchedule, InvalidSchedule> {
        if line.len() > CRON_LINE_BYTES_MAX {
            return Err(InvalidSchedule::TooLong { bytes: line.len() });
        }
        let texts: Vec<&str> = line.split_ascii_whitespace().collect();
        let fields = match texts.len() {
            5 => &SIX_FIELDS[1..],
            6 => &SIX_FIELDS[..],
            count => return Err(InvalidSchedule::FieldCount { count }),
        };
        for (field, text) in fields.iter().zip(&texts) {
            check_field(*field, text)?;
        }
        let zone = zone_named(zone_name)?;
        let line = texts.join(" ");
        let cron = match parser().parse(&line) {
            Ok(cron) => cron,
            Err(error) => {
                return Err(InvalidSchedule::Line { line, reason: error.to_string() });
            }
        };
        let hour = texts[texts.len() - 4];
        let schedule = CronSchedule {
            zone_name: zone.iana_name().unwrap_or(zone_name).to_owned(),
            follows_elapsed_time: hour == "*" || hour.starts_with("*/"),
            line,
            cron,
            zone,
        };
        if !schedule.is_ever_due() {
            let (day_of_month, month) = (texts[texts.len() - 3], texts[texts.len() - 2]);
            return Err(InvalidSchedule::NeverDue {
                line: schedule.line,
                day_of_month: day_of_month.to_owned(),
                month: month.to_owned(),
            });
        }
        Ok(schedule)
    }

    /// The cron line, with single spaces.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The time zone's IANA name.
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }
}

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build()
}

/// Parses one field with `*` in all others, so that an error is about this field.
fn check_field(field: CronField, text: &str) -> Result<(), InvalidSchedule> {
    let refused = |reason: String| InvalidSchedule::Field { field, text: text.to_owned(), reason };
    if text.split(',').any(str::is_empty) {
        return Err(refused("an entry of the list is empty".to_owned()));
    }
    let line = SIX_FIELDS.map(|each| if each == field { text } else { "*" }).join(" ");
    match parser().parse(&line) {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// The zone in the bundled database, so that all processes of one build agree on every tick.
fn zone_named(name: &str) -> Result<TimeZone, InvalidSchedule> {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    let zones = ZONES.get_or_init(TimeZoneDatabase::bundled);
    zones.get(name).map_err(|_| InvalidSchedule::UnknownTimeZone { name: name.to_owned() })
}

impl PartialEq for CronSchedule {
    fn eq(&self, other: &CronSchedule) -> bool {
        self.line == other.line && self.zone_name == other.zone_name
    }
}

impl Eq for CronSchedule {}

impl fmt::Display for CronSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.line, self.zone_name)
    }
}

impl fmt::Debug for CronSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CronSchedule({self})")
    }
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CronField::Second => "second",
            CronField::Minute => "minute",
            CronField::Hour => "hour",
            CronField::DayOfMonth => "day of month",
            CronField::Month => "month",
            CronField::DayOfWeek => "day of week",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        CronSchedule::parse(line, "UTC").unwrap_err().to_string()
    }

    /// PRIM-GEN-D: an invalid line is refused and names the field.
    #[test]
    fn an_invalid_line_names_the_field() {
        for (line, start) in [
            ("60 * * * *", "invalid_cron_field: minute \"60\""),
            ("* 24 * * *", "invalid_cron_field: hour \"24\""),
            ("* * 0 * *", "invalid_cron_field: day of month \"0\""),
            ("* * * 13 *", "invalid_cron_field: month \"13\""),
            ("* * * FOO *", "invalid_cron_field: month \"FOO\""),
            ("* * * * 8", "invalid_cron_field: day of week \"8\""),
            ("99 * * * * *", "invalid_cron_field: second \"99\""),
            ("*/0 * * * *", "invalid_cron_field: minute \"*/0\""),
            ("5-2 * * * *", "invalid_cron_field: minute \"5-2\""),
            ("1,,2 * * * *", "invalid_cron_field: minute \"1,,2\""),
            ("* * * *", "cron_field_count: 4"),
            ("* * * * * * *", "cron_field_count: 7"),
            ("", "cron_field_count: 0"),
            ("@daily", "cron_field_count: 1"),
            ("0 0 30 2 *", "cron_never_due: \"0 0 30 2 *\""),
            ("0 0 31 4,6 *", "cron_never_due"),
        ] {
            assert!(refusal(line).starts_with(start), "{line}: {}", refusal(line));
        }
    }

    #[test]
    fn a_line_at_the_bound_is_read_and_one_byte_more_is_not() {
        let minutes = |bytes: usize| {
            let mut line = "1,".repeat(bytes);
            line.truncate(bytes - "1 * * * *".len());
            line + "1 * * * *"
        };
        // 255 - 9 is even, so the list ends in a comma before the last 1.
        assert!(CronSchedule::parse(&minutes(CRON_LINE_BYTES_MAX), "UTC").is_ok());
        assert_eq!(
            CronSchedule::parse(&minutes(CRON_LINE_BYTES_MAX + 1), "UTC"),
            Err(InvalidSchedule::TooLong { bytes: 256 })
        );
    }

    /// PRIM-GEN-D: a time zone that does not exist is refused.
    #[test]
    fn a_zone_that_does_not_exist_is_refused() {
        for name in ["Mars/Olympus", "", "CEST"] {
            assert_eq!(
                CronSchedule::parse("* * * * *", name),
                Err(InvalidSchedule::UnknownTimeZone { name: name.to_owned() })
            );
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic() {
        let alphabet: Vec<char> = "0123456789*/,-#LW?+ \tMONFRIjan@\u{e9}".chars().collect();
        let mut random = fastrand::Rng::with_seed(7);
        let mut accepted = 0;
        for _ in 0..3000 {
            let field = |random: &mut fastrand::Rng| -> String {
                (0..random.usize(1..4)).map(|_| alphabet[random.usize(..alphabet.len())]).collect()
            };
            let texts: Vec<String> = (0..5)
                .map(|_| if random.bool() { "*".to_owned() } else { field(&mut random) })
                .collect();
            accepted += u32::from(CronSchedule::parse(&texts.join(" "), "UTC").is_ok());
        }
        assert!(accepted > 100, "the texts are not all nonsense: {accepted}");
    }

    #[test]
    fn a_schedule_is_shown_in_one_way() {
        let schedule = CronSchedule::parse("  30  2 * *   MON ", "europe/berlin").unwrap();
        assert_eq!(schedule.to_string(), "30 2 * * MON Europe/Berlin");
        assert_eq!(schedule.line(), "30 2 * * MON");
        assert_eq!(schedule.zone_name(), "Europe/Berlin");
    }
}

//! The JSON form of a limit's definition.

use ratelimiter::{
    Capacity, HoldTimeout, Limit, LimitError, LimitKey, LimitKind, LimitMode, Note, Overage,
    ResetDay, ResetSchedule, ResetTime, TimeZone, Weekday, Window,
};
use serde::{Deserialize, Serialize};

use crate::decode::{Body, Refusal};
use crate::field;
use crate::strict::strict;

/// The definition of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with key, kind and capacity")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionBody {
    /// Identifies the limit: 1 to 256 bytes without white space or control characters.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 256, pattern = r"^[^\s\u0000-\u001f\u007f-\u009f]+$", example = "global:llm:openai:gpt-4o:rpm"))]
    pub key: LimitKey,
    /// How its units are returned.
    pub kind: KindBody,
    /// The most units held at a time: 0 to 2^63-1. 0 pauses the limit: reserves are denied until it is raised.
    #[serde(deserialize_with = "field::capacity", serialize_with = "field::write_capacity")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, maximum = 9_223_372_036_854_775_807_i64))]
    pub capacity: Capacity,
    /// Rolling: how long a reservation counts, 1 to 2 678 400. Otherwise 0.
    // The range depends on the kind, and is checked with it.
    #[serde(default, deserialize_with = "field::whole_number")]
    #[cfg_attr(feature = "openapi", schema(maximum = 2_678_400))]
    pub window_seconds: u64,
    /// Concurrency: when a hold that was not completed is released, 1 to 86 400. Otherwise 0.
    #[serde(default, deserialize_with = "field::whole_number")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400))]
    pub timeout_seconds: u64,
    /// Calendar: when its units return: at the end of every hour, day, week or month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<PeriodBody>,
    /// Calendar: whose clocks count, as an IANA name; `UTC` by default. Not for `hour`, which is in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = "Europe/Sofia"))]
    pub time_zone: Option<String>,
    /// Calendar: when a period ends, as `HH:MM`; `00:00` by default. Only the minute counts for `hour`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$", example = "06:00")
    )]
    pub resets_at: Option<String>,
    /// Calendar with the period `week`: the day on which it ends; `monday` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weekday: Option<WeekdayBody>,
    /// Calendar with the period `month`: the day on which it ends, 1 to 28; 1 by default.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "field::optional_number::<_, 1, { field::RESET_DAY_MAX }>"
    )]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 28))]
    pub day: Option<u64>,
    /// What is counted, for display. At most 1 KiB.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
    pub unit: String,
    /// What the limit is for, for display. At most 1 KiB.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
    pub description: String,
    /// What happens to usage above the reservation when the limit is full.
    #[serde(default)]
    pub overage: OverageBody,
    /// Whether the limit denies, or only counts.
    #[serde(default, skip_serializing_if = "ModeBody::is_enforce")]
    pub mode: ModeBody,
}

/// How the units of a limit are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", remote = "Self")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum KindBody {
    /// When the window has passed.
    Rolling,
    /// When the lease completes, or after the timeout.
    Concurrency,
    /// At the end of the hour, day, week or month.
    Calendar,
}

/// When the units of a calendar limit return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", remote = "Self")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PeriodBody {
    /// Every hour.
    Hour,
    /// Every day.
    Day,
    /// Every week.
    Week,
    /// Every month.
    Month,
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", remote = "Self")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum WeekdayBody {
    /// Monday.
    Monday,
    /// Tuesday.
    Tuesday,
    /// Wednesday.
    Wednesday,
    /// Thursday.
    Thursday,
    /// Friday.
    Friday,
    /// Saturday.
    Saturday,
    /// Sunday.
    Sunday,
}

/// Whether a limit denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", remote = "Self")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ModeBody {
    /// It admits up to its capacity.
    #[default]
    Enforce,
    /// It counts and never denies; an answer names it if it would have denied.
    Shadow,
}

/// What happens to usage above the reservation when the limit is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", remote = "Self")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OverageBody {
    /// It is added to the key's debt.
    #[default]
    Debt,
    /// It only counts in a metric.
    Deny,
}

/// What a limit admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", remote = "Self")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum StatusBody {
    /// Up to its capacity.
    #[default]
    Active,
    /// Nothing: its capacity was set to 0.
    Paused,
    /// Nothing for now: a lower capacity applies when enough units have been returned.
    Decreasing,
}

strict!(ObjectOnly: DefinitionBody);
strict!(StringOnly: KindBody PeriodBody WeekdayBody ModeBody OverageBody StatusBody);

/// Joins a definition with further fields to a body, and splits it again. Both name every field, so
/// that a new one does not compile until it is handled.
macro_rules! definition_with {
    ($body:ident: $($field:ident)+, $($more:ident: $type:ty),+) => {
        impl $body {
            fn joined(definition: DefinitionBody, ($($more),+): ($($type),+)) -> Self {
                let DefinitionBody { $($field),+ } = definition;
                Self { $($field,)+ $($more),+ }
            }

            fn split(self) -> (DefinitionBody, $($type),+) {
                let Self { $($field,)+ $($more),+ } = self;
                (DefinitionBody { $($field),+ }, $($more),+)
            }
        }
    };
}

pub(crate) use definition_with;

impl Body for DefinitionBody {
    type Request = Limit;

    /// DEF-02, DEF-03
    fn into_request(self) -> Result<Limit, Refusal> {
        let Self {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            period,
            time_zone,
            resets_at,
            weekday,
            day,
            unit,
            description,
            overage,
            mode,
        } = self;
        let calendar = CalendarFields { period, time_zone, resets_at, weekday, day };
        let kind = match kind {
            KindBody::Rolling => {
                let window =
                    Window::from_seconds(window_seconds).map_err(of_field("window_seconds"))?;
                must_be_zero("timeout_seconds", timeout_seconds, "rolling")?;
                calendar.must_be_absent("a rolling limit", &[])?;
                LimitKind::Rolling { window }
            }
            KindBody::Concurrency => {
                let timeout = HoldTimeout::from_seconds(timeout_seconds)
                    .map_err(of_field("timeout_seconds"))?;
                must_be_zero("window_seconds", window_seconds, "concurrency")?;
                calendar.must_be_absent("a concurrency limit", &[])?;
                LimitKind::Concurrency { timeout }
            }
            KindBody::Calendar => {
                must_be_zero("window_seconds", window_seconds, "calendar")?;
                must_be_zero("timeout_seconds", timeout_seconds, "calendar")?;
                LimitKind::Calendar { resets: calendar.into_schedule()? }
            }
        };
        Ok(Limit {
            key,
            kind,
            capacity,
            overage: overage.into(),
            mode: mode.into(),
            unit: Note::new(unit).map_err(of_field("unit"))?,
            description: Note::new(description).map_err(of_field("description"))?,
        })
    }
}

fn of_field(field: &'static str) -> impl Fn(LimitError) -> Refusal {
    move |error| Refusal::of_field(field, error.to_string())
}

/// The fields that only a calendar limit has.
#[derive(Default)]
struct CalendarFields {
    period: Option<PeriodBody>,
    time_zone: Option<String>,
    resets_at: Option<String>,
    weekday: Option<WeekdayBody>,
    day: Option<u64>,
}

impl CalendarFields {
    /// CAL-01
    fn into_schedule(self) -> Result<ResetSchedule, Refusal> {
        let Some(period) = self.period else {
            let message = "a calendar limit needs a period: hour, day, week or month";
            return Err(Refusal::of_field("period", message));
        };
        let (subject, allowed): (_, &[&str]) = match period {
            PeriodBody::Hour => ("an hourly limit, which resets in UTC,", &["period", "resets_at"]),
            PeriodBody::Day => ("a daily limit", &["period", "resets_at", "time_zone"]),
            PeriodBody::Week => {
                ("a weekly limit", &["period", "resets_at", "time_zone", "weekday"])
            }
            PeriodBody::Month => ("a monthly limit", &["period", "resets_at", "time_zone", "day"]),
        };
        self.must_be_absent(subject, allowed)?;
        let Self { period: _, time_zone, resets_at, weekday, day } = self;
        let at = resets_at.map_or(Ok(ResetTime::MIDNIGHT), |text| text.parse());
        let at = at.map_err(of_field("resets_at"))?;
        let zone = time_zone.map_or_else(|| Ok(TimeZone::utc()), |name| TimeZone::new(&name));
        let zone = zone.map_err(of_field("time_zone"))?;
        Ok(match period {
            PeriodBody::Hour => ResetSchedule::Hourly { minute: at.minute() },
            PeriodBody::Day => ResetSchedule::Daily { at, zone },
            PeriodBody::Week => {
                let weekday = weekday.map_or_else(Weekday::default, Weekday::from);
                ResetSchedule::Weekly { weekday, at, zone }
            }
            PeriodBody::Month => {
                let day = day.map_or(Ok(ResetDay::FIRST), ResetDay::new);
                ResetSchedule::Monthly { day: day.map_err(of_field("day"))?, at, zone }
            }
        })
    }

    /// Refuses all fields that are not `allowed`.
    fn must_be_absent(&self, subject: &str, allowed: &[&str]) -> Result<(), Refusal> {
        let Self { period, time_zone, resets_at, weekday, day } = self;
        let present = [
            ("period", period.is_some()),
            ("time_zone", time_zone.is_some()),
            ("resets_at", resets_at.is_some()),
            ("weekday", weekday.is_some()),
            ("day", day.is_some()),
        ];
        match present.iter().find(|(name, is_there)| *is_there && !allowed.contains(name)) {
            Some((field, _)) => {
                Err(Refusal::of_field(field, format!("{subject} has no {field}; leave it out")))
            }
            None => Ok(()),
        }
    }
}

impl From<ResetSchedule> for CalendarFields {
    fn from(resets: ResetSchedule) -> Self {
        let of = |period, at: ResetTime, zone: Option<TimeZone>| Self {
            period: Some(period),
            resets_at: Some(at.to_string()),
            time_zone: zone.map(|zone| zone.name().to_owned()),
            ..Self::default()
        };
        match resets {
            ResetSchedule::Hourly { minute } => of(PeriodBody::Hour, minute.into(), None),
            ResetSchedule::Daily { at, zone } => of(PeriodBody::Day, at, Some(zone)),
            ResetSchedule::Weekly { weekday, at, zone } => {
                Self { weekday: Some(weekday.into()), ..of(PeriodBody::Week, at, Some(zone)) }
            }
            ResetSchedule::Monthly { day, at, zone } => {
                Self { day: Some(day.get().into()), ..of(PeriodBody::Month, at, Some(zone)) }
            }
        }
    }
}

fn must_be_zero(field: &'static str, seconds: u64, kind: &'static str) -> Result<(), Refusal> {
    if seconds == 0 {
        return Ok(());
    }
    let message =
        format!("a {kind} limit has no {field}; leave it out, or give 0 instead of {seconds}");
    Err(Refusal::of_field(field, message))
}

impl From<&Limit> for DefinitionBody {
    fn from(limit: &Limit) -> Self {
        let Limit { key, kind, capacity, overage, mode, unit, description } = limit;
        let (kind, window_seconds, timeout_seconds, calendar) = match *kind {
            LimitKind::Rolling { window } => (KindBody::Rolling, window.seconds(), 0, None),
            LimitKind::Concurrency { timeout } => {
                (KindBody::Concurrency, 0, timeout.seconds(), None)
            }
            LimitKind::Calendar { resets } => (KindBody::Calendar, 0, 0, Some(resets)),
        };
        let CalendarFields { period, time_zone, resets_at, weekday, day } =
            calendar.map(CalendarFields::from).unwrap_or_default();
        Self {
            key: key.clone(),
            kind,
            capacity: *capacity,
            window_seconds: window_seconds.into(),
            timeout_seconds: timeout_seconds.into(),
            period,
            time_zone,
            resets_at,
            weekday,
            day,
            unit: unit.as_str().to_owned(),
            description: description.as_str().to_owned(),
            overage: (*overage).into(),
            mode: (*mode).into(),
        }
    }
}

impl From<OverageBody> for Overage {
    fn from(overage: OverageBody) -> Self {
        match overage {
            OverageBody::Debt => Self::Debt,
            OverageBody::Deny => Self::Deny,
        }
    }
}

impl From<Overage> for OverageBody {
    fn from(overage: Overage) -> Self {
        match overage {
            Overage::Debt => Self::Debt,
            Overage::Deny => Self::Deny,
        }
    }
}

impl From<ModeBody> for LimitMode {
    fn from(from: ModeBody) -> Self {
        match from {
            ModeBody::Enforce => Self::Enforce,
            ModeBody::Shadow => Self::Shadow,
        }
    }
}

impl From<LimitMode> for ModeBody {
    fn from(from: LimitMode) -> Self {
        match from {
            LimitMode::Enforce => Self::Enforce,
            LimitMode::Shadow => Self::Shadow,
        }
    }
}

impl From<WeekdayBody> for Weekday {
    fn from(from: WeekdayBody) -> Self {
        match from {
            WeekdayBody::Monday => Self::Monday,
            WeekdayBody::Tuesday => Self::Tuesday,
            WeekdayBody::Wednesday => Self::Wednesday,
            WeekdayBody::Thursday => Self::Thursday,
            WeekdayBody::Friday => Self::Friday,
            WeekdayBody::Saturday => Self::Saturday,
            WeekdayBody::Sunday => Self::Sunday,
        }
    }
}

impl From<Weekday> for WeekdayBody {
    fn from(from: Weekday) -> Self {
        match from {
            Weekday::Monday => Self::Monday,
            Weekday::Tuesday => Self::Tuesday,
            Weekday::Wednesday => Self::Wednesday,
            Weekday::Thursday => Self::Thursday,
            Weekday::Friday => Self::Friday,
            Weekday::Saturday => Self::Saturday,
            Weekday::Sunday => Self::Sunday,
        }
    }
}

impl ModeBody {
    /// Left out of a definition, as in version 1.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(crate) fn is_enforce(&self) -> bool {
        *self == Self::Enforce
    }
}

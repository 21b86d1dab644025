//! Times as people and programs read them.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A moment of the store, given in seconds since the epoch; `None` for one that no calendar has.
fn moment(seconds: f64) -> Option<Timestamp> {
    // The store's clock has microseconds; the conversion saturates, so an absurd number is refused by the calendar.
    Timestamp::from_microsecond((seconds * 1e6).round() as i64).ok()
}

/// For people: the local time, to the minute.
pub(crate) fn local(seconds: f64) -> String {
    moment(seconds).map_or_else(
        || "?".to_owned(),
        |moment| moment.to_zoned_datetime(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string(),
    )
}

/// For names of files: the local time now, as `YYYYMMDD_HHMMSS`.
pub(crate) fn stamp() -> String {
    Timestamp::now().to_zoned_datetime(TimeZone::system()).strftime("%Y%m%d_%H%M%S").to_string()
}

/// For programs: RFC 3339 in UTC.
pub(crate) fn rfc3339(seconds: f64) -> Option<String> {
    moment(seconds).map(|moment| moment.to_string())
}

/// Seconds since the epoch of an RFC 3339 text.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let moment: Timestamp = text.trim().parse().ok()?;
    Some(moment.as_microsecond() as f64 / 1e6)
}

/// A length of time as people write it on the command line.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

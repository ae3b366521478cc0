//! A moment as documents write it: RFC 3339 in UTC, whole seconds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const SECONDS_PER_DAY: u64 = 86_400;
/// 9999-12-31T23:59:59Z, the last moment with a year of four digits.
const LAST: u64 = 253_402_300_799;

/// `2026-12-01T00:00:00Z`, between 1970 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct UtcTime(u64);

/// A text that is no such moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no time: YYYY-MM-DDTHH:MM:SSZ is needed", text.escape_default())]
pub struct BadTime {
    pub text: String,
}

impl UtcTime {
    /// A moment by its seconds since 1970; what lies beyond the year 9999 becomes its last second.
    pub fn from_seconds(seconds: u64) -> Self {
        UtcTime(seconds.min(LAST))
    }

    /// Seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.0
    }

    /// Now, by this machine's clock.
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        UtcTime::from_seconds(since.map_or(0, |since| since.as_secs()))
    }

    /// Year, month and day.
    pub fn date(self) -> (u64, u64, u64) {
        civil(self.0 / SECONDS_PER_DAY)
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to the first day of a year.
fn days_before(year: u64) -> u64 {
    let past = year - 1;
    // 719162 days lie between the first day of year 1 and 1970-01-01.
    past * 365 + past / 4 - past / 100 + past / 400 - 719_162
}

fn civil(days: u64) -> (u64, u64, u64) {
    let mut year = 1970 + days / 366;
    while days_before(year + 1) <= days {
        year += 1;
    }
    let mut left = days - days_before(year);
    let mut month = 1;
    while left >= days_of_month(year, month) {
        left -= days_of_month(year, month);
        month += 1;
    }
    (year, month, left + 1)
}

impl FromStr for UtcTime {
    type Err = BadTime;

    fn from_str(text: &str) -> Result<Self, BadTime> {
        let bad = || BadTime { text: text.chars().take(40).collect() };
        let bytes = text.as_bytes();
        let shape = b"dddd-dd-ddTdd:dd:ddZ";
        let fits = bytes.len() == shape.len()
            && bytes.iter().zip(shape).all(|(c, s)| if *s == b'd' { c.is_ascii_digit() } else { c == s });
        if !fits {
            return Err(bad());
        }
        let number = |range: std::ops::Range<usize>| bytes[range].iter().fold(0, |n, c| n * 10 + u64::from(c - b'0'));
        let (year, month, day) = (number(0..4), number(5..7), number(8..10));
        let (hour, minute, second) = (number(11..13), number(14..16), number(17..19));
        let real = year >= 1970 && (1..=12).contains(&month) && day >= 1 && hour < 24 && minute < 60 && second < 60;
        if !real || day > days_of_month(year, month) {
            return Err(bad());
        }
        let months: u64 = (1..month).map(|month| days_of_month(year, month)).sum();
        let days = days_before(year) + months + day - 1;
        Ok(UtcTime(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second))
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        let rest = self.0 % SECONDS_PER_DAY;
        let text = format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60);
        f.pad(&text)
    }
}

impl TryFrom<String> for UtcTime {
    type Error = BadTime;

    fn try_from(text: String) -> Result<Self, BadTime> {
        text.parse()
    }
}

impl From<UtcTime> for String {
    fn from(time: UtcTime) -> String {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(UtcTime::from_seconds(seconds).to_string(), text);
            assert_eq!(text.parse::<UtcTime>().unwrap().seconds(), seconds);
        }
        // Every day of the range survives both ways.
        for day in (0..=LAST / SECONDS_PER_DAY).step_by(17) {
            let time = UtcTime::from_seconds(day * SECONDS_PER_DAY + day % SECONDS_PER_DAY);
            assert_eq!(time.to_string().parse::<UtcTime>().unwrap(), time);
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for bad in [
            "",
            "2026-12-01",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T00:00:60Z",
            "2026-12-01T00:00:00+01:00",
            "1969-12-31T23:59:59Z",
            "２026-12-01T00:00:00Z",
        ] {
            assert!(bad.parse::<UtcTime>().is_err(), "{bad}");
        }
    }
}

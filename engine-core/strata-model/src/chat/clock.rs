//! Python's `strftime`, as far as templates use it: dates for the system line.
//!
//! In UTC: the place where a server stands should not change its prompts.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A moment in the calendar. Months and days count from 1, weekdays from Sunday as 0.
struct Moment {
    year: i64,
    month: usize,
    day: i64,
    day_of_year: i64,
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Moment {
    fn of(time: SystemTime) -> Moment {
        let seconds = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_secs() as i64,
            Err(before) => -(before.duration().as_secs() as i64),
        };
        let days = seconds.div_euclid(86_400);
        let second_of_day = seconds.rem_euclid(86_400);
        let mut year = 1970 + days.div_euclid(366);
        while days >= days_before(year + 1) {
            year += 1;
        }
        let day_of_year = days - days_before(year);
        let mut month = 0;
        let mut day = day_of_year;
        while day >= month_days(year, month) {
            day -= month_days(year, month);
            month += 1;
        }
        Moment {
            year,
            month: month + 1,
            day: day + 1,
            day_of_year: day_of_year + 1,
            // The first of January 1970 was a Thursday.
            weekday: (days + 4).rem_euclid(7) as usize,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from 1970 to the beginning of a year.
fn days_before(year: i64) -> i64 {
    let leaps = |year: i64| (year - 1).div_euclid(4) - (year - 1).div_euclid(100) + (year - 1).div_euclid(400);
    (year - 1970) * 365 + leaps(year) - leaps(1970)
}

/// Days of a month counted from 0.
fn month_days(year: i64, month: usize) -> i64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// Formats a moment; fails with a sentence for a directive that is not known.
pub(super) fn strftime(time: SystemTime, format: &str) -> Result<String, String> {
    let moment = Moment::of(time);
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let mut directive = characters.next().unwrap_or('%');
        // `%-d` is without a leading zero.
        let bare = directive == '-';
        if bare {
            directive = characters.next().unwrap_or('-');
        }
        write_directive(&moment, directive, bare, &mut text)?;
    }
    Ok(text)
}

fn write_directive(moment: &Moment, directive: char, bare: bool, text: &mut String) -> Result<(), String> {
    let hour12 = (moment.hour + 11) % 12 + 1;
    let (number, width) = match directive {
        'd' => (moment.day, 2),
        'm' => (moment.month as i64, 2),
        'Y' => (moment.year, 4),
        'y' => (moment.year.rem_euclid(100), 2),
        'H' => (moment.hour, 2),
        'I' => (hour12, 2),
        'M' => (moment.minute, 2),
        'S' => (moment.second, 2),
        'j' => (moment.day_of_year, 3),
        'w' => (moment.weekday as i64, 1),
        'u' => ((moment.weekday as i64 + 6) % 7 + 1, 1),
        _ => {
            write_words(moment, directive, text)?;
            return Ok(());
        }
    };
    // Writing to a string cannot fail.
    let _ = if bare { write!(text, "{number}") } else { write!(text, "{number:0width$}") };
    Ok(())
}

fn write_words(moment: &Moment, directive: char, text: &mut String) -> Result<(), String> {
    let (year, month, day) = (moment.year, moment.month, moment.day);
    let (hour, minute, second) = (moment.hour, moment.minute, moment.second);
    let month_name = MONTHS[month - 1];
    let day_name = DAYS[moment.weekday];
    let written = match directive {
        'B' => month_name.to_owned(),
        'b' | 'h' => month_name[..3].to_owned(),
        'A' => day_name.to_owned(),
        'a' => day_name[..3].to_owned(),
        'e' => format!("{day:2}"),
        'p' => (if hour < 12 { "AM" } else { "PM" }).to_owned(),
        'F' => format!("{year:04}-{month:02}-{day:02}"),
        'T' | 'X' => format!("{hour:02}:{minute:02}:{second:02}"),
        'R' => format!("{hour:02}:{minute:02}"),
        'D' | 'x' => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
        'c' => format!("{} {} {day:2} {hour:02}:{minute:02}:{second:02} {year}", &day_name[..3], &month_name[..3]),
        'Z' => "UTC".to_owned(),
        'z' => "+0000".to_owned(),
        'n' => "\n".to_owned(),
        't' => "\t".to_owned(),
        '%' => "%".to_owned(),
        other => return Err(format!("strftime does not know `%{other}`")),
    };
    text.push_str(&written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, format: &str) -> String {
        strftime(UNIX_EPOCH + Duration::from_secs(seconds), format).unwrap()
    }

    #[test]
    fn known_moments() {
        assert_eq!(at(0, "%A %d %B %Y %H:%M:%S %j"), "Thursday 01 January 1970 00:00:00 001");
        assert_eq!(at(951_782_400, "%F %a %j"), "2000-02-29 Tue 060");
        assert_eq!(at(1_735_689_599, "%-d %b %Y, %I:%M %p, %y, day %j"), "31 Dec 2024, 11:59 PM, 24, day 366");
        assert_eq!(at(1_785_542_400, "%d %b %Y"), "01 Aug 2026");
        assert_eq!(at(4_102_444_800, "%F %T"), "2100-01-01 00:00:00");
        assert_eq!(at(0, "100%% %e|%D"), "100%  1|01/01/70");
    }

    #[test]
    fn before_1970_and_unknown_directives() {
        let eve = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(strftime(eve, "%F %T %A").unwrap(), "1969-12-31 23:59:59 Wednesday");
        assert!(strftime(UNIX_EPOCH, "%Q").unwrap_err().contains("%Q"));
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut last = Moment::of(UNIX_EPOCH);
        for day in 1..80_000 {
            let moment = Moment::of(UNIX_EPOCH + Duration::from_secs(day * 86_400));
            let next_day = moment.day == last.day + 1 && moment.month == last.month && moment.year == last.year;
            let next_month = moment.day == 1
                && last.day >= 28
                && (moment.month == last.month + 1 || (moment.month == 1 && moment.year == last.year + 1));
            assert!(next_day || next_month, "day {day}");
            last = moment;
        }
    }
}

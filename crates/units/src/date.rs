//! Dates of the civil calendar, in UTC.

/// `2025-11-16T00:31:05Z` of seconds since 1970.
pub fn utc(seconds: u64) -> String {
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", day(seconds))
}

/// `2025-11-16 00:31 UTC` of seconds since 1970.
pub fn utc_minutes(seconds: u64) -> String {
    let (hour, minute) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{} {hour:02}:{minute:02} UTC", day(seconds))
}

/// `2025-11-16`. Years that begin in March, so that the leap day comes last; they repeat every 400.
fn day(seconds: u64) -> String {
    let shifted = seconds / 86_400 + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = match from_march {
        0..10 => from_march + 3,
        _ => from_march - 9,
    };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_763_253_065), "2025-11-16T00:31:05Z");
        assert_eq!(utc_minutes(1_763_253_065), "2025-11-16 00:31 UTC");
    }
}

//! Values on the command line, parsed; what was expected and found where one does not parse.

use std::num::NonZeroU64;
use std::time::Duration;

use salus_engine::Policy;

/// A size that is not zero: `1.3GiB`, `800 MiB`, `4096`.
pub(crate) fn parse_bytes(text: &str) -> Result<NonZeroU64, String> {
    let bytes = salus_units::parse_bytes(text).and_then(NonZeroU64::new);
    bytes.ok_or_else(|| format!("expected a size such as 1.3GiB, 800MiB or 4096, found `{text}`"))
}

/// A time that is not zero: `20ms`, `1.5s`, `10m`, `2h`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let time = salus_units::parse_time(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("expected a time such as 20ms, 1.5s, 10m or 2h, found `{text}`"))
}

pub(crate) fn parse_policy(text: &str) -> Result<Policy, String> {
    Policy::named(text).ok_or_else(|| {
        let names = Policy::ALL.map(Policy::name).join(", ");
        format!("expected a policy, found `{text}`; there are {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_say_what_was_expected() {
        let refused = parse_time("0s").expect_err("no time");
        let times = "expected a time such as 20ms, 1.5s, 10m or 2h, found `0s`";
        assert_eq!(refused, times);
        assert!(parse_time("20").is_err() && parse_bytes("0").is_err());
        assert_eq!(parse_time("20ms"), Ok(Duration::from_millis(20)));
        let refused = parse_policy("fairr").expect_err("no policy");
        assert!(refused.starts_with("expected a policy, found `fairr`; there are exclusive, fifo"));
    }
}

//! Values of flags, held against their bounds. Clap says which flag and which value, and what is
//! said here follows.

use std::ops::RangeInclusive;
use std::time::Duration;

use weir::target::parse_duration;

pub(crate) use weir_bench::workload::spec::{RAMP_TIME, RUNTIME};

/// Takes a whole number within `bounds`, which `T` can hold.
pub(crate) fn whole<T: TryFrom<u64>>(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        let held = number.and_then(|number| T::try_from(number).ok());
        held.ok_or_else(|| format!("not a whole number in {}..={}", bounds.start(), bounds.end()))
    }
}

/// Takes a time within `bounds`.
pub(crate) fn time(
    bounds: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let time = parse_duration(text)?;
        if bounds.contains(&time) {
            return Ok(time);
        }
        Err(format!("outside {:?}..={:?}", bounds.start(), bounds.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_taken_within_its_bounds_and_refused_with_them_beyond() {
        let level = whole::<u8>(1..=7);
        assert_eq!((level("1"), level("7")), (Ok(1), Ok(7)));
        for text in ["0", "8", "-1", "", "x", "1.5", "99999999999999999999999"] {
            assert_eq!(level(text), Err("not a whole number in 1..=7".to_owned()), "{text}");
        }
    }

    #[test]
    fn a_time_is_taken_within_its_bounds_and_refused_with_them_beyond() {
        let runtime = time(RUNTIME);
        assert_eq!(runtime("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(runtime("2592000s"), Ok(Duration::from_secs(2_592_000)));
        for text in ["0", "0s", "999us", "2592001s"] {
            assert_eq!(runtime(text), Err("outside 1ms..=2592000s".to_owned()), "{text}");
        }
        assert_eq!(time(RAMP_TIME)("0"), Ok(Duration::ZERO));
        assert!(runtime("1h").is_err_and(|why| why.contains("ns, us, ms or s")));
    }
}

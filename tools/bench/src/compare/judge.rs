//! Which runs count: the rules, as functions of what was measured around and within them.
//!
//! No rule looks at which variant a run was of, or compares variants with each other. So where the
//! variants do not differ, what is left of a block is as likely to favour one as the other.

use weir_trace::document::Sample;
use weir_trace::window::tolerance_s;

/// How much longer the control may take than usual, and how much of the CPUs the host may keep for
/// others, before a run is disturbed: 10 %, the repository's rule for anything measured.
const DISTURBED: f64 = 0.10;
/// Where the control itself varies by more, so many times that beyond what is usual. A virtual
/// machine with neighbours would void most of its runs by 10 %; what all runs suffer alike is for
/// the interval to tell.
const BEYOND: f64 = 3.0;
/// The usual reading is the middle of so many last readings: of four rounds of two variants.
const LAST: usize = 16;

/// Intervals of 100 ms below which nothing is said about a ramp.
const MOVING_LEAST: usize = 10;
/// A run's start is its first fifth. It still moves where it is this far from the middle of the
/// rest, and four times further than the rest itself varies.
const MOVING: f64 = 0.10;
/// A first round is cold where it is this far from the middle of those that follow (a logarithm),
/// and four times further than they vary.
const COLD: f64 = 0.05;
const SPREADS: f64 = 4.0;
/// At most so many first rounds are left out.
pub(super) const COLD_MOST: usize = 2;

/// The readings around one run.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// How long the control's work took before it and after it, the longer, nanoseconds.
    pub control_ns: f64,
    /// CPU time that the hypervisor kept for others during it, per cent.
    pub steal_pct: f64,
    /// The measured time, seconds; none where the job ends by itself, so that nothing was asked.
    pub window_s: Option<f64>,
}

/// The usual time of the control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// The middle of its last readings, nanoseconds.
    pub ns: f64,
    /// The most it may take beside a run that counts, nanoseconds.
    pub most_ns: f64,
}

/// The usual time of the control, from all its readings in order, nanoseconds.
///
/// # Panics
/// Without any reading.
#[must_use]
pub fn usual(readings: &[f64]) -> Usual {
    assert!(!readings.is_empty(), "the control is read before the first run");
    let (ns, spread) = middle(&readings[readings.len().saturating_sub(LAST)..]);
    Usual { ns, most_ns: ns + (DISTURBED * ns).max(BEYOND * spread) }
}

/// Why a run that was to be measured for `window_s` does not count.
#[must_use]
pub fn disturbed(around: &Around, usual: &Usual, window_s: f64) -> Option<String> {
    let Around { control_ns, steal_pct, window_s: measured_s } = *around;
    let longer = control_ns / usual.ns - 1.0;
    if control_ns > usual.most_ns {
        return Some(format!(
            "disturbed: the control took {:.0} % longer beside it than usual",
            longer * 100.0
        ));
    }
    if steal_pct > DISTURBED * 100.0 {
        return Some(format!("disturbed: the host kept {steal_pct:.0} % of the CPUs for others"));
    }
    let measured_s = measured_s.filter(|s| (s - window_s).abs() > tolerance_s(window_s))?;
    Some(format!("measured for {measured_s:.3} s instead of {window_s:.3} s"))
}

/// Why the ramp of a run was too short, from what it did in each interval.
#[must_use]
pub fn moving(series: &[Sample]) -> Option<String> {
    // The last interval may be shorter than the others.
    let whole = &series[..series.len().saturating_sub(1)];
    if whole.len() < MOVING_LEAST {
        return None;
    }
    let ios: Vec<f64> = whole.iter().map(|sample| sample.ios as f64).collect();
    let (start, rest) = ios.split_at(ios.len() / 5);
    let (level, spread) = middle(rest);
    let off = start.iter().sum::<f64>() / start.len() as f64 - level;
    let most = (MOVING * level).max(SPREADS * spread / (start.len() as f64).sqrt());
    (off.abs() > most && level > 0.0)
        .then(|| format!("still moving after the ramp: it began {:+.0} % off", off / level * 100.0))
}

/// How many of the first rounds were cold, from the level of each: the mean over all variants of
/// the logarithm of its throughput.
#[must_use]
pub fn cold(levels: &[f64]) -> usize {
    if levels.len() < 2 * COLD_MOST + 1 {
        return 0;
    }
    let (first, rest) = levels.split_at(COLD_MOST);
    let (level, spread) = middle(rest);
    let most = COLD.max(SPREADS * spread);
    first.iter().take_while(|first| (**first - level).abs() > most).count()
}

/// The median, and how far values are from it: the median of that, scaled so that it is the
/// standard deviation of normal values.
fn middle(values: &[f64]) -> (f64, f64) {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let half = values.len() / 2;
        if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
    };
    let level = median(values.to_vec());
    let spread = median(values.iter().map(|value| (value - level).abs()).collect());
    (level, 1.4826 * spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Around = Around { control_ns: 1000.0, steal_pct: 0.0, window_s: Some(2.0) };

    fn why(around: Around) -> Option<String> {
        disturbed(&around, &Usual { ns: 1000.0, most_ns: 1100.0 }, 2.0)
    }

    #[test]
    fn a_run_beside_which_the_control_was_slow_or_the_host_stole_is_disturbed() {
        assert_eq!(why(QUIET), None);
        assert_eq!(why(Around { control_ns: 1099.0, steal_pct: 9.9, window_s: Some(2.09) }), None);
        let slow = why(Around { control_ns: 1300.0, ..QUIET }).expect("disturbed");
        assert!(slow.contains("30 % longer"), "{slow}");
        let stolen = why(Around { steal_pct: 11.0, ..QUIET }).expect("disturbed");
        assert!(stolen.contains("11 %"), "{stolen}");
        let paused = why(Around { window_s: Some(62.0), ..QUIET }).expect("not what was asked for");
        assert!(paused.contains("62.000 s instead of 2.000 s"), "{paused}");
        assert_eq!(why(Around { window_s: None, ..QUIET }), None, "it ends by itself");
    }

    #[test]
    fn what_is_usual_follows_a_host_that_changes_and_not_a_moment() {
        let mut readings = vec![1000.0; 20];
        readings.extend([3000.0; 3]);
        assert_eq!(usual(&readings).ns, 1000.0);
        readings.extend([3000.0; 9]);
        assert_eq!(usual(&readings).ns, 3000.0);
        assert_eq!(usual(&[7.0]).ns, 7.0);
    }

    #[test]
    fn a_control_that_varies_must_be_further_off_than_one_that_does_not() {
        let quiet = [1000.0; 16];
        assert!((usual(&quiet).most_ns - 1100.0).abs() < 1e-6);
        let restless = [800.0, 1000.0, 1200.0, 1000.0, 800.0, 1200.0, 1000.0, 1400.0];
        let Usual { ns, most_ns } = usual(&restless);
        // Half of the readings are within 200 of the middle.
        assert_eq!(ns, 1000.0);
        assert!((1800.0..2000.0).contains(&most_ns), "{most_ns}");
    }

    fn series(ios: &[u64]) -> Vec<Sample> {
        ios.iter().map(|ios| Sample { ios: *ios, ..Sample::default() }).collect()
    }

    #[test]
    fn a_run_that_begins_far_from_where_it_goes_on_is_still_moving() {
        let level = [100, 101, 99, 100, 102, 98, 100, 101, 100, 99, 100, 7];
        assert_eq!(moving(&series(&level)), None);
        let mut ramp = level;
        (ramp[0], ramp[1]) = (60, 80);
        let why = moving(&series(&ramp)).expect("it moves");
        assert!(why.contains("-30 %"), "{why}");
        assert_eq!(moving(&series(&ramp[..10])), None, "too short to tell");
        // A control that varies all the time does not move.
        let restless = [40, 160, 70, 150, 50, 170, 30, 140, 60, 160, 50, 7];
        assert_eq!(moving(&series(&restless)), None);
        assert_eq!(moving(&series(&[0; 12])), None);
    }

    #[test]
    fn first_rounds_far_from_the_others_are_cold_and_later_ones_are_not() {
        assert_eq!(cold(&[1.0, 1.01, 0.99, 1.0, 1.02, 1.0]), 0);
        assert_eq!(cold(&[0.8, 1.01, 0.99, 1.0, 1.02, 1.0]), 1);
        assert_eq!(cold(&[0.8, 0.9, 0.99, 1.0, 1.02, 1.0]), 2);
        assert_eq!(cold(&[1.0, 0.8, 0.99, 1.0, 1.02, 0.8]), 0);
        assert_eq!(cold(&[0.8, 0.9, 0.99, 1.0]), 0, "too few to tell");
    }
}

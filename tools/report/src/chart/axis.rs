//! Scales and their ticks.

/// From values to places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// Values at the ends, as logarithms on a logarithmic axis.
    low: f64,
    high: f64,
    /// Places of the ends.
    from: f64,
    to: f64,
    is_log: bool,
}

impl Axis {
    /// A linear axis over these values and some room; from 0 if `zero`.
    pub(crate) fn linear(
        values: impl IntoIterator<Item = f64>,
        zero: bool,
        (from, to): (f64, f64),
    ) -> Option<Axis> {
        let (low, high) = bounds(values)?;
        let room = if high > low { (high - low) * 0.08 } else { (high.abs() * 0.1).max(0.5) };
        let low = if zero {
            low.min(0.0)
        } else if low >= 0.0 {
            (low - room).max(0.0)
        } else {
            low - room
        };
        Some(Axis { low, high: high + room, from, to, is_log: false })
    }

    /// A logarithmic axis over those values that are above 0.
    pub(crate) fn log(
        values: impl IntoIterator<Item = f64>,
        (from, to): (f64, f64),
    ) -> Option<Axis> {
        let positive = values.into_iter().filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = bounds(positive)?;
        // At least half a decade, or there is no tick on it.
        let room = ((0.5 - (high - low)) / 2.0).max(0.03);
        Some(Axis { low: low - room, high: high + room, from, to, is_log: true })
    }

    /// The place of a value; no number for one that has no place.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let value = if self.is_log { value.log10() } else { value };
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// A sentence on where the axis begins; nothing where that is 0.
    pub(crate) fn begin(&self, show: &dyn Fn(f64) -> String) -> String {
        match self.is_log || self.low <= 0.0 {
            true => String::new(),
            false => format!(" The axis begins at {}, not at 0.", show(self.low)),
        }
    }

    /// Round values within it, about `wanted` of them.
    pub(crate) fn ticks(&self, wanted: usize) -> Vec<f64> {
        if !self.is_log {
            return linear_ticks(self.low, self.high, wanted);
        }
        let decades = self.low.floor() as i32..=self.high.ceil() as i32;
        let steps: &[f64] = if self.high - self.low > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let values =
            decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
        let within: Vec<f64> =
            values.filter(|value| (self.low..=self.high).contains(&value.log10())).collect();
        let every = within.len().div_ceil(wanted.max(1)).max(1);
        within.into_iter().step_by(every).collect()
    }
}

fn bounds(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |bounds, value| match bounds {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

fn linear_ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let rough = (high - low) / wanted.max(1) as f64;
    if !(rough.is_finite() && rough > 0.0) {
        return Vec::new();
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough * 0.999);
    let step = step.unwrap_or(10.0) * power;
    let first = (low / step).ceil() as i64;
    (first..).map(|index| index as f64 * step).take_while(|tick| *tick <= high).take(50).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        let axis = Axis::linear([0.0, 14_800.0], true, (0.0, 100.0)).expect("values");
        assert_eq!(axis.ticks(4), [0.0, 5000.0, 10_000.0, 15_000.0]);
        assert_eq!(axis.at(0.0), 0.0);
        let axis = Axis::log([90.0, 3_000_000.0], (0.0, 100.0)).expect("values");
        assert_eq!(axis.ticks(6), [100.0, 1e3, 1e4, 1e5, 1e6]);
        let narrow = Axis::log([1000.0, 1000.0], (0.0, 100.0)).expect("values");
        assert_eq!((narrow.ticks(6), narrow.at(1000.0).round()), (vec![1000.0], 50.0));
    }

    #[test]
    fn values_that_are_none_make_no_axis_and_equal_ones_do() {
        assert!(Axis::linear([], true, (0.0, 1.0)).is_none());
        assert!(Axis::linear([f64::NAN], true, (0.0, 1.0)).is_none());
        assert!(Axis::log([0.0, -1.0], (0.0, 1.0)).is_none());
        let zero = Axis::linear([0.0, 0.0], true, (0.0, 10.0)).expect("values");
        assert_eq!(zero.at(0.0), 0.0);
    }

    #[test]
    fn an_axis_that_does_not_begin_at_0_says_so() {
        let from = |low: f64, zero| {
            let axis = Axis::linear([low, 200.0], zero, (0.0, 1.0)).expect("values");
            axis.begin(&|value| format!("{value:.0}"))
        };
        assert_eq!(from(100.0, false), " The axis begins at 92, not at 0.");
        assert_eq!((from(100.0, true), from(1.0, false)), (String::new(), String::new()));
    }
}

//! How far a figure of ours may be from the source's.

use std::fmt;

/// How far a figure of ours may be from the source's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// So many percent of it, above or below.
    Percent(f64),
    /// Ours is no more than this.
    AtMost(f64),
    /// Ours is no less than this.
    AtLeast(f64),
    /// Ours is between these.
    Between(f64, f64),
    /// The two stand side by side, and nothing follows.
    None,
}

impl Bound {
    /// Whether ours keeps to it; `None` where there is no bound.
    #[must_use]
    pub fn holds(self, ours: f64, source: f64) -> Option<bool> {
        match self {
            Bound::Percent(most) => Some(((ours / source - 1.0) * 100.0).abs() <= most),
            Bound::AtMost(most) => Some(ours <= most),
            Bound::AtLeast(least) => Some(ours >= least),
            Bound::Between(least, most) => Some((least..=most).contains(&ours)),
            Bound::None => None,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Percent(most) => write!(f, "{most} %"),
            Bound::AtMost(most) => write!(f, "<= {most:.2}"),
            Bound::AtLeast(least) => write!(f, ">= {least:.2}"),
            Bound::Between(least, most) => write!(f, "{least:.2}..{most:.2}"),
            Bound::None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_holds_on_its_edge_and_not_beyond() {
        let holds = |bound: Bound, ours: f64| bound.holds(ours, 200.0);
        for (bound, inside, outside) in [
            (Bound::Percent(10.0), [180.0, 219.0], [179.0, 221.0]),
            (Bound::AtMost(150.0), [0.0, 150.0], [150.1, 200.0]),
            (Bound::AtLeast(250.0), [250.0, 900.0], [249.9, 200.0]),
            (Bound::Between(1.5, 2.5), [1.5, 2.5], [1.4, 2.6]),
        ] {
            assert_eq!(inside.map(|ours| holds(bound, ours)), [Some(true); 2], "{bound}");
            assert_eq!(outside.map(|ours| holds(bound, ours)), [Some(false); 2], "{bound}");
        }
        assert_eq!(holds(Bound::None, 1e9), None);
    }
}

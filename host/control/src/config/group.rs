//! `[[group]]`: a group of clients, its weight and its caps.

use std::num::NonZeroU64;

use serde::Deserialize;
use weir_queue::{Caps, Groups, WEIGHT_MAX, WEIGHT_MIN};

use super::value::{BURST_MAX, burst, rate, weight};

/// `[[group]]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its place in the tree, names joined by `/`.
    pub path: String,
    /// Its weight among its siblings, 1..=1000.
    #[serde(default, deserialize_with = "weight")]
    pub weight: Option<i64>,
    /// Reads a second at most.
    #[serde(default)]
    pub riops: Option<NonZeroU64>,
    /// Writes a second at most.
    #[serde(default)]
    pub wiops: Option<NonZeroU64>,
    /// Bytes read a second at most: a number, or a size as in "50MiB".
    #[serde(default, deserialize_with = "rate")]
    pub rbps: Option<NonZeroU64>,
    /// Bytes written a second at most.
    #[serde(default, deserialize_with = "rate")]
    pub wbps: Option<NonZeroU64>,
    /// Seconds of unused allowance that may be spent at once, 0..=3600.
    #[serde(default, deserialize_with = "burst")]
    pub burst: Option<f64>,
}

impl Group {
    /// Makes it, with its weight and caps.
    ///
    /// # Errors
    /// What is wrong with its path, or the value outside its bound.
    pub(super) fn add_to(&self, groups: &Groups) -> Result<(), String> {
        let id = groups.create(&self.path).map_err(|error| error.to_string())?;
        if let Some(weight) = self.weight {
            // A number that fits no u16 is out of range as well.
            let held = u16::try_from(weight).unwrap_or(u16::MAX);
            let (least, most) = (WEIGHT_MIN, WEIGHT_MAX);
            if !(least..=most).contains(&held) {
                return Err(format!("weight={weight} is outside {least}..={most}"));
            }
            groups.set_weight(id, held).map_err(|error| error.to_string())?;
        }
        let burst = self.burst.unwrap_or(0.0);
        if !(0.0..=BURST_MAX).contains(&burst) {
            return Err(format!("burst={burst} s is outside 0..={BURST_MAX}"));
        }
        let caps = Caps {
            riops: self.riops,
            wiops: self.wiops,
            rbps: self.rbps,
            wbps: self.wbps,
            burst_ns: (burst * 1e9) as u64,
        };
        groups.set_caps(id, caps).map_err(|error| error.to_string())
    }
}

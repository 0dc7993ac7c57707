//! Charts as SVG: text that can be selected, colours that a style sheet gives.
//!
//! All are drawn 360 units wide, so that their text is readable on a phone, and a wide page puts
//! them side by side. A variant is told by colour, by marker and by dash, so that colour alone
//! never carries the meaning. Whatever is not a finite number is left out.

mod axis;
mod curves;
mod intervals;
mod ratios;
mod svg;

pub(crate) use curves::{Curve, Points, percentiles, series, sweep};
pub(crate) use intervals::{Bar, Order, Row, intervals, order, stacked};
pub(crate) use ratios::{Change, ratios};

/// How many marks or faint lines of one variant are drawn: more of them hide each other, and make a
/// page that is slow to open.
pub(crate) const DRAWN_MOST: usize = 40;

/// At most so many of these, spread evenly over all of them.
pub(crate) fn thinned<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    let count = all.len().min(most);
    (0..count).map(|at| all[at * all.len() / count].clone()).collect()
}

/// The width of every chart, units.
pub(crate) const WIDTH: f64 = 360.0;

/// How many variants have a colour of their own; further ones begin again.
pub(crate) const COLOURS: usize = 6;

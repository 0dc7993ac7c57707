//! The figures of a soak over time, as a picture: one panel below the other, drawn as SVG.

use std::fmt::Write;

use super::Sample;

const WIDTH: f64 = 760.0;
const PANEL: f64 = 130.0;
/// Room for texts: left of a panel, above it, and below the last one.
const LEFT: f64 = 70.0;
const ABOVE: f64 = 30.0;
const BELOW: f64 = 34.0;

/// Points across a panel; more are one over the other.
const POINTS: usize = 360;

/// A figure over time: a name and its values, one for each sample.
struct Panel {
    name: &'static str,
    values: Vec<f64>,
}

/// The picture.
pub fn drawn(samples: &[Sample]) -> String {
    let each = |figure: fn(&Sample) -> f64| samples.iter().map(figure).collect::<Vec<_>>();
    let mut rates = vec![0.0];
    rates.extend(samples.windows(2).map(|pair| {
        let ended = pair[1].counters.ended.saturating_sub(pair[0].counters.ended);
        ended as f64 / (pair[1].second - pair[0].second).max(0.001)
    }));
    let panels = [
        Panel { name: "resident memory, MiB", values: each(|s| s.resident_kib as f64 / 1024.0) },
        Panel { name: "open descriptors", values: each(|s| s.descriptors as f64) },
        Panel { name: "clients connected", values: each(|s| s.counters.clients as f64) },
        Panel {
            name: "I/Os accepted and not ended",
            values: each(|s| s.counters.in_flight as f64),
        },
        Panel { name: "I/Os ended per second", values: rates },
        Panel { name: "longest flush of a file, ms", values: each(|s| s.flush_ms as f64) },
    ];
    let seconds = samples.last().map_or(1.0, |sample| sample.second.max(1.0));
    let height = panels.len() as f64 * (PANEL + ABOVE) + BELOW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let mut top = 0.0;
    for panel in &panels {
        top += ABOVE;
        draw(&mut svg, panel, samples, (top, seconds)).expect("memory for a picture");
        top += PANEL;
    }
    let (end, below) = (WIDTH - 10.0, top + 16.0);
    writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{below}\">0</text>\n\
         <text x=\"{end}\" y=\"{below}\" text-anchor=\"end\">{seconds:.0} s</text>\n</svg>"
    )
    .expect("memory for a picture");
    svg
}

/// One panel from zero to a little above its greatest value.
fn draw(
    svg: &mut String,
    panel: &Panel,
    samples: &[Sample],
    (top, seconds): (f64, f64),
) -> std::fmt::Result {
    let most = panel.values.iter().copied().fold(1.0, f64::max) * 1.1;
    let (bottom, width) = (top + PANEL, WIDTH - LEFT - 10.0);
    let name = panel.name;
    writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{name}</text>\n\
         <text x=\"{:.1}\" y=\"{bottom:.1}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{most:.0}</text>\n\
         <rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{PANEL}\" \
         fill=\"none\" stroke=\"#bbb\"/>",
        top - 6.0,
        LEFT - 6.0,
        LEFT - 6.0,
        top + 10.0,
    )?;
    // The mean of neighbours, with a band from the least to the greatest of them.
    let group = samples.len().div_ceil(POINTS).max(1);
    let (mut line, mut above, mut under) = (String::new(), String::new(), Vec::new());
    for (samples, values) in samples.chunks(group).zip(panel.values.chunks(group)) {
        let x = LEFT + samples[0].second / seconds * width;
        let y = |value: f64| bottom - value / most * PANEL;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let greatest = values.iter().copied().fold(f64::MIN, f64::max);
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        write!(line, "{x:.1},{:.1} ", y(mean))?;
        write!(above, "{x:.1},{:.1} ", y(greatest))?;
        under.push(format!("{x:.1},{:.1} ", y(least)));
    }
    let under: String = under.into_iter().rev().collect();
    writeln!(
        svg,
        "<polygon points=\"{above}{under}\" fill=\"#9bc2e6\"/>\n\
         <polyline points=\"{line}\" fill=\"none\" stroke=\"#1f4e79\" stroke-width=\"1.2\"/>"
    )
}

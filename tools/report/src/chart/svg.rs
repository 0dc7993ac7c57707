//! Shapes and texts, written.

use std::fmt::Write;

use super::{COLOURS, WIDTH};
pub(crate) use weir_trace::labels::shortened;

/// A picture being drawn.
pub(crate) struct Svg {
    body: String,
    height: f64,
}

/// Which end of a text stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Makes text safe in HTML and SVG, also in a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Not allowed in XML, and nothing to see.
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

impl Svg {
    pub(crate) fn new(height: f64) -> Svg {
        Svg { body: String::new(), height }
    }

    fn put(&mut self, numbers: &[f64], element: std::fmt::Arguments<'_>) {
        if numbers.iter().all(|number| number.is_finite()) {
            self.body.write_fmt(element).expect("a string takes text");
        }
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.put(
            &[x, y],
            format_args!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" \
                 class=\"{class}\">{text}</text>"
            ),
        );
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.put(
            &[x1, y1, x2, y2],
            format_args!(
                r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
            ),
        );
    }

    pub(crate) fn rect(&mut self, (x, y): (f64, f64), width: f64, height: f64, class: &str) {
        self.put(
            &[x, y, width, height],
            format_args!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                 height=\"{height:.1}\" class=\"{class}\"/>",
                width.max(0.0)
            ),
        );
    }

    /// A line through points; a point that is no number interrupts it.
    pub(crate) fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let mut text = String::new();
        let mut drawing = false;
        for (x, y) in points {
            if x.is_finite() && y.is_finite() {
                let verb = if drawing { 'L' } else { 'M' };
                write!(text, "{verb}{x:.1} {y:.1}").expect("a string takes text");
                drawing = true;
            } else {
                drawing = false;
            }
        }
        if !text.is_empty() {
            self.put(&[], format_args!(r#"<path d="{text}" class="{class}"/>"#));
        }
    }

    /// The marker of a variant: disc, square, triangle, diamond and so on.
    pub(crate) fn marker(&mut self, (x, y): (f64, f64), size: f64, variant: usize, class: &str) {
        let shape: &[(f64, f64)] = match variant % COLOURS {
            0 => {
                let element =
                    format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{size:.1}" class="{class}"/>"#);
                return self.put(&[x, y], format_args!("{element}"));
            }
            1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            2 => &[(0.0, -1.1), (1.1, 0.9), (-1.1, 0.9)],
            3 => &[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)],
            4 => &[(0.0, 1.1), (1.1, -0.9), (-1.1, -0.9)],
            _ => &[(-1.2, -0.5), (1.2, -0.5), (1.2, 0.5), (-1.2, 0.5)],
        };
        let corners =
            shape.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * size, y + dy * size));
        let corners = corners.collect::<Vec<_>>().join(" ");
        self.put(&[x, y], format_args!(r#"<polygon points="{corners}" class="{class}"/>"#));
    }

    /// A cross, for what does not count.
    pub(crate) fn cross(&mut self, (x, y): (f64, f64), size: f64, class: &str) {
        self.line((x - size, y - size), (x + size, y + size), class);
        self.line((x - size, y + size), (x + size, y - size), class);
    }

    /// The names of variants with their markers, in rows from `top`; where the rows end. `class` is
    /// that of the markers in the chart: `m` is full, `dot` is hollow.
    pub(crate) fn legend(&mut self, top: f64, names: &[String], class: &str) -> f64 {
        let (mut x, mut y) = (0.0, top);
        for (variant, name) in names.iter().enumerate() {
            let name = shortened(name, 30);
            let width = 22.0 + name.chars().count() as f64 * 7.0;
            if x > 0.0 && x + width > WIDTH {
                (x, y) = (0.0, y + 17.0);
            }
            self.marker((x + 6.0, y - 4.0), 4.0, variant, &format!("{class} {}", colour(variant)));
            self.text((x + 15.0, y), Anchor::Start, "t", &name);
            x += width;
        }
        y
    }

    /// The picture; `label` is what it shows, for those who do not see it.
    pub(crate) fn finish(self, label: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\" \
             xmlns=\"http://www.w3.org/2000/svg\">{}</svg>",
            self.height,
            escape(label),
            self.body
        )
    }

    pub(crate) fn set_height(&mut self, height: f64) {
        self.height = height;
    }
}

/// The class that gives a variant its colour and dash.
pub(crate) fn colour(variant: usize) -> String {
    format!("v{}", variant % COLOURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_leave_its_place() {
        let mut svg = Svg::new(10.0);
        svg.text((1.0, 2.0), Anchor::Start, "t", "<script>alert('\"&\u{0}')</script>");
        let drawn = svg.finish("\"><script>");
        assert!(!drawn.contains("<script"), "{drawn}");
        assert!(drawn.contains("&lt;script&gt;alert(&#39;&quot;&amp; &#39;)"), "{drawn}");
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let mut svg = Svg::new(10.0);
        svg.line((f64::NAN, 0.0), (1.0, 1.0), "t");
        svg.rect((0.0, 0.0), f64::INFINITY, 1.0, "t");
        svg.marker((f64::NAN, 0.0), 1.0, 1, "t");
        svg.path(&[(0.0, 0.0), (f64::NAN, 1.0), (2.0, 2.0)], "p");
        let drawn = svg.finish("x");
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        assert!(drawn.contains(r#"d="M0.0 0.0M2.0 2.0""#), "{drawn}");
    }
}

//! A page as HTML: one file with its style and its charts in it.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value, context};

use crate::Error;
use crate::download::links;
use crate::page::Page;

const TEMPLATE: &str = include_str!("page.html.jinja");
const STYLE: &str = include_str!("page.css");

/// `raw` are the results as they were read, for those who want the data.
pub(crate) fn write(page: &Page, raw: Vec<serde_json::Value>) -> Result<String, Error> {
    let template = |error: minijinja::Error| Error::Template(error.to_string());
    let mut environment = Environment::new();
    // Everything is escaped but what says otherwise in the template: style, charts, and links that
    // are base64.
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(template)?);
    environment.add_filter("kept", kept);
    environment.add_filter("parted", parted);
    environment.add_template("page", TEMPLATE).map_err(template)?;
    let filled = environment.get_template("page").map_err(template)?.render(context! {
        page => Value::from(Serde(page)),
        style => STYLE,
        downloads => Value::from(Serde(links(raw))),
        weir => env!("CARGO_PKG_VERSION"),
    });
    filled.map_err(template)
}

/// A name made of several may go on in the next line behind each of them.
fn parted(text: String) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut parted, c| {
        parted.push(c);
        if [',', '=', ':', '/', '_'].contains(&c) {
            parted.push('\u{200b}');
        }
        parted
    })
}

/// A number and its unit stay on one line.
fn kept(text: String) -> String {
    let units = [" %", " ns", " µs", " ms", " s", " CPUs"];
    units.into_iter().fold(text, |text, unit| keep(&text, unit))
}

fn keep(text: &str, unit: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(unit) {
        let (before, after) = (&rest[..at], &rest[at + unit.len()..]);
        let is_number = before.ends_with(|c: char| c.is_ascii_digit());
        let is_whole = !after.starts_with(|c: char| c.is_alphanumeric());
        kept.push_str(before);
        kept.push(if is_number && is_whole { '\u{a0}' } else { ' ' });
        kept.push_str(&unit[1..]);
        rest = after;
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit_stay_together_and_other_words_do_not() {
        assert_eq!(parted("IOPS, a=b".into()), "IOPS,\u{200b} a=\u{200b}b");
        assert_eq!(kept("a 3 % b 5 ms, 4 sq c s".into()), "a 3\u{a0}% b 5\u{a0}ms, 4 sq c s");
    }
}

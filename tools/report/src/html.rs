//! A page as HTML: one file with its style and its charts in it.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value, context};

use crate::Error;
use crate::document::Document;
use crate::download::links;
use crate::page::Page;

const TEMPLATE: &str = include_str!("page.html.jinja");
const STYLE: &str = include_str!("page.css");

pub(crate) fn write(page: &Page, documents: &[Document]) -> Result<String, Error> {
    let template = |error: minijinja::Error| Error::Template(error.to_string());
    let mut environment = Environment::new();
    // Everything is escaped but what says otherwise in the template: style and charts.
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(template)?);
    environment.add_template("page", TEMPLATE).map_err(template)?;
    let filled = environment.get_template("page").map_err(template)?.render(context! {
        page => Value::from(Serde(page)),
        style => STYLE,
        downloads => Value::from(Serde(links(documents))),
        weir => env!("CARGO_PKG_VERSION"),
    });
    filled.map_err(template)
}

//! Label values as the text format wants them: names of groups and exports come from outside, and
//! the encoder writes a value as it is.

use std::borrow::Cow;
use std::fmt::{self, Write};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// A value with backslash, quote and line feed escaped; other control characters become `?`, since
/// the format has no way to write them that all readers take.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Value<'a>(pub(crate) Cow<'a, str>);

/// The labels of one series.
pub(crate) type Labels<'a> = Vec<(&'static str, Value<'a>)>;

pub(crate) fn value<'a>(text: impl Into<Cow<'a, str>>) -> Value<'a> {
    Value(text.into())
}

impl EncodeLabelValue for Value<'_> {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => encoder.write_str(r"\\")?,
                '"' => encoder.write_str("\\\"")?,
                '\n' => encoder.write_str(r"\n")?,
                c if c.is_control() => encoder.write_char('?')?,
                c => encoder.write_char(c)?,
            }
        }
        Ok(())
    }
}

//! A sentence of a page, and whether it tells of a difference.

use serde::Serialize;

/// A sentence, and whether it names a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    Better,
    Worse,
    Same,
    /// Something went wrong, or a figure without a verdict.
    Plain,
    Warning,
}

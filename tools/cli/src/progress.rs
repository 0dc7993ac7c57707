//! A bar of progress on standard error, written over as it grows.

use std::io::{IsTerminal, Write};

/// Work that takes no longer shows no progress, seconds.
pub(crate) const SHOWN_FROM_S: f64 = 2.0;
/// The bar, characters.
const BAR: usize = 20;

/// A line on standard error that is written over.
pub(crate) struct Line {
    /// There is a terminal to show it.
    seen: bool,
    shown: bool,
}

impl Line {
    pub(crate) fn new(quiet: bool) -> Line {
        Line { seen: !quiet && std::io::stderr().is_terminal(), shown: false }
    }

    /// Whether it is seen at all: what is not seen need not be made.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen
    }

    pub(crate) fn show(&mut self, line: &str) {
        if !self.seen {
            return;
        }
        // One that went on in a second row would not be written over.
        let columns =
            rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
        let line = clipped(line, columns);
        // Progress that cannot be shown is no failure.
        let _ = std::io::stderr().write_all(format!("\r\x1b[K{line}").as_bytes());
        self.shown = true;
    }

    /// Leaves an empty line behind.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// So many parts of a whole, as a bar and in per cent.
pub(crate) fn bar(made: u64, all: u64) -> String {
    let all = all.max(1);
    let full = (made * BAR as u64 / all) as usize;
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
    format!("[{bar}] {:3} %", made * 100 / all)
}

/// A line as far as a terminal of so many columns shows it without going on in the next row; 0 is a
/// terminal that does not say.
fn clipped(line: &str, columns: u16) -> &str {
    let most = if columns == 0 { usize::MAX } else { usize::from(columns) - 1 };
    line.char_indices().nth(most).map_or(line, |(end, _)| &line[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_before_the_last_column() {
        for (columns, shown) in [(0, "abcdé"), (6, "abcdé"), (5, "abcd"), (1, "")] {
            assert_eq!(clipped("abcdé", columns), shown, "{columns}");
        }
    }
}

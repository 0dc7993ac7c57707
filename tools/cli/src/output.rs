//! Standard output. Its reader may leave before the end, and a disk may be full under it.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};

use crate::Failure;

/// Prints text. A reader that has left is no failure, as it is none of iostat's.
///
/// A terminal gets no control characters: the text may come from a daemon of another user.
///
/// # Errors
/// The system's error of standard output, as of a full disk under it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let text = if out.is_terminal() { harmless(text) } else { text.into() };
    print_to(&mut out, &text)
}

/// The text with its control characters, but for ends of lines and tabs, spelled out.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() && !"\n\t".contains(c);
    if !text.contains(acts) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match acts(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown.into()
}

/// Prints text as a line.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
    print(&format!("{text}\n"))
}

fn print_to(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    // A flush when the program ends could not report its failure.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Bad(format!("standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn what_acts_on_a_terminal_is_spelled_out() {
        let told = "sda/\t\x1b]0;name\x07\r\n\u{9b}2J\u{e9}\n";
        assert_eq!(harmless(told), "sda/\t\\u{1b}]0;name\\u{7}\\r\n\\u{9b}2J\u{e9}\n");
        assert!(matches!(harmless("block/\n"), Cow::Borrowed("block/\n")));
    }

    #[test]
    fn a_reader_who_left_is_no_failure_and_a_full_disk_is() {
        assert!(print_to(&mut Fails(ErrorKind::BrokenPipe), "text").is_ok());
        let failure = print_to(&mut Fails(ErrorKind::StorageFull), "text");
        let Err(Failure::Bad(why)) = failure else { panic!("{failure:?}") };
        assert!(why.starts_with("standard output: "), "{why}");
    }
}

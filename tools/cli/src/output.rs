//! Standard output. Its reader may leave before the end, and a disk may be full under it.

use std::io::{self, ErrorKind, Write};

use crate::Failure;

/// Prints text. A reader that has left is no failure, as it is none of iostat's.
///
/// # Errors
/// The system's error of standard output, as of a full disk under it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_to(&mut io::stdout().lock(), text)
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
    fn a_reader_who_left_is_no_failure_and_a_full_disk_is() {
        assert!(print_to(&mut Fails(ErrorKind::BrokenPipe), "text").is_ok());
        let failure = print_to(&mut Fails(ErrorKind::StorageFull), "text");
        let Err(Failure::Bad(why)) = failure else { panic!("{failure:?}") };
        assert!(why.starts_with("standard output: "), "{why}");
    }
}

//! The control protocol against any bytes: requests for the server, answers and lists for clients.
//!
//! - What is read, written and read again is the same, and leaves what follows it alone.
//! - Pieces change nothing, and what is kept is bounded whatever length is announced.
//!
//! Input: a byte of pieces, then the stream.

use std::io::{self, BufRead, BufReader, Read};

use weir_control::tree::{PATH_MAX, VALUE_MAX};
use weir_control::wire::{Ask, decode_names, encode_answer, encode_names, read_answer};

pub(crate) fn check(bytes: &[u8]) {
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let whole = asks(&mut &*stream);
    let mut cut = BufReader::with_capacity(1 + usize::from(piece), Slow(stream));
    assert_eq!(asks(&mut cut), whole, "in pieces the requests are others");
    for ask in &whole.0 {
        assert!(ask.path.len() <= PATH_MAX && ask.value.len() <= VALUE_MAX, "{ask:?} is too long");
        let text = [&ask.encode()[..], b"behind"].concat();
        let mut rest = &text[..];
        let again = Ask::read(&mut rest).expect("what was read can be read again");
        assert_eq!((again.as_ref(), rest), (Some(ask), &b"behind"[..]));
    }
    answers(stream);
    if let Some(names) = decode_names(stream) {
        assert_eq!(decode_names(&encode_names(&names)), Some(names), "names come back");
    }
}

/// The requests of a stream, and whether it ended where one may begin.
fn asks(from: &mut impl BufRead) -> (Vec<Ask>, bool) {
    let mut asks = Vec::new();
    loop {
        match Ask::read(from) {
            Ok(Some(ask)) => asks.push(ask),
            Ok(None) => return (asks, true),
            Err(_) => return (asks, false),
        }
    }
}

/// The answers of a stream, each held against what it is written as.
fn answers(mut stream: &[u8]) {
    while !stream.is_empty() {
        let before = stream.len();
        let Ok(answer) = read_answer(&mut stream) else { return };
        assert!(stream.len() < before, "an answer takes a line at least");
        let text = encode_answer(&answer);
        let mut rest = &text[..];
        let again = read_answer(&mut rest).expect("what was read can be read again");
        assert_eq!((again, rest), (answer, &b""[..]));
    }
}

/// Gives a byte a call.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let here = out.len().min(1);
        self.0.read(&mut out[..here])
    }
}

//! The lines and lengths of the control socket.

use std::io::{self, BufRead, Read};

use crate::errno::{Errno, Failure};
use crate::tree::{Node, PATH_MAX, VALUE_MAX};

/// Longest line, bytes.
const LINE_MAX: u64 = 64;

/// Longest value that is read to its end, bytes; only a page of it is kept.
const DRAINED_MAX: u64 = 16 << 20;

/// Longest body of a reply that a client takes, bytes.
const BODY_MAX: u64 = 16 << 20;

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The names of a directory.
    List,
    /// The text of a file.
    Read,
    /// A value for a file.
    Write,
    /// A value for a file of a disk, which is not written: the answer is that of a write.
    Try,
    /// The configuration is to be read again.
    Reload,
    /// The scheduler of a disk is to be recorded.
    Record,
    /// Another daemon wants to take the place of this one.
    Replace,
}

impl Verb {
    /// Its word in a request.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verb::List => "ls",
            Verb::Read => "get",
            Verb::Write => "set",
            Verb::Try => "try",
            Verb::Reload => "reload",
            Verb::Record => "record",
            Verb::Replace => "replace",
        }
    }

    fn named(word: &str) -> Option<Verb> {
        let known = [Verb::List, Verb::Read, Verb::Write, Verb::Try];
        let mut all = known.into_iter().chain([Verb::Reload, Verb::Record, Verb::Replace]);
        all.find(|verb| verb.word() == word)
    }
}

/// One request; of a long value the first page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its verb.
    pub verb: Verb,
    /// Of what in the tree; empty for a reload and a replacement, and a disk's name for a
    /// recording.
    pub path: String,
    /// The value to write, or what the daemon that wants the place says of itself, at most
    /// [`VALUE_MAX`] bytes of it; else empty.
    pub value: Vec<u8>,
}

impl Ask {
    /// The request as it is sent.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Ask { verb, path, value } = self;
        let mut bytes = format!("{} {} {}\n", verb.word(), path.len(), value.len()).into_bytes();
        bytes.extend_from_slice(path.as_bytes());
        bytes.extend_from_slice(value);
        bytes
    }

    /// Reads the next request; `None` at the end of the stream.
    ///
    /// # Errors
    /// Bytes that cannot be a request: the stream cannot be followed any more.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Ask>> {
        let Some(line) = line(from)? else { return Ok(None) };
        let mut words = line.split(' ');
        let verb = words.next().and_then(Verb::named);
        let mut length = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (Some(verb), Some(path_len), Some(value_len), None) =
            (verb, length(), length(), words.next())
        else {
            return Err(malformed(format!("{line:?} is no request")));
        };
        if path_len > PATH_MAX as u64 || value_len > DRAINED_MAX {
            return Err(malformed(format!(
                "path of {path_len} and value of {value_len} bytes, above {PATH_MAX} and \
                 {DRAINED_MAX}"
            )));
        }
        let path = exactly(from, path_len)?;
        let path = String::from_utf8(path).map_err(|_| malformed("the path is not UTF-8"))?;
        let kept = value_len.min(VALUE_MAX as u64);
        let value = exactly(from, kept)?;
        let drained = io::copy(&mut from.take(value_len - kept), &mut io::sink())?;
        if drained < value_len - kept {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(Ask { verb, path, value }))
    }
}

/// The answer to a request.
pub type Answer = Result<Vec<u8>, Failure>;

/// An answer as it is sent.
#[must_use]
pub fn encode_answer(answer: &Answer) -> Vec<u8> {
    let (word, body) = match answer {
        Ok(body) => ("OK", body.as_slice()),
        Err(failure) => (failure.errno.name(), failure.what.as_bytes()),
    };
    let mut bytes = format!("{word} {}\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Reads an answer.
///
/// # Errors
/// Bytes that cannot be an answer, or a stream that ends before it does.
pub fn read_answer(from: &mut impl BufRead) -> io::Result<Answer> {
    let line = line(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let bad = || malformed(format!("{line:?} is no answer"));
    let (word, length) = line.split_once(' ').ok_or_else(bad)?;
    let length = length.parse().ok().filter(|length| *length <= BODY_MAX).ok_or_else(bad)?;
    let body = exactly(from, length)?;
    if word == "OK" {
        return Ok(Ok(body));
    }
    let errno = Errno::named(word).ok_or_else(bad)?;
    Ok(Err(Failure::new(errno, String::from_utf8_lossy(&body))))
}

/// The body of a listing.
#[must_use]
pub fn encode_names(names: &[(String, Node)]) -> Vec<u8> {
    let mut text = String::new();
    for (name, node) in names {
        let kind = match node {
            Node::Directory => 'd',
            Node::File { writable: false } => 'r',
            Node::File { writable: true } => 'w',
        };
        text.extend([kind, ' ']);
        text.push_str(name);
        text.push('\n');
    }
    text.into_bytes()
}

/// The names of such a body; `None` if it is none.
#[must_use]
pub fn decode_names(body: &[u8]) -> Option<Vec<(String, Node)>> {
    let text = std::str::from_utf8(body).ok()?;
    let decode = |line: &str| {
        let (kind, name) = line.split_once(' ')?;
        let node = match kind {
            "d" => Node::Directory,
            "r" => Node::File { writable: false },
            "w" => Node::File { writable: true },
            _ => return None,
        };
        Some((String::from(name), node))
    };
    text.split_terminator('\n').map(decode).collect()
}

/// The next line without its end; `None` at the end of the stream.
fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut bytes)?;
    match bytes.pop() {
        None => Ok(None),
        Some(b'\n') => match String::from_utf8(bytes) {
            Ok(line) => Ok(Some(line)),
            Err(_) => Err(malformed("a line is not UTF-8")),
        },
        Some(_) => Err(malformed(format!("a line does not end within {LINE_MAX} bytes"))),
    }
}

fn exactly(from: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

fn malformed(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> io::Result<Option<Ask>> {
        Ask::read(&mut bytes)
    }

    #[test]
    fn a_request_is_read_as_it_is_written() {
        let ask = |verb, path: &str, value: &[u8]| Ask {
            verb,
            path: String::from(path),
            value: value.into(),
        };
        for ask in [
            ask(Verb::List, "", b""),
            ask(Verb::Read, "block/sda/a b\nc", b""),
            ask(Verb::Write, "block/sda/queue/scheduler", b"bfq\n\0\xff"),
            ask(Verb::Reload, "", b""),
            ask(Verb::Record, "sda", b""),
            ask(Verb::Replace, "", b"1"),
        ] {
            let mut bytes = ask.encode();
            bytes.extend_from_slice(b"ls 0 0\n");
            let mut stream = bytes.as_slice();
            assert_eq!(Ask::read(&mut stream).unwrap(), Some(ask));
            assert_eq!(stream, b"ls 0 0\n", "the next request is left alone");
        }
        assert_eq!(read(b"").unwrap(), None);
    }

    #[test]
    fn of_a_long_value_a_page_is_kept_and_the_rest_is_passed_over() {
        let mut bytes = format!("set 1 {}\na", 1 << 20).into_bytes();
        bytes.extend(std::iter::repeat_n(b'9', 1 << 20));
        bytes.extend_from_slice(b"get 1 0\nb");
        let mut stream = bytes.as_slice();
        let ask = Ask::read(&mut stream).unwrap().unwrap();
        assert_eq!((ask.value.len(), ask.path.as_str()), (VALUE_MAX, "a"));
        assert_eq!(Ask::read(&mut stream).unwrap().unwrap().path, "b");
    }

    #[test]
    fn what_is_no_request_is_an_error_and_costs_no_memory() {
        for bytes in [
            &b"\n"[..],
            b"get\n",
            b"get 1\n",
            b"get 1 0 0\n",
            b"frob 0 0\n",
            b"get -1 0\n",
            b"get 4097 0\n",
            b"set 1 99999999999\n",
            b"set 1 18446744073709551616\n",
            b"get 3 0\nab",
            b"set 1 5000\nab",
            b"get 1 0\n\xff",
            &[b'a'; 1000],
            b"get 1 0",
        ] {
            let shown = String::from_utf8_lossy(bytes).into_owned();
            assert!(read(bytes).is_err(), "{shown:?}");
        }
    }

    #[test]
    fn an_answer_is_read_as_it_is_written() {
        for answer in [
            Ok(Vec::new()),
            Ok(b"[none] \n".to_vec()),
            Err(Failure::new(Errno::Invalid, "nr_requests 1 is too few")),
        ] {
            let bytes = encode_answer(&answer);
            assert_eq!(read_answer(&mut bytes.as_slice()).unwrap(), answer);
        }
        for bytes in [&b""[..], b"OK\n", b"OK 5\nab", b"EWEIR 0\n", b"OK 99999999999\n"] {
            assert!(read_answer(&mut &*bytes).is_err());
        }
    }

    #[test]
    fn a_listing_is_read_as_it_is_written() {
        let names = [
            (String::from("queue"), Node::Directory),
            (String::from("size"), Node::File { writable: false }),
            (String::from("a b"), Node::File { writable: true }),
            (String::from("a name that ends with a carriage return\r"), Node::Directory),
        ];
        assert_eq!(decode_names(&encode_names(&names)).unwrap(), names);
        assert_eq!(decode_names(b"x y\n"), None);
    }
}

//! The control socket: the tree over a UNIX stream.
//!
//! A request is a line `VERB PATH-BYTES VALUE-BYTES`, then the path, then the value; verbs are
//! `ls`, `get`, `set`, `try` (a `set` of a file of a disk, answered as if those tried before it on
//! the connection had been made, and not made), `reload` (whose path and value are empty), `record`
//! (whose path is the name of a disk) and `replace` (from a daemon that wants to take the place of
//! this one; what follows is theirs). A reply is a line
//! `OK BODY-BYTES` or `ERRNO-NAME BODY-BYTES`, then the body: the text of the file, a line for each
//! name (`d NAME`, `r NAME` or `w NAME`), what a reload did, or the sentence that says what was
//! wrong. Requests of one connection are answered in turn. Behind the reply to `record` comes the
//! recording, until the client shuts its writing side down or the recording ends; then the
//! connection does.
//!
//! The cost of a client is bounded: one thread of a bounded number, a path and a page of value.
//! None of those threads turns a lane, so a store that waits for a disk holds up its client alone.

mod client;
mod recording;
mod server;
pub mod wire;

pub use client::{ClientError, ControlClient};
pub use recording::END;
pub use server::{CLIENTS_MAX, Server};

//! The NBD server.
#![forbid(unsafe_code)]

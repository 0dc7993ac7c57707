//! nbd

#![forbid(unsafe_code)]

//! Nothing: the tests beside it are all there is.

#![forbid(unsafe_code)]

//! The NBD client as a driver.
#![forbid(unsafe_code)]

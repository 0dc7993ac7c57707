//! Statistics as the tools of the trade show them, the columns of `iostat -x`, and results of
//! measurements as documents that any program may read.

#![forbid(unsafe_code)]

pub mod document;
pub mod iostat;
pub mod labels;
pub mod metric;
pub mod window;

//! Statistics as the tools of the trade show them: the columns of `iostat -x`.

#![forbid(unsafe_code)]

pub mod iostat;

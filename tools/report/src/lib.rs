//! Results drawn: what `weir bench` and `weir compare` save, and what people are shown of it.
//!
//! It measures nothing and judges nothing: verdicts and intervals stand in the documents it reads.

#![forbid(unsafe_code)]

pub mod document;

//! The figures of a run: in the shape tools depend on, as a document, and as tables for people.

mod censored;
pub mod document;
pub mod outcome;
pub mod tables;

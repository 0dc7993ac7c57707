//! The deadline family: the worked examples of its spec, what follows from its rules, and random
//! sequences against a plain model of the rules.

#![forbid(unsafe_code)]

mod bed;
mod examples;
mod model;
mod rules;
mod sequences;

//! The C interface: `include/weir.h` over the library, with the shape of libblkio's.
//!
//! A disk is created, told its properties, connected and started; then each thread has a queue of
//! its own, to which it submits and from which it takes completions, blocking, polling or by a
//! descriptor. The header is the documentation of every function; this crate has the functions,
//! and the only foreign pointers of weir.
//!
//! | file | has |
//! |---|---|
//! | `disk_calls.rs`, `queue_calls.rs` | the exported functions: pointers become references here |
//! | `call.rs` | errors for C: errno and message; no panic leaves |
//! | `disk.rs` | what is told before a disk is connected, and its life |
//! | `property.rs` | the table of properties |
//! | `queue.rs`, `slots.rs` | one thread's queue: I/O under way, completions, the descriptor |

#![deny(unsafe_op_in_unsafe_fn)]

mod call;
mod disk;
mod disk_calls;
mod property;
mod queue;
mod queue_calls;
mod slots;

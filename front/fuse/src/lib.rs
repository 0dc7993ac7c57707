//! The tree as a file system, by FUSE: `cat` and `echo` on a disk's attributes, and the disks
//! themselves as files.
//!
//! A mount serves a [`Tree`](weir_control::Tree) under a folder until it is dropped. The text
//! of a file is made when it is read from its beginning, and a write is one store, as in sysfs.
//! Nothing here turns a lane: a store that waits for a disk holds up its writer alone. The disks
//! are a file system of their own, mounted in that of the tree, so that those who look at the tree
//! take no time of the thread that takes the disks' calls. That thread is a reactor, which reads
//! from and writes to `dev/<disk>` without waking another.

#![forbid(unsafe_code)]

mod budget;
mod calls;
mod disk_mount;
mod disks;
mod files;
mod front;
mod inodes;
mod mount;
mod polling;
mod port;
mod wire;

pub use front::KIND;

//! A port of the iSCSI driver, with sockets, against a target that logs in and then does as the
//! input says: the lives of the driver's own test (`drivers/iscsi/tests/wild/mod.rs`), which has
//! the promises and the form of an input.

#[path = "../../../drivers/iscsi/tests/wild/mod.rs"]
mod wild;

pub(crate) use wild::check;

//! Every example does what it says, on memory and on a file.

#![allow(dead_code, reason = "an example's main is called by nobody here")]

mod bed;

#[path = "../examples/callback.rs"]
mod callback;
#[path = "../examples/copy.rs"]
mod copy;
#[path = "../examples/futures.rs"]
mod futures;
#[path = "../examples/session.rs"]
mod session;

use bed::Folder;

#[test]
fn copy_copies_memory_to_memory_and_a_file_to_a_file() {
    copy::run(&[]).unwrap();
    let folder = Folder::new();
    let bytes: Vec<u8> = (0..5_u32 << 20).map(|i| (i / 4096 * 31 + i % 4096) as u8).collect();
    // Not a whole number of blocks.
    let bytes = &bytes[..(5 << 20) - 8192];
    std::fs::write(folder.join("from"), bytes).unwrap();
    let from = format!("file:{}", folder.join("from").display());
    let to = format!("file:{},size={}", folder.join("to").display(), bytes.len());
    copy::run(&[from.clone(), to]).unwrap();
    assert!(std::fs::read(folder.join("to")).unwrap() == bytes);
    let error = copy::run(&[from, "ram:1MiB".into()]).unwrap_err().to_string();
    assert_eq!(error, "the destination has 1048576 bytes, the source 5234688");
}

#[test]
fn futures_callback_and_session_run_on_memory_and_on_a_file() {
    let folder = Folder::new();
    for run in [futures::run, callback::run, session::run] {
        run("ram:64MiB").unwrap();
        run(&format!("file:{},size=64M", folder.join("disk").display())).unwrap();
        run("ram:64MiB,queue_mode=sq").unwrap();
        assert!(run("ram:512").unwrap_err().to_string().contains("512 bytes"));
    }
}

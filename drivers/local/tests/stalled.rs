//! A file whose calls are not answered: it holds up no thread that turns its queue, and its lock
//! stays until the last call has ended.

mod bed;
#[path = "bed/fuse.rs"]
mod fuse;

use std::sync::{Arc, Mutex};

use bed::{Bed, outside};
use fuse::{StallingFile, is_locked, wait_until};
use weir_bio::{Bio, Buf};
use weir_local::file::Backend;
use weir_local::{File, FileOptions};
use weir_queue::{Cancel, Driver};

#[test]
fn a_file_whose_server_stops_holds_up_no_thread_and_stays_locked_until_its_call_has_ended() {
    let Some(file) = StallingFile::new() else { return };
    let other = std::fs::File::open(file.path()).expect("the file opens");
    let driver = File::open(&file.path(), &FileOptions::default()).expect("the driver opens it");
    println!("{:?}", driver.notices());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&heard);
    driver.on_notice(move |notice| told.lock().expect("a list").push(notice.to_owned()));
    let mut bed = Bed::new(&driver);
    bed.one(Bio::write(0, Buf::filled(4096, |bytes| bytes.fill(1))));
    file.stall();
    // Until a thread is inside the call; a request that none had taken is withdrawn.
    wait_until(|| {
        let write = Bio::write(0, Buf::filled(4096, |bytes| bytes.fill(2)));
        assert!(bed.rig.submit(vec![write], bed.now).is_none());
        assert_eq!(bed.rig.cancel_all(bed.now), [Cancel::Pending]);
        assert!(bed.rig.reap(bed.now).is_empty());
        bed.rig.queue().in_flight() > 0
    });
    drop(bed);
    drop(driver);
    assert!(is_locked(&other), "another may write, and then the stalled write lands");
    file.go_on();
    wait_until(|| !is_locked(&other));
    let heard = heard.lock().expect("a list");
    assert!(heard.iter().any(|notice| notice.contains("1 calls under way")), "{heard:?}");
}

#[test]
fn a_fuse_file_is_served_by_threads_and_says_so() {
    let Some(file) = StallingFile::new() else { return };
    let driver = File::open(&file.path(), &FileOptions::default()).expect("the driver opens it");
    assert!(matches!(driver.backend(), Backend::Threads(_)), "{:?}", driver.backend());
    assert!(driver.notices().iter().any(|notice| notice.contains("FUSE")));
}

#[test]
fn a_file_grows_durably_or_is_said_not_to() {
    let Some(file) = StallingFile::new() else { return };
    let driver = File::open(&file.path(), &FileOptions::default()).expect("the driver opens it");
    let before = driver.limits().size();
    let error = driver.enlarge(before.sectors + 8).expect_err("a size that cannot be synced");
    assert!(error.to_string().contains("cannot be made 1052672 bytes long"), "{error}");
    assert_eq!(driver.limits().size(), before);
}

#[test]
fn to_close_an_idle_file_whose_server_stops_takes_no_answer_of_the_server() {
    let Some(file) = StallingFile::new() else { return };
    let other = std::fs::File::open(file.path()).expect("the file opens");
    let driver = File::open(&file.path(), &FileOptions::default()).expect("the driver opens it");
    let mut bed = Bed::new(&driver);
    bed.one(Bio::write(0, Buf::filled(4096, |bytes| bytes.fill(1))));
    file.stall();
    drop(bed);
    drop(driver);
    wait_until(|| !is_locked(&other));
    // Only now: closing this one waits for the server as well.
    file.go_on();
}

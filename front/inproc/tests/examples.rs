//! Every example does what it says, on memory and on a file.

#![allow(dead_code, reason = "an example's main is called by nobody here")]

mod bed;

#[path = "../examples/callback.rs"]
mod callback;
#[path = "../examples/copy.rs"]
mod copy;
#[path = "../examples/eventloop.rs"]
mod eventloop;
#[path = "../examples/lanes.rs"]
mod lanes;
#[path = "../examples/log.rs"]
mod log;
#[path = "../examples/server.rs"]
mod server;
#[path = "../examples/service.rs"]
mod service;
#[path = "../examples/session.rs"]
mod session;

use std::process::Command;

use bed::Folder;
use bed::outside::installed;
use weir::{Bio, Buf, Disk, Status, Target};

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
fn service_log_callback_and_session_run_on_memory_and_on_a_file() {
    let folder = Folder::new();
    for run in [service::run, log::run, callback::run, session::run] {
        run("ram:64MiB").unwrap();
        run(&format!("file:{},size=64M", folder.join("disk").display())).unwrap();
        assert!(run("ram:512").unwrap_err().to_string().contains("512 bytes"));
    }
    for run in [service::run, callback::run, session::run] {
        run("ram:64MiB,queue_mode=sq").unwrap();
    }
    // It has a hard queue for each thread.
    let error = log::run("ram:64MiB,queue_mode=sq").unwrap_err().to_string();
    assert!(error.contains("queue_mode=sq has one queue for all threads"), "{error}");
}

#[test]
fn a_scheduler_of_the_programs_own_is_switched_to_while_i_o_is_under_way() {
    let folder = Folder::new();
    for target in
        ["ram:64MiB,queues=2", &format!("file:{},size=64M", folder.join("disk").display())]
    {
        let target = Target::parse(target).unwrap().schedulers(server::schedulers().unwrap());
        let disk = Disk::builder(target).open().unwrap();
        let mut session = disk.session().unwrap();
        for name in ["reads-first", "mq-deadline", "none", "reads-first"] {
            for block in 0..256 {
                session.submit(Bio::write(block * 8, Buf::filled(4096, |bytes| bytes.fill(7))));
                session.submit(Bio::read((256 + block) * 8, Buf::zeroed(4096)));
            }
            session.flush_plug();
            let device = disk.device().clone();
            let switch = std::thread::spawn(move || {
                device.set_scheduler(name, &|| weir::Clock.now()).map(|_| device.scheduler())
            });
            while session.in_flight() > 0 {
                session.wait(|ended| assert_eq!(ended.status, Status::Ok));
            }
            assert_eq!(switch.join().unwrap().unwrap(), name);
        }
        drop(session);
        disk.close().unwrap();
    }
    // It was added for the other path.
    let target = Target::parse("ram:64MiB,queue_mode=sq").unwrap();
    let target = target.schedulers(server::schedulers().unwrap()).with("scheduler", "reads-first");
    let told = target.and_then(|target| Disk::builder(target).open());
    let error = told.unwrap_err().to_string();
    assert!(error.contains("scheduler reads-first belongs to queue_mode=mq"), "{error}");
}

#[test]
fn a_server_checks_its_own_disk_and_scheduler() {
    server::check(&Folder::new().join("numbers.sock")).unwrap();
}

#[test]
fn a_disk_of_the_programs_own_is_served_to_clients_of_weir_and_of_others() {
    let folder = Folder::new();
    let socket = folder.join("numbers.sock");
    let (server, disk) = server::serve(&socket).unwrap();
    let numbers: Vec<u8> = (0..1 << 17).flat_map(u64::to_le_bytes).collect();

    let target = format!("nbd+unix:{}?numbers", socket.display());
    let client = Disk::builder(target).open().unwrap();
    let mut session = client.session().unwrap();
    let mut found = vec![0; 1 << 20];
    session.read_at(0, &mut found).unwrap();
    assert!(found == numbers);
    session.write_at(512, &[7; 4096]).unwrap();
    session.flush().unwrap();
    let mut own = vec![0; 8192];
    disk.session().unwrap().read_at(0, &mut own).unwrap();
    assert!(own[512..4608] == [7; 4096] && own[..512] == numbers[..512]);
    drop(session);
    client.close().unwrap();

    if installed("nbdinfo") && installed("nbdcopy") {
        let uri = format!("nbd+unix:///numbers?socket={}", socket.display());
        let told = Command::new("nbdinfo").args(["--size", &uri]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "1048576", "{told:?}");
        let [from, to] = ["from", "to"].map(|name| folder.join(name));
        let bytes: Vec<u8> = (0..1_u32 << 20).map(|at| (at / 512 * 3 + at) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        let copy = |from: &std::ffi::OsStr, to: &std::ffi::OsStr| {
            let ended = Command::new("nbdcopy").arg("--flush").args([from, to]).output().unwrap();
            assert!(ended.status.success(), "{ended:?}");
        };
        copy(from.as_os_str(), uri.as_ref());
        copy(uri.as_ref(), to.as_os_str());
        assert!(std::fs::read(&to).unwrap() == bytes);
    }
    server::stop(&server, &disk).unwrap();
    assert!(!socket.exists(), "the socket's file is gone");
}

#[test]
fn an_event_loop_and_a_thread_for_each_lane_run_on_memory_and_on_a_file() {
    let folder = Folder::new();
    let file = format!("file:{},size=64M", folder.join("disk").display());
    for run in [eventloop::run, lanes::run] {
        for target in ["ram:64MiB", &file] {
            run(target).unwrap();
        }
        assert!(run("ram:512").unwrap_err().to_string().contains("512 bytes"));
    }
    // A driver without an event, which says when to look; it keeps nothing to be read back.
    lanes::run("null:64MiB,latency_us=20").unwrap();
}

//! The same refusal is the same errno and the same sentence whichever way an I/O came in.

mod bed;

use std::sync::mpsc::channel;

use bed::Folder;
use weir::nbd::{Address, Export, Scope, Server, Settings};
use weir::{Bio, Buf, Data, Disk, Flags, InlineSession, IoError, Op, Session, Status, Turner};

/// Bytes of each disk.
const SIZE: u64 = 1 << 20;

/// Makes an I/O.
type Made = fn() -> Bio;

/// A blocking call.
type Call = fn(&mut Session) -> Result<(), IoError>;

/// A refused I/O of an inline session: the blocking call for it.
type InlineCall = fn(&mut InlineSession) -> Result<(), IoError>;

/// An I/O that is refused.
struct Bad {
    what: &'static str,
    /// Made anew for each way.
    bio: Made,
    /// The blocking call for it, if there is one.
    call: Option<Call>,
    status: Status,
    /// The end of the sentence.
    told: &'static str,
}

fn page() -> Buf {
    Buf::zeroed(4096)
}

fn range(op: Op, sector: u64, sectors: u32) -> Bio {
    Bio::new(op, sector, sectors, Data::None)
}

/// How it ends by each way that gives a completion.
fn completions(disk: &Disk, bad: &Bad) -> Vec<(&'static str, Status)> {
    let mut ends = vec![("start", disk.start((bad.bio)()).wait().status)];
    let pending = disk.try_start((bad.bio)()).expect("room");
    ends.push(("try_start", pending.wait().status));
    let (sender, receiver) = channel();
    let told = sender.clone();
    disk.submit((bad.bio)(), move |ended| told.send(ended.status).expect("it is waited for"));
    ends.push(("submit", receiver.recv().expect("an answer")));
    let tell = move |ended: weir::Completion| sender.send(ended.status).expect("it is waited for");
    assert!(disk.try_submit((bad.bio)(), tell).is_ok(), "room");
    ends.push(("try_submit", receiver.recv().expect("an answer")));
    let permit = disk.try_reserve().expect("room");
    ends.push(("permit", permit.start((bad.bio)()).wait().status));
    ends
}

/// And by a session, where others are under way beside it.
fn of_session<T: Turner>(session: &mut Session<T>, bad: &Bad) -> Status {
    session.submit(Bio::read(0, page()).cookie(1));
    session.submit((bad.bio)().cookie(2));
    session.submit(Bio::read(8, page()).cookie(3));
    let mut found = None;
    while session.in_flight() > 0 {
        session.wait(|ended| match ended.cookie {
            2 => found = Some(ended.status),
            _ => assert!(ended.status.is_ok() || ended.status == Status::Offline),
        });
    }
    found.expect("its end")
}

fn check(disk: &Disk, session: &mut Session, bad: &Bad) {
    let what = bad.what;
    for (way, status) in completions(disk, bad) {
        assert_eq!(status, bad.status, "{what} by {way}");
    }
    assert_eq!(of_session(session, bad), bad.status, "{what} by a session");
    let bio = (bad.bio)();
    let error = disk.error_of(bio.op, bio.sector, bio.sectors, bad.status);
    assert_eq!(error.errno(), bad.status.errno(), "{what}");
    let text = error.to_string();
    assert!(text.ends_with(bad.told), "{what}: {text}");
    if let Some(call) = bad.call {
        let told = call(session).expect_err(what);
        assert_eq!((told.errno(), told.to_string()), (error.errno(), text), "{what}");
        assert_eq!(told, error, "{what}");
    }
}

/// Refused for its place on blocks of 4096 bytes.
const MISPLACED: &[Bad] = &[
    Bad {
        what: "a read off a block",
        bio: || Bio::read(1, page()),
        call: Some(|session| session.read_at(512, &mut [0; 4096])),
        status: Status::Inval,
        told: "offset=512 is not a multiple of the logical block, 4096 bytes",
    },
    Bad {
        what: "a write of a part of a block",
        bio: || Bio::write(8, Buf::zeroed(512)),
        call: Some(|session| session.write_at(4096, &[0; 512])),
        status: Status::Inval,
        told: "length=512 is not a multiple of the logical block, 4096 bytes",
    },
    Bad {
        what: "a discard off a block",
        bio: || range(Op::Discard, 3, 8),
        call: Some(|session| session.discard(1536, 4096)),
        status: Status::Inval,
        told: "offset=1536 is not a multiple of the logical block, 4096 bytes",
    },
    Bad {
        what: "a read beyond the end",
        bio: || Bio::read(SIZE / 512, page()),
        call: Some(|session| session.read_at(SIZE, &mut [0; 4096])),
        status: Status::Inval,
        told: "end=1052672 is beyond the disk's size, 1048576 bytes",
    },
    Bad {
        what: "a write across the end",
        bio: || Bio::write(SIZE / 512 - 8, Buf::zeroed(8192)),
        call: Some(|session| session.write_at(SIZE - 4096, &[0; 8192])),
        status: Status::NoSpc,
        told: "end=1052672 is beyond the disk's size, 1048576 bytes",
    },
    Bad {
        what: "a durable write beyond the end",
        bio: || Bio::write(SIZE / 512, page()).with(Flags::FUA),
        call: Some(|session| session.write_at_durable(SIZE, &[0; 4096])),
        status: Status::NoSpc,
        told: "end=1052672 is beyond the disk's size, 1048576 bytes",
    },
    Bad {
        what: "zeroes beyond the end",
        bio: || range(Op::WriteZeroes, SIZE / 512, 8),
        call: Some(|session| session.write_zeroes(SIZE, 4096, true)),
        status: Status::NoSpc,
        told: "end=1052672 is beyond the disk's size, 1048576 bytes",
    },
    Bad {
        what: "a discard beyond the end",
        bio: || range(Op::Discard, SIZE / 512, 8),
        call: Some(|session| session.discard(SIZE, 4096)),
        status: Status::Inval,
        told: "end=1052672 is beyond the disk's size, 1048576 bytes",
    },
];

#[test]
fn a_place_that_is_off_a_block_or_beyond_the_end_is_refused_alike_by_every_way() {
    for mode in ["", ",queue_mode=sq"] {
        let target = format!("ram:1MiB,logical_block_size=4096{mode}");
        let disk = Disk::builder(target).name("sda").open().unwrap();
        let mut session = disk.session().unwrap();
        MISPLACED.iter().for_each(|bad| check(&disk, &mut session, bad));
        let last = disk.start(Bio::read(u64::MAX - 7, page())).wait().status;
        assert_eq!(last, Status::Inval, "a place that has no 64 bits in bytes");
    }
}

#[test]
fn a_disk_that_may_only_be_read_refuses_writes_alike_by_every_way() {
    let disk = Disk::builder("ram:1MiB,readonly").name("sda").open().unwrap();
    let mut session = disk.session().unwrap();
    let told = "the disk is read-only";
    let status = Status::ReadOnly;
    let calls: [(&str, Made, Call); 3] = [
        ("write", || Bio::write(0, page()), |session| session.write_at(0, &[0; 4096])),
        ("discard", || range(Op::Discard, 0, 8), |session| session.discard(0, 4096)),
        ("zeroes", || range(Op::WriteZeroes, 0, 8), |session| session.write_zeroes(0, 4096, true)),
    ];
    for (what, bio, call) in calls {
        check(&disk, &mut session, &Bad { what, bio, call: Some(call), status, told });
    }
    assert_eq!(std::io::Error::from(status).kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn what_is_too_large_malformed_or_not_offered_is_refused_alike_by_every_way() {
    let disk = Disk::builder("null:8GiB").name("sda").open().unwrap();
    let mut session = disk.session().unwrap();
    disk.device().reconfigure(|settings| settings.limits.max_user_discard_sectors = 0).unwrap();
    for bad in [
        Bad {
            what: "a read of 4 GiB",
            bio: || Bio::new(Op::Read, 0, 8 << 20, Data::Zero { len: u32::MAX, spare: None }),
            call: None,
            status: Status::Inval,
            told: "malformed request",
        },
        Bad {
            what: "a write with too little memory",
            bio: || Bio::new(Op::Write, 0, 16, Data::One(page())),
            call: None,
            status: Status::Inval,
            told: "malformed request",
        },
        Bad {
            what: "a discard that is not offered",
            bio: || range(Op::Discard, 0, 8),
            call: Some(|session| session.discard(0, 4096)),
            status: Status::NotSupp,
            told: "operation not supported",
        },
    ] {
        check(&disk, &mut session, &bad);
    }
}

#[test]
fn a_closed_disk_refuses_alike_by_every_way() {
    let disk = Disk::builder("ram:1MiB").name("sda").open().unwrap();
    let mut session = disk.session().unwrap();
    disk.close().unwrap();
    for bad in [
        Bad {
            what: "read",
            bio: || Bio::read(0, page()),
            call: Some(|session| session.read_at(0, &mut [0; 4096])),
            status: Status::Offline,
            told: "device offline",
        },
        Bad {
            what: "flush",
            bio: Bio::flush,
            call: Some(Session::flush),
            status: Status::Offline,
            told: "disk sda: flush: device offline",
        },
    ] {
        check(&disk, &mut session, &bad);
    }
}

#[test]
fn a_disk_that_has_grown_is_used_to_its_new_end_by_every_way_and_no_further() {
    let disk = Disk::builder("null:1MiB").name("sda").open().unwrap();
    let mut session = disk.session().unwrap();
    let larger = weir_bio::Size { sectors: 2 * SIZE / 512, padding: 0 };
    disk.device().reconfigure(move |settings| settings.limits.grow_to(larger)).unwrap();
    session.read_at(SIZE, &mut [0; 4096]).unwrap();
    assert_eq!(disk.start(Bio::read(SIZE / 512, page())).wait().status, Status::Ok);
    check(
        &disk,
        &mut session,
        &Bad {
            what: "a write beyond the new end",
            bio: || Bio::write(2 * SIZE / 512, page()),
            call: Some(|session| session.write_at(2 * SIZE, &[0; 4096])),
            status: Status::NoSpc,
            told: "end=2101248 is beyond the disk's size, 2097152 bytes",
        },
    );
}

/// The same calls on a disk of the calling thread, in the order of [`MISPLACED`].
const INLINE_CALLS: &[InlineCall] = &[
    |session| session.read_at(512, &mut [0; 4096]),
    |session| session.write_at(4096, &[0; 512]),
    |session| session.discard(1536, 4096),
    |session| session.read_at(SIZE, &mut [0; 4096]),
    |session| session.write_at(SIZE - 4096, &[0; 8192]),
    |session| session.write_at_durable(SIZE, &[0; 4096]),
    |session| session.write_zeroes(SIZE, 4096, true),
    |session| session.discard(SIZE, 4096),
];

#[test]
fn a_disk_of_one_thread_refuses_as_one_of_reactors_does() {
    let target = "ram:1MiB,logical_block_size=4096";
    let mut session = Disk::builder(target).name("sda").open_inline().unwrap();
    assert_eq!(MISPLACED.len(), INLINE_CALLS.len());
    for (bad, call) in MISPLACED.iter().zip(INLINE_CALLS) {
        assert_eq!(of_session(&mut session, bad), bad.status, "{}", bad.what);
        let told = call(&mut session).expect_err(bad.what);
        assert_eq!(told.errno(), bad.status.errno(), "{}", bad.what);
        assert!(told.to_string().ends_with(bad.told), "{}: {told}", bad.what);
    }
    session.close().unwrap();
    let mut session = Disk::builder("ram:1MiB,readonly").name("sda").open_inline().unwrap();
    let told = session.write_at(0, &[0; 4096]).expect_err("it may only be read");
    assert_eq!((told.status, told.errno()), (Status::ReadOnly, Status::ReadOnly.errno()));
    session.close().unwrap();
}

#[test]
fn a_disk_over_nbd_refuses_as_the_disk_itself_does() {
    let folder = Folder::new();
    for (number, options) in ["logical_block_size=4096", "readonly"].into_iter().enumerate() {
        let disk = Disk::builder(format!("ram:1MiB,{options}")).name("sda").open().unwrap();
        let exports = vec![Export::new("sda", disk.device().clone())];
        let server = Server::new(disk.host(), exports, Settings::default()).unwrap();
        let socket = folder.join(&number.to_string());
        server.listen(&Address::Unix(socket.clone()).into(), Scope::All).unwrap();
        let target = format!("nbd+unix:{}?sda,logical_block_size=4096", socket.display());
        let client = Disk::builder(target).name("sda").open().unwrap();
        let mut session = client.session().unwrap();
        if options == "readonly" {
            let told = session.write_at(0, &[0; 4096]).expect_err("it may only be read");
            assert_eq!((told.status, told.errno()), (Status::ReadOnly, Status::ReadOnly.errno()));
        } else {
            MISPLACED.iter().for_each(|bad| check(&client, &mut session, bad));
        }
        drop(session);
        client.close().unwrap();
        assert_eq!(server.stop(10_000_000_000), 0, "clients that were cut off");
        disk.close().unwrap();
    }
}

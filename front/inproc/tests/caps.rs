//! Caps of groups hold for every way into a disk of this process.

use std::num::NonZeroU64;
use std::sync::Arc;

use weir::{Bio, Buf, Caps, Disk, GroupId, Groups, Refused, Status};

/// A disk in memory, and a group on it that may read a byte a second: its second read of a block
/// is due in minutes.
fn capped() -> (Disk, Arc<Groups>, GroupId) {
    let disk = Disk::open("ram:1M").unwrap();
    let groups = Arc::new(Groups::default());
    let id = groups.create("slow").unwrap();
    disk.device().attach_groups(&groups);
    let caps = Caps { rbps: NonZeroU64::new(1), ..Caps::default() };
    groups.set_caps(id, caps).unwrap();
    (disk, groups, id)
}

fn read(group: GroupId) -> Bio {
    Bio { group, ..Bio::read(0, Buf::zeroed(4096)) }
}

#[test]
fn a_session_is_told_when_a_cap_lets_its_next_io_in() {
    let (disk, groups, slow) = capped();
    let mut session = disk.session().unwrap();
    session.submit(read(slow));
    let mut ended = Vec::new();
    session.wait(|completion| ended.push(completion.status));
    assert_eq!(ended, [Status::Ok]);
    let refused = session.try_submit(read(slow).cookie(5));
    let Err(Refused::Capped { bio: Bio { cookie: 5, .. }, until }) = refused else {
        panic!("{refused:?}")
    };
    assert!(until.since(weir::Clock.now()) > 60_000_000_000, "{until:?}");
    session.try_submit(read(GroupId(0))).expect("no cap binds the root");
    session.wait(|completion| ended.push(completion.status));
    assert_eq!((ended.len(), groups.used_on(slow, disk.name()).ios), (2, [1, 0]));
    // A blocking call goes on when the cap is lifted.
    groups.set_caps(GroupId(0), Caps { rbps: NonZeroU64::new(1), ..Caps::default() }).unwrap();
    let mut bytes = [0; 512];
    session.read_at(0, &mut bytes).unwrap();
    let lifter = std::thread::spawn({
        let groups = Arc::clone(&groups);
        move || groups.set_caps(GroupId(0), Caps::default()).unwrap()
    });
    session.read_at(0, &mut bytes).unwrap();
    lifter.join().unwrap();
    assert_eq!(groups.used_on(GroupId(0), disk.name()).ios, [3, 0]);
}

#[test]
fn io_that_a_cap_holds_back_delays_no_other_group_and_ends_with_the_disk() {
    let (disk, groups, slow) = capped();
    assert_eq!(disk.start(read(slow)).wait().status, Status::Ok);
    let held = [disk.start(read(slow)), disk.start(read(slow))];
    // It comes behind those, and everything goes through reactors in order.
    let others: Vec<_> = (0..64).map(|_| disk.start(read(GroupId(0)))).collect();
    assert!(others.into_iter().all(|other| other.wait().status == Status::Ok));
    assert!(!held[0].has_ended() && !held[1].has_ended());
    disk.close().unwrap();
    for held in held {
        assert_eq!(held.wait().status, Status::Offline, "it was never accepted");
    }
    assert_eq!(groups.used_on(slow, disk.name()).ios, [1, 0]);
}

#[test]
fn io_that_a_cap_holds_back_goes_on_when_the_cap_is_lifted() {
    let (disk, groups, slow) = capped();
    assert_eq!(disk.start(read(slow)).wait().status, Status::Ok);
    let held: Vec<_> = (0..10).map(|_| disk.start(read(slow))).collect();
    assert!(!held.iter().any(|held| held.has_ended()));
    groups.set_caps(slow, Caps::default()).unwrap();
    assert!(held.into_iter().all(|held| held.wait().status == Status::Ok));
    assert_eq!(groups.used_on(slow, disk.name()).ios, [11, 0]);
}

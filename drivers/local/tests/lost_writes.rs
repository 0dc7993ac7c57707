//! Writes that the kernel took into its page cache and then could not write: a block device whose
//! backing file has no room for them. Each hard queue is told, whatever another was told before.

mod bed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use bed::outside::leave_out;
use bed::{Bed, LoopDevice};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use weir_bio::{Bio, Buf, Data, Flags, Op, Status};
use weir_local::{File, FileOptions, Io};
use weir_queue::Driver;

const MIB: usize = 1 << 20;

/// A file system in memory with room for so many bytes; it goes with this.
struct SmallFileSystem(PathBuf);

impl SmallFileSystem {
    fn new(bytes: usize) -> Option<SmallFileSystem> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-small-{}-{count}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let size = std::ffi::CString::new(format!("size={bytes}")).expect("no zero");
        match mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), Some(&*size)) {
            Ok(()) => Some(SmallFileSystem(folder)),
            Err(errno) => {
                _ = std::fs::remove_dir(&folder);
                leave_out(&format!("a tmpfs cannot be mounted: {errno}"));
                None
            }
        }
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        _ = unmount(&self.0, UnmountFlags::DETACH);
        _ = std::fs::remove_dir(&self.0);
    }
}

/// A block device that loses most of what is written to it.
struct Lossy {
    device: LoopDevice,
    _below: SmallFileSystem,
}

impl Lossy {
    fn new() -> Option<Lossy> {
        let below = SmallFileSystem::new(MIB)?;
        match LoopDevice::within(&below.0, 16 * MIB as u64, 512) {
            Ok(device) => Some(Lossy { device, _below: below }),
            Err(error) => {
                leave_out(&format!("no loop device: {error}"));
                None
            }
        }
    }

    fn open(&self, io: Io) -> File {
        let options = FileOptions { direct: false, io, ..FileOptions::default() };
        File::open(self.device.path(), &options).expect("the driver opens it")
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        // Else the kernel goes on trying to write what it has no room for.
        _ = Command::new("blockdev").arg("--flushbufs").arg(self.device.path()).output();
    }
}

fn writes() -> Vec<Bio> {
    let write = |n: usize| Bio::write((n * MIB / 512) as u64, Buf::filled(MIB, |b| b.fill(7)));
    (0..8).map(write).collect()
}

fn flush() -> Bio {
    Bio::new(Op::Flush, 0, 0, Data::None)
}

/// A hard queue of the driver.
fn queue(driver: &File, index: u16) -> Bed {
    let depth = driver.queues().depth;
    Bed::of(driver.open(index, depth).expect("a queue"), depth)
}

#[test]
fn a_lost_write_fails_the_flushes_of_all_queues_though_one_was_told_before() {
    for (io, blocks) in
        [Io::Auto, Io::Threads].map(|io| [false, true].map(|yes| (io, yes))).concat()
    {
        let Some(lossy) = Lossy::new() else { return };
        let driver = lossy.open(io);
        let [mut first, mut second] = [0, 1].map(|index| queue(&driver, index));
        for answer in second.run(writes()) {
            assert_eq!(answer.status, Status::Ok, "the page cache has room");
        }
        if blocks {
            assert!(first.rig.queue().may_block());
        }
        assert!(first.rig.submit(vec![flush()], first.now).is_none());
        // The kernel has told the first queue, which has not looked at it yet.
        first.wait();
        let told = second.run(vec![flush()]).remove(0).status;
        assert_eq!(told, Status::IoErr, "{io:?}, {blocks}: the other queue was told, not this one");
        let told = first.rig.reap(first.now).remove(0).status;
        assert_eq!(told, Status::IoErr, "{io:?}, {blocks}");
        // Nothing is called durable any more.
        let durable = Bio::write(0, Buf::zeroed(4096)).with(Flags::FUA);
        let told = first.run(vec![durable]).remove(0).status;
        assert_eq!(told, Status::IoErr, "{io:?}, {blocks}");
    }
}

#[test]
fn a_durable_write_that_is_told_of_a_lost_one_leaves_no_flush_in_ignorance() {
    for io in [Io::Auto, Io::Threads] {
        let Some(lossy) = Lossy::new() else { return };
        let driver = lossy.open(io);
        let [mut first, mut second] = [0, 1].map(|index| queue(&driver, index));
        assert!(second.run(writes()).iter().all(|answer| answer.status.is_ok()));
        let durable = Bio::write(0, Buf::zeroed(4096)).with(Flags::FUA);
        assert!(!first.run(vec![durable]).remove(0).status.is_ok(), "{io:?}");
        for queue in [&mut second, &mut first] {
            assert!(!queue.run(vec![flush()]).remove(0).status.is_ok(), "{io:?}");
        }
    }
}

//! What a target states of its device: it shows, holds for every I/O, and is held against the
//! device.

use weir::{Disk, OpenedPool, Target, open_pool};
use weir_bio::{Bio, Buf};

fn disk(target: &str) -> Result<Disk, String> {
    Disk::builder(target).name("d").reactors(1).open().map_err(|error| error.to_string())
}

/// A file of so many bytes that goes with the value.
struct Image(std::path::PathBuf);

impl Image {
    fn new(name: &str, bytes: u64) -> Image {
        let path = std::env::temp_dir().join(format!("weir-stated-{}-{name}", std::process::id()));
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
        Image(path)
    }

    fn target(&self) -> String {
        format!("file:{},cache=writeback", self.0.display())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn every_kind_of_target_takes_the_options_and_its_device_has_them() {
    let image = Image::new("kinds", 8 << 20);
    for target in [
        String::from("null:8MiB"),
        String::from("ram:8MiB"),
        String::from("model:nvme-980pro,size=8MiB"),
        image.target(),
        String::from("linear:ram:4MiB+ram:4MiB"),
        String::from("striped:64KiB:ram:4MiB+ram:4MiB"),
        String::from("fault:ram:8MiB"),
    ] {
        for (rotational, logical, physical) in [(true, 4096, 8192), (false, 1024, 1024)] {
            let text = format!(
                "{target},rotational={},logical_block_size={logical},\
                 physical_block_size={physical}",
                u8::from(rotational)
            );
            let disk = disk(&text).expect(&text);
            let limits = disk.limits();
            let found = (limits.rotational, limits.logical_block_size, limits.physical_block_size);
            assert_eq!(found, (rotational, logical, physical), "{text}");
            assert_eq!(disk.size(), 8 << 20, "{text}");
            let mut session = disk.session().expect("a way in");
            session.write_at(4096, &[7; 4096]).expect(&text);
            session.read_at(8192, &mut [1; 1024]).expect_err_if(logical > 1024, &text);
            disk.close().expect("closes");
        }
    }
}

/// An error exactly where one is expected.
trait ExpectErrIf {
    fn expect_err_if(self, expected: bool, text: &str);
}

impl<T, E: std::fmt::Debug> ExpectErrIf for Result<T, E> {
    #[track_caller]
    fn expect_err_if(self, expected: bool, text: &str) {
        match self {
            Ok(_) => assert!(!expected, "{text}: no error"),
            Err(error) => assert!(expected, "{text}: {error:?}"),
        }
    }
}

#[test]
fn no_bio_inside_a_block_reaches_the_device() {
    let disk = disk("ram:1MiB,logical_block_size=4096").expect("a disk");
    for (sector, sectors) in [(1, 8), (0, 1), (8, 7)] {
        let bio = Bio::write(sector, Buf::zeroed(sectors * 512));
        let status = disk.start(bio).wait().status;
        assert!(!status.is_ok(), "{sector}+{sectors}: {status:?}");
    }
    let whole = Bio::write(8, Buf::zeroed(4096));
    assert!(disk.start(whole).wait().status.is_ok());
    disk.close().expect("closes");
}

#[test]
fn what_a_device_cannot_have_is_refused_with_value_bound_and_place() {
    let odd = Image::new("odd", 5 << 10);
    for (target, part) in [
        (
            format!("{},logical_block_size=4096", odd.target()),
            "d: logical_block_size=4096: its size of 5120 bytes is no multiple of it",
        ),
        (
            String::from("linear:ram:8MiB\\,logical_block_size=4096,logical_block_size=512"),
            "d: logical_block_size=512 is below that of its device, which is 4096",
        ),
        (
            String::from("linear:ram:8MiB\\,logical_block_size=4096,physical_block_size=1024"),
            "d: physical_block_size=1024 is below the logical block of its device, which is 4096",
        ),
    ] {
        let why = disk(&target).expect_err(&target);
        assert_eq!(why, part);
    }
    // The same file in blocks that fit.
    let disk = disk(&format!("{},logical_block_size=1024", odd.target())).expect("five blocks");
    assert_eq!(disk.size(), 5 << 10);
    disk.close().expect("closes");
}

#[test]
fn a_file_that_grows_by_part_of_a_block_shows_whole_blocks() {
    let image = Image::new("grows", 8 << 10);
    let disk = disk(&format!("{},logical_block_size=4096", image.target())).expect("a disk");
    let file = std::fs::File::options().write(true).open(&image.0).expect("the file");
    file.set_len((16 << 10) + 512).expect("it grows");
    let size = disk.device().enlarge(0).expect("a size");
    assert_eq!((size.sectors, size.padding), (32, 0));
    disk.device().reconfigure(|parts| parts.limits.grow_to(size)).expect("whole blocks");
    assert_eq!(disk.limits().capacity, 32);
    disk.close().expect("closes");
}

#[test]
fn disks_of_a_pool_have_its_largest_block_and_their_sizes_are_multiples_of_it() {
    let queue = Target::parse("null:4KiB").expect("a target");
    let open = |second: &str| {
        let [first, second] =
            ["ram:1MiB,logical_block_size=4096,rotational=1", second].map(|text| {
                let target = Target::parse(text).expect(text);
                weir::check_partition(&target).expect("it states no queue");
                target
            });
        open_pool("p", &queue, &[("a", &first), ("b", &second)], 1)
    };
    let OpenedPool { pool, disks } = open("ram:1MiB").expect("two of whole blocks");
    assert!(pool.device.limits().rotational);
    for disk in [&pool, &disks[0], &disks[1]] {
        assert_eq!(disk.device.limits().logical_block_size, 4096);
    }
    let odd = open("ram:1537KiB").err().expect("one that ends inside a block").to_string();
    assert_eq!(
        odd,
        "b: partition b has 1573888 bytes, no multiple of the pool's logical blocks of 4096"
    );
}

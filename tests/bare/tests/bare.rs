//! The library without features, or with one: what is there works, and what is not is named.
//!
//! cargo test --manifest-path tests/bare/Cargo.toml --target-dir target/bare [--features nbd]

use std::io;
use std::sync::Mutex;

use weir::{Bio, Blocking, BlockingDriver, BlockingOptions, Buf, Disk, Target};

/// A disk of the program's own, in memory.
struct Memory(Mutex<Vec<u8>>);

impl BlockingDriver for Memory {
    fn size(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        bytes.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..bytes.len()]);
        Ok(bytes.len())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Each way in writes a block of its own and reads it.
fn every_way_in(disk: &Disk) {
    let mut session = disk.session().unwrap();
    session.write_at(0, &[1; 4096]).unwrap();
    session.flush().unwrap();
    let written = disk.start(Bio::write(8, Buf::filled(4096, |b| b.fill(2)))).wait();
    assert!(written.status.is_ok());
    let (sender, receiver) = std::sync::mpsc::channel();
    disk.submit(Bio::write(16, Buf::filled(4096, |b| b.fill(3))), move |ended| {
        sender.send(ended.status).unwrap();
    });
    assert!(receiver.recv().unwrap().is_ok());
    let mut bytes = [0; 3 * 4096];
    session.read_at(0, &mut bytes).unwrap();
    assert!((0..3).all(|block| bytes[block * 4096..][..4096] == [block as u8 + 1; 4096]));
}

#[test]
fn memory_files_mapped_disks_and_drivers_of_the_program_are_there() {
    let file = std::env::temp_dir().join(format!("weir-bare-{}.img", std::process::id()));
    let own = Blocking::new(Memory(Mutex::new(vec![0; 1 << 20])), BlockingOptions::new()).unwrap();
    let disks = [
        Disk::open("ram:1MiB").unwrap(),
        Disk::open(&format!("file:{},size=1M", file.display())).unwrap(),
        Disk::open("striped:64KiB:ram:1MiB+ram:1MiB").unwrap(),
        Disk::builder(own).open().unwrap(),
    ];
    for disk in &disks {
        every_way_in(disk);
        disk.close().unwrap();
    }
    std::fs::remove_file(file).unwrap();
    let mut session = Disk::builder("ram:1MiB").open_inline().unwrap();
    session.write_at_durable(0, &[7; 512]).unwrap();
    session.close().unwrap();
}

#[test]
fn a_target_whose_feature_is_missing_is_refused_with_its_name() {
    let nbd = if cfg!(feature = "nbd") { "" } else { "nbd" };
    let tls = if cfg!(feature = "nbd") { "tls" } else { "nbd" };
    for (target, feature) in [
        ("nbd:localhost:10809", nbd),
        ("nbd+unix:/s.sock", nbd),
        // Also where a folder of certificates is missing besides.
        ("nbds://host", tls),
        ("nbds://host,tls-certificates=/none", tls),
        ("nbds+unix:/s.sock", tls),
        ("iscsi:host/iqn.2001-04.com.example:disk", "iscsi"),
        ("scsi-sim:", "scsi-sim"),
    ] {
        let told = Target::parse(target).err().unwrap_or_default();
        let expected = match feature {
            "" => String::new(),
            feature => {
                let (name, _) = target.split_once(':').unwrap();
                format!("target {target:?}: {name}: takes the feature `{feature}` of weir-block")
            }
        };
        assert_eq!(told, expected);
    }
}

//! Which targets are one device, however they are written: it is opened once.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use weir::{Backing, Disk, Target};
use weir_load::Amount;

/// The devices behind some targets.
#[derive(Debug)]
pub(crate) struct Devices {
    /// Each once, with its name as first written.
    pub(crate) devices: Vec<(String, Target)>,
    /// For each target, the number of its device.
    pub(crate) of: Vec<usize>,
}

/// What tells a device from others.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// What has no other name than its target.
    Text(String),
    /// A block device, by its number.
    Block(u64),
    /// A file: its file system, and its number there.
    File(u64, u64),
    /// A file that is not there yet, under the one name of its directory.
    Missing(PathBuf),
    /// An export of a server.
    Export(String, String),
}

impl Devices {
    /// Those of such targets. A file that is to be made gets the largest size asked for.
    ///
    /// # Errors
    /// What is no target; targets that are one device and differ in their options.
    pub(crate) fn of(targets: &[String]) -> Result<Devices, String> {
        let mut found = Devices { devices: Vec::new(), of: Vec::new() };
        let mut places: Vec<Place> = Vec::new();
        for name in targets {
            let target = Target::parse(name)?;
            let place = place_of(name, &target);
            let known = places.iter().position(|known| *known == place);
            let Some(known) = known else {
                found.of.push(found.devices.len());
                found.devices.push((name.clone(), target));
                places.push(place);
                continue;
            };
            let (first, opened) = &mut found.devices[known];
            if !agree(opened, &target) {
                return Err(format!(
                    "{first} and {name} are one device: give it the same options everywhere"
                ));
            }
            if let (Backing::File { size: mine, .. }, Backing::File { size, .. }) =
                (&mut opened.backing, &target.backing)
            {
                *mine = (*mine).max(*size);
            }
            found.of.push(known);
        }
        Ok(found)
    }
}

/// Bytes of a mark, and what its place is a multiple of.
const MARK: u64 = 4096;

/// The first two of these that are one device: a mark of this run is written through one of them,
/// at each of `marks`, looked for through the others, and what stood there is put back. A device
/// that is memory of this process is one of its own.
///
/// # Errors
/// What cannot be opened, read or written, with its name.
pub(crate) fn same_device(
    devices: &[(String, Target)],
    marks: &[(usize, Amount)],
    run: u64,
) -> Result<Option<(String, String)>, String> {
    let is_apart =
        |target: &Target| matches!(target.backing, Backing::Null { .. } | Backing::Ram { .. });
    let mut disks = Vec::new();
    for (name, target) in devices {
        let open = || Disk::builder(target.clone()).open().map_err(|e| format!("{name}: {e}"));
        disks.push(if is_apart(target) { None } else { Some(open()?) });
    }
    for (number, (writer, offset)) in marks.iter().enumerate() {
        let Some(disk) = &disks[*writer] else { continue };
        let known = marks[..number].contains(&(*writer, *offset));
        let at = offset.of(disk.size(), MARK) / MARK * MARK;
        // A disk that cannot be written is refused later, and by a better reason.
        if known || at + MARK > disk.size() || disk.limits().read_only {
            continue;
        }
        let others: Vec<_> = (0..disks.len()).filter(|other| other != writer).collect();
        let seen = seen_through(&devices[*writer].0, disk, &disks, &others, at, run);
        if let Some(other) = seen? {
            return Ok(Some((devices[*writer].0.clone(), devices[other].0.clone())));
        }
    }
    Ok(None)
}

/// Which of the others shows a mark that is written at `at`.
fn seen_through(
    name: &str,
    disk: &Disk,
    disks: &[Option<Disk>],
    others: &[usize],
    at: u64,
    run: u64,
) -> Result<Option<usize>, String> {
    let why = |error: weir::IoError| format!("{name}: a mark at byte {at}: {error}");
    let mut session = disk.session().map_err(|e| e.to_string())?;
    let mut before = vec![0; MARK as usize];
    session.read_at(at, &mut before).map_err(why)?;
    let mut mark = vec![0; MARK as usize];
    weir_bio::Prng::new(run).fill(&mut mark);
    session.write_at(at, &mark).map_err(why)?;
    let mut found = vec![0; MARK as usize];
    let seen = others.iter().copied().find(|other| {
        let Some(other) = disks[*other].as_ref().filter(|other| at + MARK <= other.size()) else {
            return false;
        };
        // One that cannot be read there is not the one that was written.
        let read = other.session().ok().and_then(|mut s| s.read_at(at, &mut found).ok());
        read.is_some() && found == mark
    });
    session.write_at(at, &before).map_err(why)?;
    Ok(seen)
}

/// A path under its one name, as far as it is there.
fn canonical(path: &Path) -> PathBuf {
    let in_directory = || {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(directory.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_directory).unwrap_or_else(|| path.to_path_buf())
}

fn place_of(name: &str, target: &Target) -> Place {
    match &target.backing {
        Backing::Null { .. } | Backing::Ram { .. } => Place::Text(String::from(name)),
        Backing::File { path, .. } => match std::fs::metadata(path) {
            Ok(data) if data.file_type().is_block_device() => Place::Block(data.rdev()),
            Ok(data) => Place::File(data.dev(), data.ino()),
            Err(_) => Place::Missing(canonical(path)),
        },
        Backing::Nbd { server, export, .. } => {
            let text = server.to_string();
            let server = match text.strip_prefix("nbd+unix:") {
                Some(path) => canonical(Path::new(path)).display().to_string(),
                None => text,
            };
            Place::Export(server, export.clone())
        }
    }
}

/// Whether two targets on one device say the same but for where it is, and how large it is to be.
fn agree(one: &Target, two: &Target) -> bool {
    let mut two = two.clone();
    match (&one.backing, &mut two.backing) {
        (Backing::File { path, size, .. }, Backing::File { path: other, size: bytes, .. }) => {
            other.clone_from(path);
            *bytes = *size;
        }
        (Backing::Nbd { server, .. }, Backing::Nbd { server: other, .. }) => {
            other.clone_from(server);
        }
        _ => (),
    }
    // The configuration of a queue cannot be compared, but all of it is shown.
    format!("{one:?}") == format!("{two:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(targets: &[&str]) -> Result<Devices, String> {
        Devices::of(&targets.iter().map(|target| String::from(*target)).collect::<Vec<_>>())
    }

    #[test]
    fn a_file_that_is_to_be_made_is_one_device_of_the_largest_size() {
        let devices = of(&["file:nowhere.img,size=1MiB", "file:./nowhere.img,size=2MiB"]);
        let Devices { devices, of } = devices.expect("one device");
        assert_eq!((devices.len(), of), (1, vec![0, 0]));
        let Backing::File { size, .. } = &devices[0].1.backing else { panic!("a file") };
        assert_eq!(*size, Some(2 << 20));
    }

    #[test]
    fn a_device_is_the_same_in_every_spelling_and_others_are_not() {
        let devices = of(&["file:Cargo.toml", "file:src/../Cargo.toml", "file:src/lib.rs"]);
        assert_eq!(devices.expect("two files").of, [0, 0, 1]);
        let devices = of(&["nbd+unix:/x?a", "nbd+unix:///a?socket=/x", "nbd+unix:/x?b"]);
        assert_eq!(devices.expect("two exports").of, [0, 0, 1]);
        assert_eq!(of(&["ram:1M", "ram:1M", "ram:2M"]).expect("two").of, [0, 0, 1]);
    }

    #[test]
    fn what_a_mark_overwrites_is_put_back() {
        let folder = std::env::temp_dir().join(format!("weir-marks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (one, two) = (folder.join("one"), folder.join("two"));
        let bytes: Vec<u8> = (0..1 << 16).map(|n: u32| n as u8 | 1).collect();
        for path in [&one, &two] {
            std::fs::write(path, &bytes).expect("a file");
        }
        let target = |path: &Path| {
            let name = format!("file:{}", path.display());
            let target = Target::parse(&name).expect("a target");
            (name, target)
        };
        let marks = [(0, Amount::Bytes(8192))];
        let found = |devices: &[(String, Target)]| same_device(devices, &marks, 7);
        let [one, two] = [target(&one), target(&two)];
        assert_eq!(found(&[one, two]), Ok(None));
        assert_eq!(std::fs::read(folder.join("one")).expect("a file"), bytes);
        std::fs::remove_dir_all(&folder).expect("a folder of ours");
    }

    #[test]
    fn one_device_with_other_options_is_refused_with_both_names() {
        let why = of(&["nbd+unix:/x?sda", "nbd+unix:/x?sda,connections=2"]).expect_err("one");
        assert!(why.contains("nbd+unix:/x?sda and ") && why.contains("connections=2"), "{why}");
    }
}

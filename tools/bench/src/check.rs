//! After a crash of whatever was in the way: is every commit there that `oltp` acknowledged?

use std::collections::BTreeMap;
use std::path::Path;

use weir::{Disk, Session};
use weir_load::Range;
use weir_load::oltp::audit::{Audit, Found};
use weir_load::oltp::format::{BLOCK_BYTES, CHANGES, REDO_BYTES};

use crate::devices::Devices;

/// Bytes of redo read at once.
const PIECE: u64 = 1 << 20;

/// One instance as the file of commits has it.
struct Acknowledged {
    run: u64,
    data: Range,
    redo: Range,
    /// The target of the redo, where it is not that of the data.
    redo_target: Option<String>,
    /// With the data blocks each changed.
    commits: BTreeMap<u64, [u64; CHANGES]>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Commits that were acknowledged.
    pub commits: u64,
    /// Of them, in the log.
    pub in_log: u64,
    /// Of them, below its checkpoint.
    pub checkpointed: u64,
    /// Data blocks that were looked at.
    pub blocks: u64,
}

/// Why there is no such answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Something that was acknowledged is not there.
    Commits(String),
    /// It could not be looked at.
    Unreadable(String),
}

/// Looks for every commit of the last run in `commits` on its targets.
///
/// # Errors
/// What is lost, or could not be read.
pub fn check(target: &str, redo: Option<&str>, commits: &Path) -> Result<Checked, Lost> {
    let unreadable = |why: String| Lost::Unreadable(why);
    let name = commits.display();
    let text = std::fs::read_to_string(commits).map_err(|e| unreadable(format!("{name}: {e}")))?;
    let instances = read_commits(&text).map_err(|why| unreadable(format!("{name}: {why}")))?;
    let noted = instances.values().find_map(|instance| instance.redo_target.as_deref());
    let redo = redo.or(noted);
    let open = |target: &str| Disk::open(target).map_err(|e| unreadable(e.to_string()));
    let data_disk = open(target)?;
    let mut names = vec![String::from(target)];
    names.extend(redo.map(String::from));
    let devices = Devices::of(&names).map_err(unreadable)?;
    let apart = devices.devices.get(1).map(|(name, _)| name.as_str());
    let redo_disk = apart.map(open).transpose()?;
    let session = |disk: &Disk| disk.session().map_err(|e| unreadable(e.to_string()));
    let mut data = session(&data_disk)?;
    let mut redo = session(redo_disk.as_ref().unwrap_or(&data_disk))?;
    let mut sum = Checked { commits: 0, in_log: 0, checkpointed: 0, blocks: 0 };
    for (instance, acknowledged) in &instances {
        let (found, blocks) = check_one(*instance, acknowledged, &mut data, &mut redo)?;
        sum.commits += acknowledged.commits.len() as u64;
        sum.in_log += found.in_log;
        sum.checkpointed += found.checkpointed;
        sum.blocks += blocks;
    }
    Ok(sum)
}

fn check_one(
    instance: u16,
    acknowledged: &Acknowledged,
    data: &mut Session,
    redo: &mut Session,
) -> Result<(Found, u64), Lost> {
    let unreadable = |error: weir::IoError| Lost::Unreadable(error.to_string());
    let range = acknowledged.redo;
    let mut audit = Audit::new(acknowledged.run, instance, range.bytes / REDO_BYTES);
    let mut bytes = vec![0; PIECE as usize];
    let mut at = 0;
    while at < range.bytes {
        let piece = &mut bytes[..(range.bytes - at).min(PIECE) as usize];
        redo.read_at(range.offset + at, piece).map_err(unreadable)?;
        audit.take_redo(piece);
        at += piece.len() as u64;
    }
    let found = audit.verdict(&acknowledged.commits).map_err(Lost::Commits)?;
    let wanted = audit.wanted(&acknowledged.commits);
    let mut block = vec![0; BLOCK_BYTES as usize];
    for wanted in &wanted {
        let at = acknowledged.data.offset + wanted.block * BLOCK_BYTES;
        data.read_at(at, &mut block).map_err(unreadable)?;
        audit.take_data(*wanted, &block).map_err(Lost::Commits)?;
    }
    Ok((found, wanted.len() as u64))
}

/// The instances of the last run in the file, and what they acknowledged. A last line without its
/// end was being written when the power went: nobody has read it.
fn read_commits(text: &str) -> Result<BTreeMap<u16, Acknowledged>, String> {
    let mut instances: BTreeMap<u16, Acknowledged> = BTreeMap::new();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (line, text) in (1..).zip(whole.lines()) {
        let (text, redo_target) = match text.split_once(" at ") {
            Some((text, target)) => (text, Some(target)),
            None => (text, None),
        };
        let words: Vec<_> = text.split(' ').collect();
        let read = match words[..] {
            ["commit", instance, id, blocks] => read_commit(&mut instances, instance, id, blocks),
            ["run", run, "instance", instance, "data", data, "redo", redo] => {
                read_instance(&mut instances, run, instance, [data, redo]).map(|instance| {
                    instance.redo_target = redo_target.map(String::from);
                })
            }
            _ => None,
        };
        read.ok_or_else(|| format!("line {line}: {text:?} is none of a run of oltp"))?;
    }
    if instances.is_empty() {
        return Err(String::from("there is no run of oltp in it"));
    }
    Ok(instances)
}

fn read_commit(
    instances: &mut BTreeMap<u16, Acknowledged>,
    instance: &str,
    id: &str,
    blocks: &str,
) -> Option<()> {
    let known = instances.get_mut(&instance.parse().ok()?)?;
    let blocks: Option<Vec<u64>> = blocks.split(',').map(|block| block.parse().ok()).collect();
    let blocks: [u64; CHANGES] = blocks?.try_into().ok()?;
    // A block beyond the data is none of this instance.
    let within = blocks.iter().all(|block| *block < known.data.bytes / BLOCK_BYTES);
    known.commits.insert(id.parse().ok()?, within.then_some(blocks)?);
    Some(())
}

fn read_instance<'a>(
    instances: &'a mut BTreeMap<u16, Acknowledged>,
    run: &str,
    instance: &str,
    ranges: [&str; 2],
) -> Option<&'a mut Acknowledged> {
    let run = run.parse().ok()?;
    let range = |text: &str| {
        let (offset, bytes) = text.split_once('+')?;
        Some(Range { offset: offset.parse().ok()?, bytes: bytes.parse().ok()? })
    };
    let [data, redo] = [range(ranges[0])?, range(ranges[1])?];
    // Another run overwrites what those before it left.
    instances.retain(|_, known| known.run == run);
    let (instance, commits) = (instance.parse().ok()?, BTreeMap::new());
    instances.insert(instance, Acknowledged { run, data, redo, redo_target: None, commits });
    instances.get_mut(&instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: &str = "0,0,0,0,0,0,0,0";
    const HEAD: &str = "run 7 instance 0 data 0+8192 redo 8192+4096\n";

    #[test]
    fn the_last_run_counts_and_a_line_without_its_end_does_not() {
        let earlier = format!("run 6 instance 0 data 0+8192 redo 1+1\ncommit 0 9 {BLOCKS}\n");
        let text = format!("{earlier}{HEAD}commit 0 1 {BLOCKS}\nco");
        let instances = read_commits(&text).expect("a file of commits");
        assert_eq!(instances[&0].commits, BTreeMap::from([(1, [0; CHANGES])]));
        assert_eq!((instances[&0].run, instances[&0].redo.offset), (7, 8192));
    }

    #[test]
    fn the_file_of_commits_says_where_a_log_of_its_own_is() {
        let text = "run 7 instance 0 data 0+8192 redo 8192+4096 at file:a b,queues=1\n";
        let instances = read_commits(text).expect("a file of commits");
        assert_eq!(instances[&0].redo_target.as_deref(), Some("file:a b,queues=1"));
        assert_eq!(read_commits(HEAD).expect("a file of commits")[&0].redo_target, None);
    }

    #[test]
    fn what_is_no_file_of_commits_is_refused_with_its_line() {
        let behind = |line: &str| format!("{HEAD}{line}\n");
        for (text, part) in [
            (String::new(), "no run"),
            (String::from("commit 0 1\n"), "line 1"),
            (behind(&format!("commit 0 x {BLOCKS}")), "line 2"),
            (behind("commit 0 1"), "line 2"),
            (behind("commit 0 1 0,0"), "line 2"),
            // Its data are one block.
            (behind("commit 0 1 0,0,0,1,0,0,0,0"), "line 2"),
        ] {
            assert!(read_commits(&text).is_err_and(|why| why.contains(part)), "{text}");
        }
    }
}

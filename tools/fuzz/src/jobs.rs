//! Job files against any text, and the I/O that they come to.
//!
//! - Errors and notes name a line within the file, but where it has no job at all.
//! - Sizes and distributions are read from what they are shown as.
//! - A job that fits a target asks for I/O inside its range, in whole blocks, as deep as it says.
//!
//! Input: a byte of the target, then the file.

use weir_bio::{Nanos, Op, SECTOR};
use weir_load::jobfile::read;
use weir_load::{Ask, Distribution, Ground, Job, Sizes, Stream, Workload};

/// I/Os asked of each job.
const ASKS: usize = 60;

/// Jobs of a file that are turned.
const JOBS_MAX: usize = 3;

pub(crate) fn check(bytes: &[u8]) {
    let Some((&ground, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let file = match read("a.fio", text) {
        Ok(file) => file,
        Err(why) => {
            if why.to_string() != "a.fio: there is no job section, as in [job]" {
                crate::text::names_a_line(&why.to_string(), "a.fio:", text);
            }
            return;
        }
    };
    file.notes.iter().for_each(|note| crate::text::names_a_line(note, "a.fio:", text));
    assert!(!file.jobs.is_empty(), "a file without a job");
    let ground = Ground {
        bytes: [1 << 20, 5 * 4096, 512, (1 << 40) - 512][usize::from(ground & 3)],
        block: if ground & 4 == 0 { 512 } else { 4096 },
        read_only: ground & 8 != 0,
    };
    for job in file.jobs.iter().take(JOBS_MAX) {
        comes_back(job);
        turns(job, ground);
    }
}

/// The text of a job, parsed again, means the same.
fn comes_back(job: &Job) {
    assert_eq!(Distribution::parse(&job.distribution.to_string()).as_ref(), Ok(&job.distribution));
    for sizes in &job.sizes {
        let option = match sizes {
            Sizes::Fixed(_) => "bs",
            Sizes::Range { .. } => "bsrange",
            Sizes::Split(_) => "bssplit",
        };
        let again = read("b", &format!("[a]\n{option}={sizes}")).expect("as it is shown");
        assert_eq!(&again.jobs[0].sizes[0], sizes, "{option} as it is shown");
    }
}

fn turns(job: &Job, ground: Ground) {
    // A table of blocks is as large as its range, which is not what is looked at here.
    let Ok(range) = job.range(ground) else { return };
    if job.verify.is_some() && range.bytes > 1 << 20 {
        return;
    }
    let clone = job.clones - 1;
    let part = job.range_of(ground, clone).expect("one of a range that was found");
    let end = part.offset.checked_add(part.bytes).expect("a range that ends");
    assert!(end <= ground.bytes && part.offset >= range.offset, "{part:?} of {range:?}");
    let Ok(mut stream) = Stream::new(job, ground, clone) else { return };
    let (mut now, mut open) = (Nanos(1), Vec::new());
    for _ in 0..ASKS {
        match stream.ask(now) {
            Ask::Io(io) => {
                let (first, bytes) = (io.sector * SECTOR, u64::from(io.sectors) * SECTOR);
                assert!(bytes > 0 && first >= part.offset, "{io:?} of {part:?}");
                assert!(first + bytes <= end, "{io:?} of {part:?}");
                assert!((first | bytes).is_multiple_of(ground.block), "{io:?} is whole blocks");
                assert!(!ground.read_only || io.op == Op::Read, "{io:?} changes what is read-only");
                open.push(io);
                assert!(open.len() <= usize::from(job.depth), "deeper than {}", job.depth);
            }
            Ask::Flush { .. } | Ask::Done => return,
            Ask::Wait(at) => {
                assert!(at > now, "it waits for what has passed");
                now = at;
            }
            Ask::Blocked => {
                assert!(!open.is_empty(), "it waits for nothing");
                now = now + 1000;
                let io = open.swap_remove(open.len() / 2);
                stream.ended(io.token, true, now);
            }
        }
    }
}

//! What `ioengine` and the options of fio's engines mean here, where weir is the engine: what a
//! name says of the I/O counts, and the rest is told in a note.

use crate::job::Job;

/// What an engine's name says of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Engine {
    /// It keeps I/Os under way, on files and block devices.
    #[default]
    Deep,
    /// It has one under way.
    Alone,
    /// It drops them.
    Null,
    /// It keeps I/Os under way on what a file name of this host does not name.
    Elsewhere,
}

/// The engines that carry out reads and writes.
const ENGINES: &[(&str, Engine)] = &[
    ("libaio", Engine::Deep),
    ("io_uring", Engine::Deep),
    ("io_uring_cmd", Engine::Deep),
    ("posixaio", Engine::Deep),
    ("sg", Engine::Deep),
    ("xnvme", Engine::Deep),
    ("libzbc", Engine::Alone),
    ("sync", Engine::Alone),
    ("psync", Engine::Alone),
    ("vsync", Engine::Alone),
    ("pvsync", Engine::Alone),
    ("pvsync2", Engine::Alone),
    ("mmap", Engine::Alone),
    ("splice", Engine::Alone),
    ("libpmem", Engine::Alone),
    ("dev-dax", Engine::Alone),
    ("libcufile", Engine::Alone),
    ("libhipfile", Engine::Alone),
    ("null", Engine::Null),
    ("cpp_null", Engine::Null),
    ("ime_psync", Engine::Alone),
    ("ime_psyncv", Engine::Deep),
    ("ime_aio", Engine::Deep),
    ("libblkio", Engine::Elsewhere),
    ("libiscsi", Engine::Elsewhere),
    ("nbd", Engine::Elsewhere),
    ("nfs", Engine::Elsewhere),
    ("rbd", Engine::Elsewhere),
    ("rados", Engine::Elsewhere),
    ("gfapi", Engine::Elsewhere),
    ("gfapi_async", Engine::Elsewhere),
    ("libhdfs", Engine::Elsewhere),
    ("dfs", Engine::Elsewhere),
    ("http", Engine::Elsewhere),
];

/// Engines whose work is none that a block device does, each with what it is.
const OTHER_WORK: &[(&str, &str)] = &[
    ("net", "traffic of a network"),
    ("netsplice", "traffic of a network"),
    ("rdma", "traffic of a network"),
    ("librpma_apm_client", "traffic of a network"),
    ("librpma_gpspm_client", "traffic of a network"),
    ("cpuio", "CPU time"),
    ("exec", "other programs"),
    ("page_fault", "page faults"),
    ("filecreate", "the making of files"),
    ("filestat", "the look-up of files"),
    ("filedelete", "the removal of files"),
    ("dircreate", "the making of folders"),
    ("dirstat", "the look-up of folders"),
    ("dirdelete", "the removal of folders"),
    ("falloc", "the allocation of files"),
    ("ftruncate", "the length of files"),
    ("e4defrag", "the defragmentation of files"),
    ("mtd", "erase blocks of raw flash"),
];

impl Engine {
    /// That of this name.
    ///
    /// # Errors
    /// One whose work is none of a block device; a name that is not known.
    pub(crate) fn of(name: &str) -> Result<Engine, String> {
        if let Some((_, engine)) = ENGINES.iter().find(|(known, _)| *known == name) {
            return Ok(*engine);
        }
        if let Some((_, work)) = OTHER_WORK.iter().find(|(known, _)| *known == name) {
            return Err(format!("its work is {work}, which is none of a block device"));
        }
        let known: Vec<_> = ENGINES.iter().map(|(known, _)| *known).collect();
        Err(format!("takes one of {}", known.join(", ")))
    }

    /// What is to be said of a job that names it.
    pub(crate) fn note(self, name: &str) -> String {
        let more = match self {
            Engine::Deep => "",
            Engine::Alone => ", one I/O at a time",
            Engine::Null => " unless another is given: I/O is dropped",
            Engine::Elsewhere => ", which --target names",
        };
        format!("ioengine={name}: weir drives the target itself{more}")
    }
}

/// The target of a job whose I/O is dropped. The file that it names is neither opened nor made, as
/// with fio's engine.
///
/// # Errors
/// A file whose size would have to be looked up.
pub(crate) fn drop_target(job: &mut Job) -> Result<(), String> {
    // There is no page cache of nothing.
    job.buffered = None;
    let Some(name) = job.target.as_ref().filter(|name| !name.starts_with("null:")) else {
        return Ok(());
    };
    let bytes = job.extent().ok_or_else(|| {
        format!("ioengine=null opens no file, so filename={name} needs a size= in bytes")
    })?;
    job.target = Some(null_target(bytes));
    Ok(())
}

/// A target of at least so many bytes, whole blocks of 4096, that drops what it is given.
pub(crate) fn null_target(bytes: u64) -> String {
    format!("null:{}", bytes.saturating_add(4095) / 4096 * 4096)
}

/// Options that cannot change what is asked of a target here, each with why, and those of which the
/// reason says that they are not carried out.
const NOTED: &[(&str, &[&str])] = &[
    (
        "clones are always threads of weir, which other clones may share",
        &["thread", "threads", "io_submit_mode"],
    ),
    (
        "not done: weir's threads run where the system lets them (begin it by taskset, numactl)",
        &["cpus_allowed", "cpus_allowed_policy", "numa_cpu_nodes", "numa_mem_policy"],
    ),
    (
        "weir takes the same times of every run",
        &["gtod_reduce", "disable_lat", "disable_clat", "disable_slat", "clat_percentiles"],
    ),
    (
        "weir tells the same percentiles of every run",
        &["lat_percentiles", "slat_percentiles", "percentile_list"],
    ),
    ("clones of a job are told as one, and jobs apart", &["new_group"]),
    (
        "it is of fio's engine, and weir drives the target itself",
        &[
            "mem",
            "iomem",
            "registerfiles",
            "fixedbufs",
            "nonvectored",
            "hipri",
            "sqthread_poll",
            "sqthread_poll_cpu",
            "cmd_type",
            "userspace_reap",
            "force_async",
            "uncached",
        ],
    ),
    (
        "it is where fio's engine finds its storage, and --target is where weir does",
        &[
            "pool",
            "cont",
            "conf",
            "clientname",
            "rbdname",
            "busy_poll",
            "uri",
            "nfs_url",
            "libblkio_driver",
            "libblkio_path",
            "volume",
            "brick",
            "gpu_dev_ids",
            "gpu_dev_id",
            "cuda_io",
            "rocm_io",
            "https",
            "http_verbose",
            "http_mode",
            "http_host",
            "http_s3_key",
            "http_s3_keyid",
            "http_s3_region",
            "http_s3_storage_class",
            "http_s3_sse_customer_key",
            "http_s3_sse_customer_algorithm",
            "http_swift_auth_token",
        ],
    ),
    (
        "no target here has protection information or other metadata",
        &["md_per_io_size", "pi_act", "pi_chk", "apptag", "apptag_mask"],
    ),
    ("rows of logs go to their files as they come", &["log_entries"]),
    ("conventional zones have no write pointer", &["read_beyond_wp"]),
    ("not done: a read has no FUA here", &["readfua"]),
    ("no target here takes placement hints", &["fdp", "fdp_pli"]),
    (
        "a target is opened, and a file that is missing made, before the run",
        &["create_serialize", "create_on_open", "openfiles", "fallocate"],
    ),
    ("each block is filled with random bytes of its own once", &["scramble_buffers"]),
    ("weir's own generator draws", &["softrandommap"]),
    ("weir leaves the page cache as it is, and does not empty it for 1", &["invalidate"]),
    ("a run ends with its first bad block, and does not go on for 0", &["verify_fatal"]),
    ("the first bad block is told, and put in no file", &["verify_dump"]),
    ("blocks are checked by the thread that reads them", &["verify_async", "verify_async_cpus"]),
    (
        "weir keeps no list of what was written: each block says what it is",
        &["verify_state_save", "experimental_verify"],
    ),
];

/// Why an option cannot matter, if it is one of those.
pub(crate) fn noted(name: &str) -> Option<&'static str> {
    NOTED.iter().find(|(_, names)| names.contains(&name)).map(|(why, _)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_in_two_places() {
        let engines = ENGINES.iter().map(|(name, _)| *name);
        let others = OTHER_WORK.iter().map(|(name, _)| *name);
        let mut names: Vec<&str> = engines.chain(others).collect();
        names.extend(NOTED.iter().flat_map(|(_, names)| *names));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let options = crate::options::OPTIONS.iter().map(|option| option.name);
        assert!(options.clone().all(|name| noted(name).is_none()), "it acts, and is noted");
    }
}

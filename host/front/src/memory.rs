//! What the clients of a front may hold where nothing says so: a part of the machine's memory.

use std::fs;
use std::path::Path;

use weir_control::config::MEMORY_MIN;

/// A quarter of the machine's memory, or of the limit of a control group around this process; 64
/// MiB at least. Bytes.
#[must_use]
pub fn default_memory() -> u64 {
    quarter(Path::new("/"))
}

/// The same of what there is below `root`.
fn quarter(root: &Path) -> u64 {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok();
    let machine = machine.as_deref().and_then(total).unwrap_or(u64::MAX);
    (machine.min(of_group(root)) / 4).clamp(MEMORY_MIN, 1 << 40)
}

/// `MemTotal` of proc_meminfo(5), bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least `memory.max` of the control groups (version 2) around this process, bytes.
fn of_group(root: &Path) -> u64 {
    let mine = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let Some(path) = mine.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return u64::MAX;
    };
    let limit = |group: &Path| {
        let file = root.join("sys/fs/cgroup").join(group).join("memory.max");
        fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    };
    Path::new(path).ancestors().filter_map(limit).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_quarter_of_the_machine_or_of_the_group_around_and_64_mib_at_least() {
        let root = std::env::temp_dir().join(format!("weir-bounds-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        put("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
        assert_eq!(quarter(&root), 2 << 30);
        put("proc/self/cgroup", "1:cpu:/x\n0::/system.slice/weir.service\n");
        put("sys/fs/cgroup/system.slice/weir.service/memory.max", "max\n");
        assert_eq!(quarter(&root), 2 << 30);
        put("sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
        assert_eq!(quarter(&root), 256 << 20);
        put("sys/fs/cgroup/system.slice/memory.max", "1048576\n");
        assert_eq!(quarter(&root), MEMORY_MIN);
        fs::remove_dir_all(root).expect("the folder");
    }
}

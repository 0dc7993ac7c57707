//! Bounds on the clients of a daemon: memory and connections.

use std::fs;
use std::path::Path;

use clap::Args;
use weir_control::config::{CLIENTS_MAX, MEMORY_MIN, Nbd, parse_memory};
use weir_front_nbd::Settings;

use crate::values::whole;

/// Flags that stand above `[nbd]`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Bounds {
    /// What all clients together may hold, 64MiB or more: requests under way and replies that they
    /// have not read; a quarter of the machine's memory if not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<u64>,
    /// Connections that one local user or one address may have at a time, of the 1,024 that there
    /// are; 256 if not given.
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u16>(1..=CLIENTS_MAX.into()))]
    clients_per_peer: Option<u16>,
}

impl Bounds {
    /// Puts what was given in the place of what the file says.
    pub(super) fn replace(&self, nbd: &mut Nbd) {
        nbd.memory = self.memory.or(nbd.memory);
        nbd.clients_per_peer = self.clients_per_peer.or(nbd.clients_per_peer);
    }
}

/// How a server treats its clients by these settings.
pub(super) fn settings(nbd: &Nbd) -> Settings {
    let memory = nbd.memory.unwrap_or_else(|| default_memory(Path::new("/")));
    let memory = usize::try_from(memory).unwrap_or(usize::MAX / 2);
    let settings = Settings { memory, ..Settings::default() };
    let own = settings.connections_per_peer;
    let connections_per_peer = nbd.clients_per_peer.map_or(own, usize::from);
    Settings { connections_per_peer, ..settings }
}

/// A quarter of the memory that there is below `root` for this process.
fn default_memory(root: &Path) -> u64 {
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
        assert_eq!(default_memory(&root), 2 << 30);
        put("proc/self/cgroup", "1:cpu:/x\n0::/system.slice/weir.service\n");
        put("sys/fs/cgroup/system.slice/weir.service/memory.max", "max\n");
        assert_eq!(default_memory(&root), 2 << 30);
        put("sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
        assert_eq!(default_memory(&root), 256 << 20);
        put("sys/fs/cgroup/system.slice/memory.max", "1048576\n");
        assert_eq!(default_memory(&root), MEMORY_MIN);
        fs::remove_dir_all(root).expect("the folder");
    }

    #[test]
    fn a_flag_stands_above_the_file() {
        let mut nbd = Nbd { memory: Some(1 << 30), ..Nbd::default() };
        Bounds::default().replace(&mut nbd);
        assert_eq!(settings(&nbd).memory, 1 << 30);
        assert_eq!(settings(&nbd).connections_per_peer, 256);
        let bounds = Bounds { memory: Some(2 << 30), clients_per_peer: Some(7) };
        bounds.replace(&mut nbd);
        assert_eq!((settings(&nbd).memory, settings(&nbd).connections_per_peer), (2 << 30, 7));
    }
}

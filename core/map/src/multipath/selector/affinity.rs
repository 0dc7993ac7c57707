//! The path of the submitting CPU; if that is not valid, one of a CPU of the same NUMA node, else
//! any valid one. Of masks that name one CPU, the first has it.

use weir_bio::Nanos;

use super::{Figures, Load, Selector};

/// CPUs of a mask.
const CPUS: u32 = u128::BITS;

pub(super) struct Affinity {
    /// The path of each CPU.
    of_cpu: Vec<Option<u16>>,
    valid: Vec<bool>,
    misses: Vec<u64>,
    node_of: fn(u32) -> u32,
}

impl Affinity {
    pub(super) fn new(masks: &[u128], node_of: fn(u32) -> u32) -> Affinity {
        let of = |cpu: u32| masks.iter().position(|mask| mask >> cpu & 1 == 1);
        Affinity {
            of_cpu: (0..CPUS).map(|cpu| of(cpu).map(|path| path as u16)).collect(),
            valid: vec![true; masks.len()],
            misses: vec![0; masks.len()],
            node_of,
        }
    }

    /// The first valid path of a CPU that `is_meant`.
    fn first(&self, is_meant: impl Fn(u32) -> bool) -> Option<usize> {
        let of = |cpu: u32| self.of_cpu[cpu as usize].map(usize::from);
        let valid = |path: &usize| self.valid[*path];
        (0..CPUS).filter(|cpu| is_meant(*cpu)).filter_map(of).find(valid)
    }
}

impl Selector for Affinity {
    fn choose(&mut self, load: Load, _now: Nanos) -> Option<usize> {
        let own = self.of_cpu.get(load.cpu as usize).copied().flatten().map(usize::from);
        if let Some(path) = own.filter(|path| self.valid[*path]) {
            return Some(path);
        }
        let node = (self.node_of)(load.cpu);
        let near = self.first(|cpu| (self.node_of)(cpu) == node);
        let chosen = near.or_else(|| self.first(|_| true))?;
        if let Some(own) = own {
            self.misses[own] += 1;
        }
        Some(chosen)
    }

    fn fail(&mut self, path: usize) {
        self.valid[path] = false;
    }

    fn reinstate(&mut self, path: usize) {
        self.valid[path] = true;
    }

    fn figures(&self, path: usize) -> Figures {
        Figures { misses: self.misses[path], ..Figures::default() }
    }
}

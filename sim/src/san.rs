//! A storage network under way: commands and their ends on the links of adapters.

use std::sync::Arc;

use crate::agenda::Alarm;
use crate::driver::split_name;
use crate::host::{Host, Layer};
use crate::link::{Passing, links_of};
use crate::nexus::{Arrival, Moved, Outlet, Sent, SharedNexus, lock};

impl Host {
    /// Something comes to a link.
    pub(crate) fn put_on_link(&mut self, link: usize, bytes: u64, what: Passing) {
        let now = self.agenda.now();
        let at = self.links[link].passes(bytes, now);
        if self.links[link].passing.is_empty() {
            if at == now {
                return self.arrive(what);
            }
            self.agenda.put(at, Alarm::Link(link));
        }
        self.links[link].passing.push_back((at, what));
    }

    /// Something has passed a link.
    pub(crate) fn take_from_link(&mut self, link: usize) {
        let now = self.agenda.now();
        loop {
            match self.links[link].passing.front() {
                Some((at, _)) if *at <= now => {}
                Some((at, _)) => return self.agenda.put(*at, Alarm::Link(link)),
                None => return,
            }
            let (_, what) = self.links[link].passing.pop_front().expect("it was looked at");
            self.arrive(what);
        }
    }

    fn arrive(&mut self, what: Passing) {
        let now = self.agenda.now();
        match what {
            Passing::Command(disk, job) => {
                let (lane, slot) = split_name(job.id);
                let arrival = lock(self.nexus(lane)).arrives(slot, now);
                match arrival {
                    Arrival::Begins => {
                        self.disks[disk].disk.start(job, now);
                        self.set_disk_alarm(disk);
                    }
                    Arrival::Answered => self.answer_over_link(lane, slot, 0),
                    Arrival::Lost => {}
                }
            }
            Passing::End(lane, slot) => {
                let nexus = Arc::clone(self.nexus(lane));
                if lock(&nexus).comes_back(slot, now) {
                    self.interrupt(lane);
                }
                self.ring_lanes(&nexus);
            }
        }
    }

    fn nexus(&self, lane: usize) -> &SharedNexus {
        match &self.lanes[lane].outlet {
            Outlet::Nexus(nexus, _) => nexus,
            Outlet::Disk(_) | Outlet::Legs => unreachable!("only paths have links"),
        }
    }

    fn path(&self, lane: usize) -> (usize, usize) {
        match self.devices[self.lanes[lane].device].layer {
            Layer::Path { disk, adapter } => (disk, adapter),
            Layer::Disk(_) | Layer::Mapped => unreachable!("only paths have adapters"),
        }
    }

    /// The target answers a command, with so many bytes.
    pub(crate) fn answer_over_link(&mut self, lane: usize, slot: u16, bytes: u64) {
        let (_, adapter) = self.path(lane);
        self.put_on_link(links_of(adapter)[1], bytes, Passing::End(lane, slot));
    }

    /// The commands that a lane has sent leave their host.
    pub(crate) fn send(&mut self, lane: usize, nexus: &SharedNexus, unit: u32) {
        let (_, adapter) = self.path(lane);
        let kept = std::mem::take(&mut self.spare.sent);
        let mut sent = lock(nexus).take_sent(unit, kept);
        for Sent { job, out, is_question } in sent.drain(..) {
            if !is_question {
                self.commands.count(job.op);
            }
            let (disk, _) = self.path(split_name(job.id).0);
            self.put_on_link(links_of(adapter)[0], out, Passing::Command(disk, job));
        }
        self.spare.sent = sent;
    }

    /// A lane is about to be turned.
    pub(crate) fn begin_turn(&self, lane: usize) {
        if let Outlet::Nexus(nexus, unit) = &self.lanes[lane].outlet {
            lock(nexus).turn(*unit);
        }
    }

    /// A lane was turned; what crossed the border to its adapter.
    pub(crate) fn end_turn(&mut self, lane: usize) -> Moved {
        let Outlet::Nexus(nexus, _) = &self.lanes[lane].outlet else { return Moved::default() };
        let nexus = Arc::clone(nexus);
        let moved = lock(&nexus).take_moved();
        self.ring_lanes(&nexus);
        moved
    }

    /// Interrupts for lanes that have something although none of their commands has come back.
    pub(crate) fn ring_lanes(&mut self, nexus: &SharedNexus) {
        loop {
            let rung = lock(nexus).take_rung();
            let Some(lane) = rung else { return };
            self.interrupt(lane);
        }
    }
}

//! A storage network under way: commands and their ends on the links of adapters.

use weir_bio::{Op, SECTOR};
use weir_sim_disk::Job;

use crate::agenda::Alarm;
use crate::driver::{lock, split_name};
use crate::host::Host;
use crate::link::{Passing, links_of};

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
        match what {
            Passing::Command(disk, job) => {
                let now = self.agenda.now();
                self.disks[disk].disk.start(job, now);
                self.set_disk_alarm(disk);
            }
            Passing::End(lane, tag) => {
                lock(&self.lanes[lane].port).ended.push(tag);
                self.interrupt(lane);
            }
        }
    }

    /// A command leaves its host.
    pub(crate) fn send(&mut self, disk: usize, adapter: usize, job: Job) {
        let (lane, tag) = split_name(job.id);
        let bytes = u64::from(job.sectors) * SECTOR;
        let (out, back) = if job.op == Op::Read { (0, bytes) } else { (bytes, 0) };
        let inbound = &mut self.lanes[lane].inbound;
        let at = usize::from(tag);
        if inbound.len() <= at {
            inbound.resize(at + 1, 0);
        }
        inbound[at] = back;
        self.put_on_link(links_of(adapter)[0], out, Passing::Command(disk, job));
    }
}

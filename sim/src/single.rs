//! The single-queue path: which holds of its one lock a call of the core told, and what each takes.
//!
//! The core itself takes the lock, in the thread that submits as well: it inserts, dispatches and
//! sends there. So a hold is priced for what was told in it: the scheduler's work for each request
//! that was inserted, picked and ended, and the driver's for each that was sent. A hold in which
//! nothing was told takes a hand-over of the lock alone.
//!
//! A path to a disk is over an adapter, which has a lock as well: to send a command, and when one
//! has ended, the queue's lock is let go of, the adapter's is had, and then the queue's again.

use crate::cpu::Step;
use crate::drive::system;
use crate::heard::{HeardHolds, Hold};
use crate::host::{DeviceSide, Host, Layer};
use crate::nexus::Moved;

impl Host {
    /// A process hands in what it has made up; what its processor does for that.
    pub(crate) fn hand_in_to_single(&mut self, process: usize, steps: &mut Vec<Step>) {
        let heard = HeardHolds::default();
        let devices = &self.hosts[self.processes[process].host].devices;
        let sink = |number: usize| heard.of(devices[number]);
        self.processes[process].hand_in(self.agenda.now(), sink);
        let mut holds = std::mem::take(&mut self.spare.holds);
        heard.take(&mut holds);
        // A device after the other.
        holds.sort_by_key(|(device, _)| *device);
        self.price_holds(&holds, Moved::default(), steps);
        holds.clear();
        self.spare.holds = holds;
        self.price_below(steps);
    }

    /// A turn of the one lane of a device; what its processor does for that.
    pub(crate) fn turn_single(&mut self, lane: usize, steps: &mut Vec<Step>) {
        let heard = HeardHolds::default();
        let device = self.lanes[lane].device;
        self.begin_turn(lane);
        self.lanes[lane].lane.run_telling(self.agenda.now(), heard.of(device));
        let moved = self.end_turn(lane);
        let mut holds = std::mem::take(&mut self.spare.holds);
        heard.take(&mut holds);
        self.price_holds(&holds, moved, steps);
        if holds.iter().any(|(_, hold)| hold.ended > 0) {
            steps.push(Step::Tell(lane));
        }
        holds.clear();
        self.spare.holds = holds;
        self.price_below(steps);
    }

    /// What a mapper did at its paths in the call before.
    pub(crate) fn price_below(&mut self, steps: &mut Vec<Step>) {
        if !self.has_single_paths {
            return;
        }
        let mut holds = std::mem::take(&mut self.spare.holds);
        self.heard_below.take(&mut holds);
        self.price_holds(&holds, Moved::default(), steps);
        holds.clear();
        self.spare.holds = holds;
    }

    /// `moved`: what crossed the border to the adapter in a turn of a path. It did so in the holds
    /// in which requests were issued and ended; what more there is, such as a command that the
    /// mid-layer sent again, comes after them.
    fn price_holds(&self, holds: &[(usize, Hold)], mut moved: Moved, steps: &mut Vec<Step>) {
        for (device, hold) in holds {
            let device = &self.devices[*device];
            let (price, lock) = (&device.price, device.right);
            let Hold { inserted, picked, issued, ended } = hold;
            let sections = [(inserted, &price.insert), (picked, &price.pick), (ended, &price.end)];
            let sections = sections.map(|(count, each)| count * each.iter().sum::<u64>());
            let layer = self.layer_price(device.layer);
            let rung = if *issued > 0 { layer.doorbell } else { 0 };
            let turn = if *inserted > 0 { price.turn } else { 0 };
            steps.extend([
                system(inserted * price.own + turn),
                Step::Take(lock),
                Step::Hold { lock, ns: sections.iter().sum() },
                system(issued * layer.issue + rung + ended * layer.end),
                Step::Free(lock),
                Step::Fetch(price.after),
            ]);
            let part = Moved { sent: moved.sent.min(*issued), ended: moved.ended.min(*ended) };
            moved = Moved { sent: moved.sent - part.sent, ended: moved.ended - part.ended };
            self.price_adapter(device, part, steps);
            let is_disk = matches!(device.layer, Layer::Disk(_));
            if part.sent > 0 || (*issued > 0 && is_disk) {
                steps.push(Step::Start(device.lanes_from));
            }
        }
        if moved != Moved::default() {
            let (device, _) = holds.last().expect("a turn takes the lock");
            let device = &self.devices[*device];
            self.price_adapter(device, moved, steps);
            if moved.sent > 0 {
                steps.push(Step::Start(device.lanes_from));
            }
        }
    }

    /// The adapter's lock, for each command that was sent and each that has ended.
    fn price_adapter(&self, device: &DeviceSide, moved: Moved, steps: &mut Vec<Step>) {
        let Layer::Path { adapter, .. } = device.layer else { return };
        let (lock, queue) = (self.adapters[adapter], device.right);
        let price = self.profile.scsi;
        for (count, ns) in [(moved.sent, price.send), (moved.ended, price.done)] {
            for _ in 0..count {
                steps.extend([
                    Step::Take(lock),
                    Step::Hold { lock, ns },
                    Step::Free(lock),
                    Step::Take(queue),
                    Step::Free(queue),
                ]);
            }
        }
    }
}

//! The single-queue path: which holds of its one lock a call of the core told, and what each takes.
//!
//! The core itself takes the lock, in the thread that submits as well: it inserts, dispatches and
//! sends there. So a hold is priced for what was told in it: the scheduler's work for each request
//! that was inserted, picked and ended, and the driver's for each that was sent. A hold in which
//! nothing was told takes a hand-over of the lock alone.

use crate::cpu::Step;
use crate::drive::system;
use crate::heard::{HeardHolds, Hold};
use crate::host::Host;

impl Host {
    /// A process hands in what it has made up; what its processor does for that.
    pub(crate) fn hand_in_to_single(&mut self, process: usize, steps: &mut Vec<Step>) {
        let heard: Vec<HeardHolds> = self.devices.iter().map(|_| HeardHolds::default()).collect();
        self.processes[process].hand_in(self.agenda.now(), |device| &heard[device]);
        for (device, heard) in heard.into_iter().enumerate() {
            let lane = self.devices[device].lanes_from;
            self.price_holds(lane, &heard.into_holds(), steps);
        }
    }

    /// A turn of the one lane of a device; what its processor does for that.
    pub(crate) fn turn_single(&mut self, lane: usize, steps: &mut Vec<Step>) {
        let heard = HeardHolds::default();
        self.lanes[lane].lane.run_telling(self.agenda.now(), &heard);
        let holds = heard.into_holds();
        self.price_holds(lane, &holds, steps);
        if holds.iter().any(|hold| hold.ended > 0) {
            steps.push(Step::Tell(lane));
        }
    }

    fn price_holds(&self, lane: usize, holds: &[Hold], steps: &mut Vec<Step>) {
        let path = &self.profile.path;
        let device = &self.devices[self.lanes[lane].device];
        let (price, lock) = (&device.price, device.right);
        for Hold { inserted, picked, issued, ended } in holds {
            let sections = [(inserted, &price.insert), (picked, &price.pick), (ended, &price.end)];
            let sections = sections.map(|(count, each)| count * each.iter().sum::<u64>());
            let rung = if *issued > 0 { path.doorbell } else { 0 };
            steps.extend([
                system(inserted * price.own),
                Step::Take(lock),
                Step::Hold { lock, ns: sections.iter().sum() },
                system(issued * path.issue + rung + ended * path.end),
                Step::Free(lock),
                Step::Fetch(price.after),
            ]);
            if *issued > 0 {
                steps.push(Step::Start(lane));
            }
        }
    }
}

//! The lanes of a reactor. Only those are turned that have a reason: they are marked in the roster
//! of the reactor's bell, their own time has come, or their driver's event is there.
//!
//! A lane that is marked is *listed*: it is turned in every round, looked at before the reactor
//! sleeps, and its mark stays, so that whoever gives it work in the meantime finds it set. After
//! some quiet rounds it is struck off. A lane whose driver has no event, and holds requests, wants
//! its next turn at once ([`Lane::wake_at`]), and so is never quiet.

use weir_bio::Nanos;
use weir_queue::{Device, Lane};
use weir_ring::Roster;

use crate::alarms::Alarms;

/// Rounds in which a listed lane may have nothing to do. To strike a lane off and to list it again
/// takes some exchanges on a line that others read, which is not to happen for each of a few I/Os
/// in turn; and more rounds would be turns for nothing, for each lane that was used a moment ago.
const QUIET: u8 = 16;

/// A lane at home here.
pub(crate) struct HomeLane {
    pub(crate) device: Device,
    pub(crate) lane: Lane,
    listed: bool,
    /// Rounds in which it had nothing to do, one after the other.
    quiet: u8,
    /// When it is to be looked at, if that is set.
    alarm: Option<Nanos>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Lanes {
    /// By place in the roster.
    places: Vec<Option<HomeLane>>,
    /// Places of those that are turned in each round.
    listed: Vec<u32>,
    alarms: Alarms,
}

impl Lanes {
    /// A lane that was opened, which is turned in the next round.
    pub(crate) fn put(&mut self, device: Device, lane: Lane, roster: &Roster) {
        let place = lane.place();
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        let home = HomeLane { device, lane, listed: false, quiet: 0, alarm: None };
        self.places[place] = Some(home);
        roster.mark_fenced(place);
    }

    /// Takes out those lanes, one by one.
    pub(crate) fn extract(
        &mut self,
        roster: &Roster,
        which: impl Fn(&HomeLane) -> bool,
        mut each: impl FnMut(HomeLane),
    ) {
        for (place, slot) in self.places.iter_mut().enumerate() {
            let Some(mut home) = slot.take_if(|home| which(home)) else { continue };
            self.alarms.clear(&mut home.alarm, place as u32);
            self.listed.retain(|listed| *listed as usize != place);
            roster.strike(place);
            each(home);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &HomeLane> {
        self.places.iter().flatten()
    }

    /// Turns each lane that has a reason.
    #[inline]
    pub(crate) fn turn(&mut self, now: Nanos, roster: &Roster) {
        while let Some(place) = self.alarms.take_due(now) {
            self.ring_alarm(place, now, roster);
        }
        self.list(roster);
        for place in &self.listed {
            if let Some(home) = &mut self.places[*place as usize] {
                if home.has_work(now) {
                    home.quiet = 0;
                }
                home.lane.turn(now);
            }
        }
    }

    /// The event of the driver at this place is there.
    #[inline]
    pub(crate) fn hear(&mut self, place: usize, roster: &Roster) {
        if let Some(Some(home)) = self.places.get_mut(place) {
            home.quiet = 0;
            roster.mark_fenced(place);
        }
    }

    /// A time has come that a lane named, if it has not named another since.
    fn ring_alarm(&mut self, place: u32, now: Nanos, roster: &Roster) {
        let Some(home) = &mut self.places[place as usize] else { return };
        home.alarm = None;
        match home.lane.wake_at() {
            // It names its next time when it is struck off.
            _ if home.listed => {}
            Some(at) if at <= now => roster.mark_fenced(place as usize),
            at => self.alarms.set(&mut home.alarm, place, at),
        }
    }

    /// Lists what has been marked.
    #[inline]
    fn list(&mut self, roster: &Roster) {
        let Lanes { places, listed, .. } = self;
        roster.take(|place| match places.get_mut(place) {
            Some(Some(home)) if !home.listed => {
                (home.listed, home.quiet) = (true, 0);
                listed.push(place as u32);
            }
            Some(Some(_)) => {}
            // It was closed; whoever knows it still may mark it again.
            _ => roster.strike(place),
        });
    }

    /// Whether a lane has a reason for another turn.
    pub(crate) fn have_work(&self, now: Nanos, roster: &Roster) -> bool {
        let is_due = |at: Nanos| at <= now;
        roster.any()
            || self.alarms.earliest().is_some_and(is_due)
            || self.listed().any(|home| home.has_work(now))
    }

    fn listed(&self) -> impl Iterator<Item = &HomeLane> {
        self.listed.iter().filter_map(|place| self.places[*place as usize].as_ref())
    }

    /// The round is over: strikes off what has been quiet for long. Whether a lane has a reason for
    /// another turn.
    #[inline]
    pub(crate) fn settle(&mut self, now: Nanos, roster: &Roster) -> bool {
        let Lanes { places, listed, alarms, .. } = self;
        let mut busy = false;
        listed.retain(|place| {
            let Some(home) = &mut places[*place as usize] else { return false };
            if home.has_work(now) {
                busy = true;
                return true;
            }
            home.quiet += 1;
            let stays = home.quiet < QUIET;
            if !stays {
                home.strike(*place, alarms, roster);
            }
            stays
        });
        busy || self.have_work(now, roster)
    }

    /// When a lane wants a turn.
    pub(crate) fn earliest(&self) -> Option<Nanos> {
        self.listed().filter_map(|home| home.lane.wake_at()).chain(self.alarms.earliest()).min()
    }

    /// All of them go; what becomes of each is for `each`.
    pub(crate) fn end(&mut self, each: impl FnMut(HomeLane)) {
        self.places.drain(..).flatten().for_each(each);
        *self = Lanes::default();
    }
}

impl HomeLane {
    #[inline]
    fn has_work(&self, now: Nanos) -> bool {
        self.lane.has_work() || self.lane.wake_at().is_some_and(|at| at <= now)
    }

    #[cold]
    fn strike(&mut self, place: u32, alarms: &mut Alarms, roster: &Roster) {
        self.listed = false;
        roster.strike(place as usize);
        if self.lane.has_work() {
            // It came a moment ago, from one who found the mark set.
            roster.mark_fenced(place as usize);
        }
        alarms.set(&mut self.alarm, place, self.lane.wake_at());
    }
}

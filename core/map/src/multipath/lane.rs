//! One queue of a multipath device: chooses a path for each request, and deals with what comes back
//! from paths that failed.

use std::sync::Arc;

use weir_bio::{Data, Flags, Nanos, Op, Rq, SECTOR, Status};
use weir_queue::{
    Batch, Cancel, Completion, Device, Done, DriverQueue, Tag, UNTIL_KICKED, Unflushed, Wake,
};

use super::checks::{self, Checks};
use super::doubt::{Doubts, Settled, changes};
use super::selector::Load;
use super::settings::{Retry, Settings};
use super::shared::Shared;
use super::slow::SlowPaths;
use super::tally::LaneTally;
use super::view::{LaneShape, View};
use crate::layout::Piece;
use crate::outgoing::{Outgoing, Route, tag_of};

/// The requests of one lane.
pub(super) struct LaneQueue {
    index: u16,
    shared: Arc<Shared>,
    legs: Arc<[Device]>,
    outgoing: Outgoing,
    view: View,
    tally: Arc<LaneTally>,
    retry: Retry,
    late_write_ns: u64,
    /// Requests taken without a path for them, to be answered so, or handed back.
    unsent: Vec<(Tag, Option<Status>)>,
    /// Bios that came back from a path with an error of the path.
    failed: Vec<(usize, Completion)>,
    /// Bios that wait for a path.
    parked: Vec<Completion>,
    doubts: Doubts,
    /// Requests that were given up above: nothing new is sent for them.
    cancelled: Vec<u16>,
    /// Lane 0 alone sees to what is due.
    chores: Option<Chores>,
}

/// What lane 0 does for all.
struct Chores {
    checks: Checks,
    slow: Option<SlowPaths>,
    groups: Vec<std::ops::Range<usize>>,
}

/// The parts of a lane.
pub(super) struct LaneParts {
    pub(super) shape: LaneShape,
    pub(super) shared: Arc<Shared>,
    pub(super) legs: Arc<[Device]>,
    pub(super) outgoing: Outgoing,
    pub(super) view: View,
    pub(super) tally: Arc<LaneTally>,
    pub(super) settings: Settings,
}

impl LaneQueue {
    pub(super) fn new(parts: LaneParts) -> LaneQueue {
        let LaneParts { shape, shared, legs, outgoing, view, tally, settings } = parts;
        let chores = (shape.index == 0).then(|| Chores {
            checks: Checks::new(settings.path_checker, legs.len()),
            slow: settings.slow_path.then(|| SlowPaths::new(legs.len())),
            groups: shared.look(|control| control.groups_of_paths()),
        });
        LaneQueue {
            index: shape.index,
            shared,
            legs,
            outgoing,
            view,
            tally,
            retry: settings.retry,
            late_write_ns: settings.late_write_ns(),
            unsent: Vec::new(),
            failed: Vec::new(),
            parked: Vec::new(),
            doubts: Doubts::default(),
            cancelled: Vec::new(),
            chores,
        }
    }

    fn load(&self, bytes: u64) -> Load {
        Load { bytes, cpu: u32::from(self.index) }
    }

    /// The end of a request for which there is no path; `None`: it waits.
    #[cold]
    fn without_path(&self, flags: Flags, status: Status) -> Option<Status> {
        if flags.has(Flags::NOWAIT) {
            return Some(Status::Again);
        }
        (!self.view.holds()).then_some(status)
    }

    /// A bio has come back with an error of its path.
    #[cold]
    fn take_failed(&mut self, path: usize, end: Completion, now: Nanos) {
        self.view.count_error(path);
        let reason = end.status.to_string();
        self.shared.change(now, |control| control.fail(path, &reason, now));
        self.view.follow(&self.shared);
        let rq = *self.outgoing.rq(end.cookie);
        let sectors = self.outgoing.sectors(&end);
        let is_late = end.status == Status::Timeout && changes(rq.op);
        if is_late && self.legs[path].may_change_late(sectors.clone()) {
            if self.retry == Retry::Fenced {
                let bound = (now, self.late_write_ns);
                return self.doubts.add(path, sectors, end, bound);
            }
            self.tell_risk(path, &sectors);
        }
        self.send_again(end, now);
    }

    fn tell_risk(&self, path: usize, sectors: &std::ops::Range<u64>) {
        let name = self.shared.look(|control| control.name(path).to_owned());
        self.shared.notices.add(format!(
            "retry=immediate: the write of sectors {}..{} goes down another path while path {name} \
             may still carry it out, which would put older data over newer",
            sectors.start, sectors.end
        ));
    }

    /// Sends a bio that failed down another path; or it waits for one, or it has ended.
    #[cold]
    fn send_again(&mut self, end: Completion, now: Nanos) {
        let rq = *self.outgoing.rq(end.cookie);
        let bytes = u64::from(end.sectors) * SECTOR;
        if rq.op.has_data() && end.data.len() as u64 != bytes {
            // Its memory is with a driver below, so there is nothing to send.
            return self.outgoing.end(end.cookie, Status::Timeout, Data::None);
        }
        if self.cancelled.contains(&(tag_of(end.cookie) as u16)) {
            return self.outgoing.end(end.cookie, Status::Timeout, end.data);
        }
        match self.view.choose(self.load(bytes), &self.shared, now) {
            Some(path) => {
                self.view.started(path, bytes);
                let bio = self.outgoing.again(end);
                self.outgoing.resend(path, bio, now);
            }
            None => match self.without_path(rq.flags, end.status) {
                Some(status) => self.outgoing.end(end.cookie, status, end.data),
                None => self.parked.push(end),
            },
        }
    }

    /// The state machine has changed.
    #[cold]
    fn take_news(&mut self, now: Nanos, done: &mut Done) {
        while self.view.take_news() {
            done.kick();
            self.recall_from_failed(now);
            for end in std::mem::take(&mut self.parked) {
                self.send_again(end, now);
            }
        }
    }

    /// Bios that wait for a leg whose path has failed go elsewhere.
    fn recall_from_failed(&mut self, now: Nanos) {
        if self.outgoing.legs().waiting() == 0 {
            return;
        }
        let mut recalled = Vec::new();
        self.outgoing.legs().recall(|_| true, |path, bio| recalled.push((path, bio)));
        for (path, bio) in recalled {
            if self.view.is_valid(path) {
                self.outgoing.legs().send(path, bio, now);
                continue;
            }
            self.view.recalled(path, u64::from(bio.sectors) * SECTOR, now);
            self.send_again(Completion::unsent(bio, Status::Transport), now);
        }
    }

    /// Writes that were in doubt go on.
    #[cold]
    fn settle_doubts(&mut self, now: Nanos) {
        for Settled { leg, end, by_bound } in self.doubts.take_settled(&self.legs, now) {
            if by_bound {
                let name = self.shared.look(|control| control.name(leg).to_owned());
                self.shared.notices.add(format!(
                    "path {name} has not given back a write within twice its \
                     replacement_timeout: it is taken for lost, and goes down another path"
                ));
            }
            self.send_again(end, now);
        }
    }

    /// Lane 0 sees to what is due: checks, times, slow paths.
    fn do_chores(&mut self, now: Nanos) {
        let LaneQueue { chores, shared, legs, outgoing, .. } = self;
        let Some(Chores { checks, slow, groups }) = chores else { return };
        checks.take_commands(legs, outgoing.legs(), now);
        if shared.wake_at() <= now {
            shared.change(now, |control| control.tick(now));
        }
        for path in shared.take_checks() {
            // The target may have told nothing of a change.
            shared.refresh_port(path, now);
            checks.begin(path, &legs[path], outgoing.legs(), now);
        }
        for (path, verdict) in checks.take_ended() {
            shared.change(now, |control| control.checked(path, verdict, now));
        }
        if let Some(slow) = slow.as_mut().filter(|slow| slow.wake_at() <= now) {
            judge_slow(slow, groups, shared, now);
        }
        self.view.follow(&self.shared);
    }
}

#[cold]
fn judge_slow(
    slow: &mut SlowPaths,
    groups: &[std::ops::Range<usize>],
    shared: &Shared,
    now: Nanos,
) {
    let paths = groups.last().map_or(0, |group| group.end);
    for path in 0..paths {
        if !shared.look(|control| control.is_on_probation(path)) {
            slow.forget(path);
        }
    }
    let changes = slow.judge(groups, |path| shared.sum(path).latency, now);
    for change in changes {
        let (path, on) = (change.path, change.on_probation);
        shared.change(now, |control| control.put_on_probation(path, on, &change.reason));
    }
}

/// All of a request down one path.
struct OnePath<'a> {
    path: usize,
    view: &'a mut View,
}

impl Route for OnePath<'_> {
    #[inline(always)]
    fn front(&mut self, _rq: &Rq, sector: u64, sectors: u32) -> Piece {
        self.view.started(self.path, u64::from(sectors) * SECTOR);
        Piece { leg: self.path, sector, sectors }
    }

    fn ranges(&mut self, rq: &Rq, visit: &mut dyn FnMut(Piece)) {
        self.view.started(self.path, u64::from(rq.sectors) * SECTOR);
        visit(Piece { leg: self.path, sector: rq.sector, sectors: rq.sectors });
    }

    /// One, whatever the number of paths: behind each is the same device.
    fn flush(&mut self, visit: &mut dyn FnMut(usize)) {
        self.view.started(self.path, 0);
        visit(self.path);
    }
}

impl DriverQueue for LaneQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.view.follow(&self.shared);
        let mut ended = false;
        while let Some((tag, request)) = batch.peek() {
            if !self.cancelled.is_empty() {
                self.cancelled.retain(|number| *number != tag.0);
            }
            let load = Load { bytes: request.len(), cpu: u32::from(self.index) };
            if let Some(path) = self.view.choose(load, &self.shared, now) {
                let mut route = OnePath { path, view: &mut self.view };
                ended |= self.outgoing.send(tag, request, &mut route, now);
            } else {
                let fate = self.without_path(request.flags(), Status::IoErr);
                self.unsent.push((tag, fate));
                ended = true;
            }
            batch.take();
        }
        if ended {
            self.outgoing.wake();
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.outgoing.commit(now);
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.shared.set_wake(self.index, Some(Arc::clone(&lane)));
        self.outgoing.at_home(lane);
    }

    fn announces(&self) -> bool {
        true
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.view.follow(&self.shared);
        let LaneQueue { outgoing, view, failed, chores, legs, .. } = self;
        outgoing.reap_with(now, done, |path, mut end| {
            if end.cookie == checks::READ {
                let chores = chores.as_mut().expect("lane 0 alone sends checks");
                chores.checks.read_ended(path, end.status);
                return None;
            }
            let bytes = match end.op {
                Op::Flush => 0,
                _ => u64::from(end.sectors) * SECTOR,
            };
            view.ended(path, bytes, end.wait_ns + end.device_ns, now);
            // A flush goes down as a write without data.
            let is_flush = end.op == Op::Write && end.sectors == 0;
            let is_ok = end.status.is_ok();
            if !is_ok && !blames_path(end.status) {
                return Some(end);
            }
            if is_flush && hides_a_loss(legs, path, end.status) {
                end.status = Status::IoErr;
                return Some(end);
            }
            if is_ok {
                return Some(end);
            }
            failed.push((path, end));
            None
        });
        if self.chores.is_some() {
            self.do_chores(now);
        }
        if !self.failed.is_empty() {
            for (path, end) in std::mem::take(&mut self.failed) {
                self.take_failed(path, end, now);
            }
        }
        if self.doubts.wake_at().is_some_and(|at| at <= now) {
            self.settle_doubts(now);
        }
        if self.view.has_news() {
            self.take_news(now, done);
        }
        for (tag, fate) in self.unsent.drain(..) {
            match fate {
                Some(status) => done.push(tag, status),
                None => done.push_requeue(tag, UNTIL_KICKED, Vec::new()),
            }
        }
        self.outgoing.answer(done);
        self.outgoing.commit(now);
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        self.cancelled.push(tag.0);
        let before = self.parked.len();
        let is_of_it = |end: &mut Completion| tag_of(end.cookie) == usize::from(tag.0);
        for end in self.parked.extract_if(.., is_of_it) {
            self.outgoing.end(end.cookie, Status::Timeout, end.data);
        }
        if self.parked.len() < before {
            self.outgoing.wake();
        }
        self.outgoing.cancel(tag)
    }

    fn wake_at(&self) -> Option<Nanos> {
        let Some(chores) = &self.chores else { return self.doubts.wake_at() };
        let due = self.shared.wake_at();
        let slow = chores.slow.as_ref().map(SlowPaths::wake_at);
        let due = (due != Nanos(u64::MAX)).then_some(due);
        [due, slow, self.doubts.wake_at()].into_iter().flatten().min()
    }

    fn in_flight(&self) -> usize {
        self.outgoing.in_flight() + self.unsent.len()
    }
}

/// Whether a flush that `path` has answered, or has not, is no news of writes that were answered
/// before: each path knows of its own alone, and a flush down another one succeeds over what is no
/// longer there. A path whose other end has been there all along speaks for the others as well.
#[cold]
fn hides_a_loss(legs: &[Device], path: usize, status: Status) -> bool {
    let kept = |leg: &Device| leg.unflushed() == Unflushed::Kept;
    match legs.iter().map(Device::unflushed).max().unwrap_or_default() {
        Unflushed::Kept | Unflushed::Renewed => false,
        Unflushed::Doubtful if status.is_ok() => !kept(&legs[path]),
        Unflushed::Doubtful => !legs.iter().any(kept),
        Unflushed::Gone => true,
    }
}

/// Whether the path is to blame. A request that would not wait had to: that is no error.
fn blames_path(status: Status) -> bool {
    status.is_path_error() && status != Status::Again
}

impl Drop for LaneQueue {
    fn drop(&mut self) {
        self.shared.set_wake(self.index, None);
        self.tally.close();
    }
}

//! Homes in one thread and virtual time. Each runs only for a reason a real home would have: its
//! bell woke it, a lane or a submitter has work when it looks before it sleeps, a time it was told
//! has come, the driver's event is there. A wake-up that is lost is then a home that never runs
//! again, and a wake-up too many is a home that never sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_bio::{Nanos, Prng};
use weir_queue::{Bell, Device, Home, Lane};
use weir_ring::Wake;

use super::log::Log;

/// Steps without any progress while some sleeper always has a reason to run: more is busy polling.
const IDLE_PASSES_MAX: u32 = 2_000;

struct Flag(Arc<AtomicBool>);

impl Wake for Flag {
    fn wake(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Something that lives on a home and uses submitters.
pub trait App {
    /// Its turn: `told` says that its submitter's bell bit was set. True when it did anything.
    fn run(&mut self, now: Nanos, told: bool) -> bool;
    /// A round of its own with the lanes of its home, in one call; nothing, for one that has none.
    fn round(&mut self, home: &mut Home, now: Nanos) {
        let _ = (home, now);
    }
    /// Whether it would do something of its own accord, without being told.
    fn is_eager(&self) -> bool;
    /// When it wants a turn of its own accord.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }
}

/// One thread that never was.
pub struct Sleeper {
    /// The lanes of the thread.
    pub home: Home,
    woken: Arc<AtomicBool>,
    asleep: bool,
    /// By bell token: the app, or none any more.
    apps: Vec<usize>,
}

impl Sleeper {
    fn new() -> Sleeper {
        let woken = Arc::new(AtomicBool::new(false));
        let bell = Bell::with_lanes(Box::new(Flag(Arc::clone(&woken))), 64);
        Sleeper { home: Home::strict(bell), woken, asleep: false, apps: Vec::new() }
    }
}

fn is_due(app: &impl App, now: Nanos) -> bool {
    app.is_eager() || app.wake_at().is_some_and(|at| at <= now)
}

/// All homes and what lives on them.
pub struct House<A> {
    /// The time.
    pub now: Nanos,
    /// The source of choices.
    pub prng: Prng,
    /// The threads.
    pub homes: Vec<Sleeper>,
    /// All apps, by number.
    pub apps: Vec<A>,
    /// When lane n has an event, if the driver announces answers that way.
    event_at: Box<dyn Fn(usize) -> Option<Nanos>>,
    /// Changes with every step forward that the homes cannot see.
    progress: Box<dyn Fn() -> u64>,
    seen: u64,
    idle_passes: u32,
    /// Turns that homes took.
    pub passes: u64,
    /// Its apps also take rounds with the lanes of their homes in one call, of which nothing is
    /// told.
    pub rounds: bool,
    /// Where its homes tell what happens.
    pub log: Log,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A home ran or went to sleep, or time went on.
    Went,
    /// All homes sleep, and no time will wake one.
    Rest,
}

impl<A: App> House<A> {
    /// So many homes. `event_at` says when a lane has an event, `progress` changes with whatever
    /// happens outside of them.
    pub fn new(
        homes: usize,
        seed: u64,
        event_at: impl Fn(usize) -> Option<Nanos> + 'static,
        progress: impl Fn() -> u64 + 'static,
    ) -> House<A> {
        House {
            now: Nanos(0),
            prng: Prng::new(seed),
            homes: (0..homes).map(|_| Sleeper::new()).collect(),
            apps: Vec::new(),
            event_at: Box::new(event_at),
            progress: Box::new(progress),
            seen: 0,
            idle_passes: 0,
            passes: 0,
            rounds: false,
            log: Log::default(),
        }
    }

    /// Opens a lane of a device at a home.
    pub fn open_lane(&mut self, device: &Device, index: usize, home: usize) {
        let home = &mut self.homes[home].home;
        home.open(device, index).expect("a lane that is not open");
        home.turn_telling(self.now, self.log.ear());
    }

    /// The bell token the next app on this home gets.
    pub fn next_token(&self, home: usize) -> usize {
        self.homes[home].apps.len()
    }

    /// An app comes to live on a home.
    pub fn add_app(&mut self, home: usize, app: A) {
        self.homes[home].apps.push(self.apps.len());
        self.apps.push(app);
    }

    /// One step: a home chosen at random takes a turn; if none can, time goes on.
    pub fn step(&mut self) -> Step {
        self.note_progress();
        let able: Vec<usize> = (0..self.homes.len()).filter(|home| self.is_able(*home)).collect();
        if able.is_empty() {
            let Some(next) = self.next_time() else {
                self.idle_passes = 0;
                return Step::Rest;
            };
            assert!(next > self.now, "a time that has come wakes nobody");
            (self.now, self.idle_passes) = (next, 0);
            return Step::Went;
        }
        let home = able[self.prng.below(able.len() as u64) as usize];
        if self.homes[home].asleep {
            self.homes[home].woken.store(false, Ordering::SeqCst);
            self.homes[home].home.awake();
            self.homes[home].asleep = false;
            self.pass(home);
        } else {
            // It has run and is about to sleep; others may have rung in between, unheard.
            let sleeps = self.homes[home].home.before_sleep(self.now, || self.has_event(home));
            if sleeps {
                self.homes[home].asleep = true;
            } else {
                self.pass(home);
            }
        }
        Step::Went
    }

    /// Turns every lane, as their drivers' events would make their homes do.
    pub fn turn_all(&mut self) {
        for home in 0..self.homes.len() {
            let now = self.now;
            self.homes[home].home.turn_all_telling(now, self.log.ear());
        }
    }

    fn note_progress(&mut self) {
        let seen = (self.progress)();
        if seen == self.seen {
            self.idle_passes += 1;
            let most = IDLE_PASSES_MAX;
            let busy = self.idle_passes >= most;
            assert!(
                !busy,
                "homes are busy, and nothing happens for {most} steps: {}",
                self.state()
            );
        } else {
            (self.seen, self.idle_passes) = (seen, 0);
        }
    }

    /// The reasons that each home and client has to run.
    pub fn state(&self) -> String {
        let mut lines = format!("now {:?}", self.now);
        for (index, home) in self.homes.iter().enumerate() {
            let lanes = home.home.lanes().map(|l| (l.index(), l.has_work(), self.lane_time(l)));
            let eager = home.apps.iter().filter(|app| self.apps[**app].is_eager()).count();
            lines += &format!(
                "\nhome {index}: asleep {}, ready {}, eager {eager}, lanes (work, time) {:?}",
                home.asleep,
                home.home.bell().ready().any(),
                lanes.collect::<Vec<_>>(),
            );
        }
        lines
    }

    fn is_able(&self, index: usize) -> bool {
        let home = &self.homes[index];
        !home.asleep
            || home.woken.load(Ordering::SeqCst)
            || home.apps.iter().any(|app| is_due(&self.apps[*app], self.now))
            || home.home.wake_at().is_some_and(|at| at <= self.now)
            || self.has_event(index)
    }

    /// Whether the driver of a lane of this home has an event.
    fn has_event(&self, index: usize) -> bool {
        let mut lanes = self.homes[index].home.lanes();
        lanes.any(|lane| self.event_at(lane).is_some_and(|at| at <= self.now))
    }

    fn event_at(&self, lane: &Lane) -> Option<Nanos> {
        (self.event_at)(lane.index()).filter(|_| lane.announces())
    }

    fn lane_time(&self, lane: &Lane) -> Option<Nanos> {
        let event = self.event_at(lane);
        let own = lane.wake_at().filter(|at| *at != Nanos(u64::MAX));
        own.into_iter().chain(event).min()
    }

    fn next_time(&self) -> Option<Nanos> {
        let lanes = self.homes.iter().flat_map(|home| home.home.lanes());
        let apps = self.apps.iter().filter_map(App::wake_at);
        lanes.filter_map(|lane| self.lane_time(lane)).chain(apps).min()
    }

    fn pass(&mut self, index: usize) {
        self.passes += 1;
        self.now = self.now + self.prng.below(300);
        let apps_first = self.prng.percent(50);
        if apps_first {
            self.run_apps(index);
        }
        self.turn_lanes(index);
        if !apps_first {
            self.run_apps(index);
        }
        if self.rounds && self.passes.is_multiple_of(3) {
            let Sleeper { home, apps, .. } = &mut self.homes[index];
            apps.iter().for_each(|app| self.apps[*app].round(home, self.now));
        }
    }

    fn run_apps(&mut self, index: usize) {
        let home = &mut self.homes[index];
        let mut told = vec![false; home.apps.len()];
        home.home.bell().ready().take(|token| told[token] = true);
        for (app, told) in home.apps.iter().zip(told) {
            let app = &mut self.apps[*app];
            if told || is_due(app, self.now) {
                app.run(self.now, told);
            }
        }
    }

    fn turn_lanes(&mut self, index: usize) {
        let now = self.now;
        let lanes = self.homes[index].home.lanes();
        let heard = lanes.filter(|lane| self.event_at(lane).is_some_and(|at| at <= now));
        let heard: Vec<usize> = heard.map(Lane::place).collect();
        let home = &mut self.homes[index].home;
        heard.into_iter().for_each(|place| home.hear(place));
        home.turn_telling(now, self.log.ear());
    }
}

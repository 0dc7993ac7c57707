//! The state machine of multipath, turned by hand: failures, groups, failback, activation, checks,
//! messages, and its texts. All time is virtual.

use weir_bio::Nanos;
use weir_map::multipath::control::{Control, Order, Verdict};
use weir_map::multipath::port::priority;
use weir_map::multipath::selector::Figures;
use weir_map::multipath::settings::{OPTIONS, Settings};
use weir_map::multipath::table::Table;
use weir_queue::{Activation, PortAccess, PortState};

const TWO_AND_ONE: &str = "0 0 2 1 round-robin 0 2 1 a 1 b 1 round-robin 0 1 1 c 1";
const QUEUEING: &str = "1 queue_if_no_path 0 2 1 round-robin 0 2 1 a 1 b 1 round-robin 0 1 1 c 1";
const ALUA: &str = "0 1 alua 2 1 round-robin 0 2 1 a 1 b 1 round-robin 0 1 1 c 1";

/// A machine with a clock in seconds.
struct Rig {
    control: Control,
    now: Nanos,
}

fn seconds(s: f64) -> Nanos {
    Nanos((s * 1e9) as u64)
}

impl Rig {
    fn new(table: &str, options: &[(&str, &str)]) -> Rig {
        let mut settings = Settings::default();
        for (name, value) in options {
            assert!(settings.set(name, value).unwrap(), "{name} is an option");
        }
        let table = Table::parse(table).unwrap();
        let now = Nanos::ZERO;
        Rig { control: Control::new(table, settings, now), now }
    }

    fn at(&mut self, s: f64) -> &mut Rig {
        self.now = seconds(s);
        self.control.tick(self.now);
        self
    }

    fn fail(&mut self, path: &str) {
        let path = self.control.path(path).unwrap();
        self.control.fail(path, "transport error", self.now);
    }

    fn back(&mut self, path: &str) {
        let path = self.control.path(path).unwrap();
        self.control.reinstate(path, "a check", self.now);
    }

    /// The group that the next request goes to, counted from 1.
    fn group(&mut self) -> Option<usize> {
        self.control.choose_group(self.now).map(|group| group + 1)
    }

    fn say(&mut self, message: &str) -> Result<(), String> {
        self.control.message(message, self.now)
    }

    fn status(&self) -> String {
        self.control.status_text(|_| Figures::default())
    }

    fn events(&mut self) -> Vec<String> {
        self.control.take_events().into_iter().map(|event| event.0).collect()
    }

    fn orders(&mut self) -> Vec<Order> {
        self.control.take_orders()
    }

    fn checked(&mut self, path: &str, verdict: Verdict) {
        let path = self.control.path(path).unwrap();
        self.control.checked(path, verdict, self.now);
    }

    fn activated(&mut self, path: &str, how: Activation) {
        let path = self.control.path(path).unwrap();
        self.control.activated(path, how, self.now);
    }

    fn port(&mut self, path: &str, access: PortAccess, preferred: bool) {
        let path = self.control.path(path).unwrap();
        self.control.port_is(path, Some(PortState { access, preferred }), self.now);
    }
}

#[test]
fn a_group_is_left_only_when_its_last_path_has_failed() {
    let mut rig = Rig::new(TWO_AND_ONE, &[]);
    assert_eq!(rig.group(), Some(1));
    rig.fail("a");
    assert_eq!(rig.group(), Some(1));
    rig.fail("b");
    assert_eq!(rig.group(), Some(2));
    rig.back("a");
    assert_eq!(rig.group(), Some(2), "failback is manual");
    rig.fail("c");
    assert_eq!(rig.group(), Some(1));
    rig.fail("a");
    assert_eq!(rig.group(), None);
    rig.back("c");
    assert_eq!(rig.group(), Some(2));
}

#[test]
fn the_initial_group_is_used_first_and_once() {
    let mut rig = Rig::new(&TWO_AND_ONE.replace("2 1 round", "2 2 round"), &[]);
    assert_eq!(rig.group(), Some(2));
    rig.fail("c");
    assert_eq!(rig.group(), Some(1));
    rig.back("c");
    assert_eq!(rig.group(), Some(1));
    // One that has no path is passed over, and forgotten.
    let mut rig = Rig::new(&TWO_AND_ONE.replace("2 1 round", "2 2 round"), &[]);
    rig.fail("c");
    assert_eq!(rig.group(), Some(1));
    rig.back("c");
    assert_eq!(rig.group(), Some(1));
}

#[test]
fn bypassed_groups_come_last_and_a_switch_bypasses_none() {
    let mut rig = Rig::new(TWO_AND_ONE, &[]);
    assert_eq!(rig.group(), Some(1));
    rig.say("disable_group 1").unwrap();
    assert_eq!(rig.group(), Some(2));
    rig.fail("c");
    assert_eq!(rig.group(), Some(1), "rather than none");
    rig.back("c");
    rig.say("enable_group 1").unwrap();
    assert_eq!(rig.group(), Some(1));
    rig.say("disable_group 1").unwrap();
    rig.say("disable_group 2").unwrap();
    rig.say("switch_group 2").unwrap();
    assert_eq!(rig.group(), Some(2));
    assert!(!rig.status().contains('D'), "{}", rig.status());
    rig.fail("c");
    assert_eq!(rig.group(), Some(1));
}

#[test]
fn the_status_line_is_dms() {
    let mut rig = Rig::new("0 0 1 1 round-robin 0 2 1 8:0 1 8:16 1", &[]);
    assert_eq!(rig.status(), "2 0 0 0 1 1 E 0 2 0 8:0 A 0 8:16 A 0");
    let mut queue = Rig::new("0 0 1 1 queue-length 0 2 1 8:0 1 8:16 1", &[]);
    assert_eq!(queue.status(), "2 0 0 0 1 1 E 0 2 1 8:0 A 0 0 8:16 A 0 0");
    queue.group();
    assert_eq!(queue.status(), "2 0 0 0 1 1 A 0 2 1 8:0 A 0 0 8:16 A 0 0");
    rig.group();
    rig.fail("8:16");
    rig.fail("8:16");
    assert_eq!(rig.status(), "2 0 0 0 1 1 A 0 2 0 8:0 A 0 8:16 F 1", "it failed once");
    let mut rig = Rig::new(TWO_AND_ONE, &[]);
    rig.say("switch_group 2").unwrap();
    assert_eq!(rig.status(), "2 0 0 0 2 2 E 0 2 0 a A 0 b A 0 E 0 1 0 c A 0");
    rig.group();
    rig.say("disable_group 1").unwrap();
    assert_eq!(rig.status(), "2 0 0 0 2 2 D 0 2 0 a A 0 b A 0 A 0 1 0 c A 0");
    let historical = "0 0 1 1 historical-service-time 2 900 3 1 1 a 1";
    let rig = Rig::new(historical, &[]);
    assert_eq!(rig.status(), "2 0 0 0 1 1 E 2 900 3 1 3 a A 0 0 0 0");
    assert_eq!(rig.control.table_text(), historical);
    let none = Rig::new("0 0 0 0", &[]);
    assert_eq!(
        (none.status(), none.control.table_text()),
        ("2 0 0 0 0 0".into(), "0 0 0 0".into())
    );
}

#[test]
fn the_table_text_follows_what_messages_changed() {
    let mut rig = Rig::new(TWO_AND_ONE, &[]);
    assert_eq!(rig.control.table_text(), TWO_AND_ONE);
    rig.say("queue_if_no_path").unwrap();
    rig.say("switch_group 2").unwrap();
    assert_eq!(
        rig.control.table_text(),
        "1 queue_if_no_path 0 2 2 round-robin 0 2 1 a 1 b 1 round-robin 0 1 1 c 1"
    );
    rig.say("fail_if_no_path").unwrap();
    assert!(rig.control.table_text().starts_with("0 0 2 2"));
}

#[test]
fn messages_that_are_wrong_are_refused_in_words() {
    let mut rig = Rig::new(TWO_AND_ONE, &[]);
    let errors = [
        ("", "an empty message"),
        ("dance", "message \"dance\" is not known; known are queue_if_no_path, "),
        ("fail_path", "is not known"),
        ("fail_path z", "path z is none of a, b, c"),
        ("reinstate_path 7", "path 7 is none of a, b, c"),
        ("switch_group 3", "priority group 3 is outside 1..=2"),
        ("disable_group 0", "priority group 0 is outside 1..=2"),
        ("enable_group x", "priority group x is outside 1..=2"),
    ];
    for (message, expected) in errors {
        let error = rig.say(message).expect_err(message);
        assert!(error.contains(expected), "{message}: {error}");
    }
    rig.say("fail_path a").unwrap();
    assert_eq!(rig.control.valid(), 2);
    rig.say("reinstate_path a").unwrap();
    assert_eq!(rig.control.valid(), 3);
    rig.control.suspend(false);
    assert!(rig.say("fail_path a").unwrap_err().contains("it is suspended"));
    rig.control.resume();
    rig.say("fail_path a").unwrap();
}

#[test]
fn every_event_of_a_path_is_a_line_with_its_reason() {
    let mut rig = Rig::new(QUEUEING, &[]);
    for path in ["a", "b", "c", "a"] {
        rig.fail(path);
    }
    rig.back("b");
    rig.back("b");
    rig.group();
    assert_eq!(
        rig.events(),
        [
            "path a failed: transport error; 2 paths left",
            "path b failed: transport error; 1 paths left",
            "path c failed: transport error; 0 paths left",
            "no path is left: I/O waits",
            "path b is back: a check; 1 paths",
            "priority group 1 of 2 paths is in use",
        ]
    );
}

#[test]
fn a_suspension_lets_what_waits_end_and_a_resume_restores_the_rule() {
    let mut rig = Rig::new(QUEUEING, &[]);
    rig.control.suspend(false);
    assert!(!rig.control.queues_if_no_path());
    assert!(rig.control.table_text().contains("queue_if_no_path"), "it is what was asked for");
    rig.control.resume();
    assert!(rig.control.queues_if_no_path());
    rig.control.suspend(true);
    assert!(rig.control.queues_if_no_path(), "noflush");
}

#[test]
fn no_path_retry_says_for_how_many_checks_io_waits() {
    let waits = |options: &[(&str, &str)], table: &str| {
        let rig = Rig::new(table, options);
        rig.control.queues_if_no_path()
    };
    assert!(!waits(&[("no_path_retry", "fail")], QUEUEING), "it is above the feature");
    assert!(waits(&[("no_path_retry", "queue")], TWO_AND_ONE));
    let mut rig = Rig::new(TWO_AND_ONE, &[("no_path_retry", "3"), ("path_checker", "none")]);
    for path in ["a", "b", "c"] {
        rig.at(100.0).fail(path);
    }
    // Three checks of 5 s.
    assert!(rig.at(114.9).control.queues_if_no_path());
    assert_eq!(rig.control.wake_at(), Some(seconds(115.0)));
    assert!(!rig.at(115.0).control.queues_if_no_path());
    rig.at(120.0).back("b");
    assert!(rig.control.queues_if_no_path(), "from the next time on");
    rig.at(121.0).fail("b");
    rig.at(122.0).back("b");
    assert!(rig.at(200.0).control.queues_if_no_path(), "a path came back in time");
}

#[test]
fn the_time_out_of_queueing_is_for_good() {
    let options = [("queue_if_no_path_timeout_secs", "5"), ("path_checker", "none")];
    let mut rig = Rig::new(QUEUEING, &options);
    for path in ["a", "b", "c"] {
        rig.at(1.0).fail(path);
    }
    rig.at(5.9).back("a");
    assert!(rig.at(20.0).control.queues_if_no_path());
    rig.fail("a");
    assert!(rig.at(24.9).control.queues_if_no_path());
    assert!(!rig.at(25.0).control.queues_if_no_path());
    rig.back("a");
    assert!(!rig.control.queues_if_no_path(), "a message has to say so");
    rig.fail("a");
    rig.say("queue_if_no_path").unwrap();
    assert!(rig.at(29.0).control.queues_if_no_path());
    assert!(!rig.at(30.0).control.queues_if_no_path(), "and then the time runs anew");
}

#[test]
fn failback_is_manual_or_immediate_or_late_or_follows_the_first_path() {
    let begin = |failback| {
        let options = [("failback", failback), ("path_checker", "none")];
        let mut rig = Rig::new(TWO_AND_ONE, &options);
        rig.group();
        rig.fail("a");
        rig.fail("b");
        assert_eq!(rig.group(), Some(2));
        rig
    };
    let mut rig = begin("manual");
    rig.back("a");
    rig.back("b");
    assert_eq!(rig.at(1000.0).group(), Some(2));
    let mut rig = begin("immediate");
    rig.back("a");
    assert_eq!(rig.group(), Some(1), "as many paths, and the first");
    let mut rig = begin("7");
    rig.at(10.0).back("a");
    assert_eq!(rig.at(16.9).group(), Some(2));
    assert_eq!(rig.at(17.0).group(), Some(1));
    // What is the best no longer when the time is over is not gone back to.
    let mut rig = begin("7");
    rig.at(10.0).back("a");
    rig.at(12.0).fail("a");
    rig.at(16.0).back("a");
    assert_eq!(rig.at(17.0).group(), Some(2));
    assert_eq!(rig.at(23.0).group(), Some(1), "7 s from when it is the best again");
    let mut rig = begin("followover");
    rig.back("a");
    assert_eq!(rig.group(), Some(1));
    // A second path of a group is no first.
    let mut rig = begin("followover");
    rig.say("disable_group 1").unwrap();
    rig.back("a");
    rig.say("switch_group 2").unwrap();
    assert_eq!(rig.group(), Some(2));
    rig.back("b");
    assert_eq!(rig.group(), Some(2));
}

#[test]
fn io_does_not_go_back_to_a_group_that_is_bypassed_while_another_has_a_path() {
    let options = [("failback", "immediate"), ("path_checker", "none")];
    let mut rig = Rig::new(TWO_AND_ONE, &options);
    assert_eq!(rig.group(), Some(1));
    rig.say("disable_group 2").unwrap();
    rig.port("c", PortAccess::Optimized, false);
    assert_eq!((rig.group(), rig.control.best_group()), (Some(1), Some(0)));
    rig.say("enable_group 2").unwrap();
    rig.port("c", PortAccess::Optimized, true);
    assert_eq!(rig.group(), Some(2));
    rig.say("disable_group 2").unwrap();
    assert_eq!(rig.group(), Some(1));
    rig.fail("a");
    rig.fail("b");
    assert_eq!((rig.group(), rig.control.best_group()), (Some(2), Some(1)), "better than none");
}

#[test]
fn the_best_group_is_by_the_mean_priority_then_paths_then_order() {
    let mut rig = Rig::new(TWO_AND_ONE, &[("prio", "alua")]);
    assert_eq!(rig.control.best_group(), Some(0), "most paths");
    rig.fail("a");
    assert_eq!(rig.control.best_group(), Some(0), "the first");
    rig.back("a");
    // (50 + 1) / 2 against 50.
    rig.port("a", PortAccess::Optimized, false);
    rig.port("b", PortAccess::Standby, false);
    rig.port("c", PortAccess::Optimized, false);
    assert_eq!(rig.control.best_group(), Some(1));
    rig.port("c", PortAccess::NonOptimized, false);
    assert_eq!(rig.control.best_group(), Some(0));
    rig.port("c", PortAccess::NonOptimized, true);
    assert_eq!(rig.control.best_group(), Some(1), "90 where it is preferred");
    rig.fail("c");
    assert_eq!(rig.control.best_group(), Some(0));
    // Without a word about it, priorities follow the ports that are known.
    for (options, best) in [(&[][..], 1), (&[("prio", "alua")], 1), (&[("prio", "const")], 0)] {
        let mut rig = Rig::new(TWO_AND_ONE, options);
        rig.port("c", PortAccess::Optimized, true);
        assert_eq!(rig.control.best_group(), Some(best), "{options:?}");
    }
}

#[test]
fn the_priority_of_a_port_is_multipaths() {
    let states = [
        (PortAccess::Optimized, 50, 50, 130),
        (PortAccess::NonOptimized, 10, 90, 90),
        (PortAccess::BlockDependent, 5, 85, 85),
        (PortAccess::Standby, 1, 81, 81),
        (PortAccess::Unavailable, 0, 80, 80),
        (PortAccess::Offline, 0, 80, 80),
        (PortAccess::Transitioning, 0, 80, 80),
    ];
    for (access, plain, preferred, exclusive) in states {
        let of = |preferred, exclusive| priority(PortState { access, preferred }, exclusive);
        assert_eq!(
            (of(false, true), of(true, false), of(true, true)),
            (plain, preferred, exclusive)
        );
    }
}

#[test]
fn an_activation_holds_io_until_every_path_of_the_group_has_ended_it() {
    let mut rig = Rig::new(ALUA, &[("path_checker", "none")]);
    assert_eq!(rig.group(), Some(1));
    assert_eq!(rig.orders(), [Order::Activate(0), Order::Activate(1)]);
    assert!(rig.control.queues_io());
    assert!(rig.status().starts_with("2 1 0 0"));
    rig.activated("a", Activation::Done);
    assert!(rig.control.queues_io());
    rig.activated("b", Activation::Done);
    assert!(!rig.control.queues_io());
    assert_eq!(rig.group(), Some(1));
    assert_eq!(rig.orders(), [], "once");
    // A path that comes back to the group in use is activated, and I/O goes on.
    rig.fail("a");
    rig.back("a");
    assert_eq!(rig.orders(), [Order::Activate(0)]);
    assert!(!rig.control.queues_io());
    rig.activated("a", Activation::Done);
    // The first one that comes back to a device without a path is waited for.
    for path in ["a", "b", "c"] {
        rig.fail(path);
    }
    rig.back("b");
    assert_eq!(rig.orders(), []);
    assert_eq!(rig.group(), Some(1));
    assert_eq!((rig.orders(), rig.control.queues_io()), (vec![Order::Activate(1)], true));
    rig.activated("b", Activation::Done);
    assert!(!rig.control.queues_io());
}

#[test]
fn an_activation_that_fails_is_repeated_as_often_as_the_table_says() {
    let table = ALUA.replace("0 1 alua", "4 pg_init_retries 2 pg_init_delay_msecs 500 1 alua");
    let mut rig = Rig::new(&table, &[("path_checker", "none")]);
    rig.fail("b");
    rig.group();
    rig.orders();
    rig.activated("a", Activation::Retry);
    assert_eq!(rig.orders(), []);
    assert_eq!(rig.control.wake_at(), Some(seconds(0.5)));
    rig.at(0.4);
    assert_eq!(rig.orders(), []);
    rig.at(0.5);
    assert_eq!(rig.orders(), [Order::Activate(0)]);
    assert!(rig.control.queues_io());
    rig.activated("a", Activation::RetryNow);
    assert_eq!(rig.orders(), [Order::Activate(0)]);
    assert!(rig.status().starts_with("2 1 2 0"), "{}", rig.status());
    rig.activated("a", Activation::RetryNow);
    assert_eq!((rig.control.valid(), rig.orders()), (1, vec![]));
    assert_eq!(rig.group(), Some(2));
    assert!(rig.status().starts_with("2 1 0 0"), "the count is that of the new group");
    // A group that is busy is bypassed, and the other is taken.
    let mut rig = Rig::new(ALUA, &[]);
    rig.group();
    rig.orders();
    rig.activated("a", Activation::Done);
    rig.activated("b", Activation::Busy);
    assert_eq!(rig.group(), Some(2));
    assert!(rig.status().contains(" D 0 2 "));
    // One that cannot be fails its path.
    rig.activated("c", Activation::Failed);
    assert_eq!(rig.control.valid(), 2);
}

#[test]
fn one_path_that_asks_for_another_activation_has_all_repeated() {
    let table = ALUA.replace("0 1 alua", "2 pg_init_retries 1 1 alua");
    let mut rig = Rig::new(&table, &[("path_checker", "none")]);
    rig.group();
    rig.orders();
    rig.activated("a", Activation::RetryNow);
    rig.activated("b", Activation::Done);
    assert_eq!(rig.orders(), [Order::Activate(0), Order::Activate(1)]);
    assert!(rig.control.queues_io());
    rig.activated("a", Activation::Done);
    rig.activated("b", Activation::Done);
    assert!(!rig.control.queues_io());
    assert_eq!(rig.orders(), []);
}

#[test]
fn an_activation_of_a_group_that_was_left_lets_no_io_of_the_next_one_go() {
    let mut rig = Rig::new(ALUA, &[("path_checker", "none")]);
    rig.group();
    rig.fail("a");
    rig.fail("b");
    assert_eq!(rig.group(), Some(2));
    assert_eq!(rig.orders(), [0, 1, 2].map(Order::Activate));
    rig.activated("a", Activation::Done);
    rig.activated("b", Activation::RetryNow);
    assert!(rig.control.queues_io(), "c is being activated");
    assert!(rig.status().starts_with("2 1 0 0"), "{}", rig.status());
    rig.activated("c", Activation::Done);
    assert!(!rig.control.queues_io());
    assert_eq!(rig.orders(), []);
}

#[test]
fn a_group_that_is_left_while_it_is_activated_holds_no_io() {
    for message in ["switch_group 2", "disable_group 1"] {
        let mut rig = Rig::new(ALUA, &[("path_checker", "none")]);
        rig.group();
        rig.orders();
        rig.say(message).unwrap();
        assert!(!rig.control.queues_io(), "{message}");
        assert_eq!(rig.group(), Some(2));
        assert_eq!(rig.orders(), [Order::Activate(2)]);
        rig.activated("c", Activation::Done);
        assert!(!rig.control.queues_io());
    }
}

#[test]
fn the_activation_of_a_path_that_has_failed_is_not_waited_for() {
    let mut rig = Rig::new(ALUA, &[("path_checker", "none")]);
    rig.group();
    rig.orders();
    rig.activated("a", Activation::Done);
    rig.fail("b");
    assert!(!rig.control.queues_io());
    assert_eq!(rig.group(), Some(1));
    // Its end, when it comes, is no news.
    rig.activated("b", Activation::RetryNow);
    assert_eq!(rig.orders(), []);
    assert!(!rig.control.queues_io());
}

#[test]
fn checks_come_every_5_seconds_and_more_seldom_while_a_path_is_stable() {
    let mut rig = Rig::new("0 0 1 1 round-robin 0 1 1 a 1", &[]);
    let mut at = Vec::new();
    for tenth in 0..1200 {
        rig.at(f64::from(tenth) / 10.0);
        for order in rig.orders() {
            assert_eq!(order, Order::Check(0));
            at.push(tenth / 10);
            rig.checked("a", Verdict::Up);
        }
    }
    assert_eq!(at, [5, 15, 35, 55, 75, 95, 115]);
    assert_eq!(rig.control.wake_at(), Some(seconds(135.0)));
    // A change begins it anew.
    rig.at(120.0).fail("a");
    assert_eq!(rig.control.wake_at(), Some(seconds(125.0)));
    rig.at(125.0);
    assert_eq!(rig.orders(), [Order::Check(0)]);
    rig.checked("a", Verdict::Down);
    assert_eq!(rig.control.wake_at(), Some(seconds(130.0)), "as often while it is down");
    rig.at(130.0);
    rig.checked("a", Verdict::Up);
    assert!(rig.control.is_valid(0));
    assert_eq!(rig.control.wake_at(), Some(seconds(135.0)));
}

#[test]
fn a_check_without_an_answer_in_time_means_down_and_there_is_one_at_a_time() {
    let mut rig = Rig::new("0 0 1 1 round-robin 0 1 1 a 1", &[("checker_timeout", "8")]);
    rig.at(5.0);
    assert_eq!(rig.orders(), [Order::Check(0)]);
    rig.at(12.9);
    assert!(rig.control.is_valid(0));
    assert_eq!(rig.control.wake_at(), Some(seconds(13.0)));
    rig.at(13.0);
    assert!(!rig.control.is_valid(0));
    assert!(rig.events()[0].contains("its check has no answer after 8 s"));
    rig.at(100.0);
    assert_eq!(rig.orders(), [], "the first has not ended");
    assert_eq!(rig.control.wake_at(), None);
    rig.checked("a", Verdict::Up);
    assert!(!rig.control.is_valid(0), "that answer is old");
    rig.at(101.0);
    assert_eq!(rig.orders(), [Order::Check(0)]);
    rig.checked("a", Verdict::Up);
    assert!(rig.control.is_valid(0));
}

#[test]
fn each_verdict_has_its_meaning() {
    let verdicts = [
        (Verdict::Up, true, true),
        (Verdict::Ghost, true, true),
        (Verdict::Down, false, false),
        (Verdict::Shaky, false, false),
        (Verdict::Disconnected, false, false),
        (Verdict::Wild, false, false),
        (Verdict::Pending, true, false),
    ];
    for (verdict, of_valid, of_failed) in verdicts {
        for (fails, expected) in [(false, of_valid), (true, of_failed)] {
            let mut rig = Rig::new("0 0 1 1 round-robin 0 1 1 a 1", &[]);
            if fails {
                rig.fail("a");
            }
            rig.at(5.0);
            assert_eq!(rig.orders(), [Order::Check(0)]);
            rig.checked("a", verdict);
            assert_eq!(rig.control.is_valid(0), expected, "{verdict:?}, failed before: {fails}");
        }
    }
    // What is not known yet is asked for a second later.
    let mut rig = Rig::new("0 0 1 1 round-robin 0 1 1 a 1", &[]);
    rig.at(5.0);
    rig.checked("a", Verdict::Pending);
    assert_eq!(rig.control.wake_at(), Some(seconds(6.0)));
    let rig = Rig::new("0 0 1 1 round-robin 0 1 1 a 1", &[("path_checker", "none")]);
    assert_eq!(rig.control.wake_at(), None, "an idle device without checks sleeps");
}

#[test]
fn lanes_see_by_the_version_that_something_changed_and_nothing_else_changes_it() {
    let mut rig = Rig::new(QUEUEING, &[]);
    let mut before = rig.control.version();
    let mut changed = |rig: &Rig| {
        let version = rig.control.version();
        std::mem::replace(&mut before, version) != version
    };
    rig.group();
    assert!(changed(&rig));
    rig.group();
    assert!(!changed(&rig));
    rig.fail("a");
    assert!(changed(&rig));
    rig.fail("a");
    assert!(!changed(&rig));
    rig.back("a");
    assert!(changed(&rig));
    rig.control.put_on_probation(0, true, "slow");
    assert!(changed(&rig));
    for message in ["switch_group 2", "disable_group 1", "enable_group 1", "fail_if_no_path"] {
        rig.say(message).unwrap();
        assert!(changed(&rig), "{message}");
    }
    rig.say("fail_if_no_path").unwrap();
    assert!(!changed(&rig));
    rig.at(5.0);
    assert!(!changed(&rig), "a check that is due");
}

#[test]
fn options_are_held_against_their_bounds() {
    let mut settings = Settings::default();
    let errors = [
        ("no_path_retry", "0", "no_path_retry=0 is outside 1..=86400"),
        ("no_path_retry", "never", "no_path_retry=never is outside 1..=86400, and none of fail, "),
        ("queue_if_no_path_timeout_secs", "-1", "is outside 0..=86400"),
        ("failback", "later", "and none of manual, immediate, followover"),
        ("prio", "rdac", "prio=rdac is none of detect, const, alua"),
        ("hardware_handler", "rdac", "is none of detect, none, alua"),
        ("path_grouping_policy", "group_by_tpg", "is none of failover, multibus, group_by_prio, "),
        ("path_checker", "rdac", "is none of tur, readsector0, directio, none"),
        ("polling_interval", "0", "polling_interval=0 is outside 1..=3600"),
        ("max_polling_interval", "3601", "is outside 1..=3600"),
        ("checker_timeout", "0", "checker_timeout=0 is outside 1..=3600"),
        ("retry", "soon", "retry=soon is none of fenced, immediate"),
        ("replacement_timeout", "86401", "is outside 0..=86400"),
        ("slow_path", "yes", "slow_path=yes is none of on, off"),
        ("exclusive_pref_bit", "1", "exclusive_pref_bit=1 is none of on, off"),
    ];
    for (name, value, expected) in errors {
        let error = settings.set(name, value).expect_err(name);
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(settings, Settings::default(), "what is refused changes nothing");
    assert_eq!(settings.set("colour", "blue"), Ok(false));
    for option in OPTIONS {
        let first = option.values.split(['|', '.']).next().unwrap();
        assert_eq!(settings.set(option.name, first), Ok(true), "{} is parsed", option.name);
    }
    assert_eq!(Settings::default().late_write_ns(), 240_000_000_000);
}

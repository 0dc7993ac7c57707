//! The laws of the queue core, over every path a request can take: every bio ends once and with the
//! right data, no request breaks a limit, no submitter waits for ever, no lane spins, and nothing
//! is left when all is done.
//!
//! Each seed is a scene of its own: a path, a depth, a device with its faults, clients, and what is
//! done to the device while it works, in every second of them. Everything happens in one thread and
//! in virtual time.
//! `LAW_SEED=n` runs one seed, `LAW_SEEDS=n` so many.

use weir_laws::life::queue;
use weir_laws::path::{Order, Path};
use weir_laws::{Tell, seeds};
use weir_queue::driver::Affinity;

/// Seeds of each path.
const SEEDS: u64 = 300;

fn one_seed(path: Path, seed: u64, silent: bool) {
    let _tell = Tell(format!("path {path:?}\nLAW_SEED={seed}"));
    queue::live(path, seed, silent);
}

fn hold_the_laws(path: Path) {
    seeds("LAW", SEEDS).for_each(|seed| one_seed(path, seed, false));
}

/// The same with drivers that fall silent.
fn hold_the_laws_in_silence(path: Path) {
    seeds("LAW", SEEDS).for_each(|seed| one_seed(path, seed, true));
}

/// Seeds beyond the usual ones in which a bio once waited for longer than it may.
#[test]
fn silent_seeds_with_a_long_wait() {
    // Fences held all tags of the scheduler.
    one_seed(Path::mq(1).by(Order::Deadline), 954, true);
    one_seed(Path::mq(1).by(Order::Bfq), 1458, true);
    // Lanes were found silent one after the other.
    one_seed(Path::mq(4).by(Order::Deadline), 1162, true);
    one_seed(Path::mq(3).by(Order::Kyber), 444, true);
    one_seed(Path::mq(3).sharing(), 1032, true);
}

macro_rules! laws {
    ($hold:ident; $($name:ident: $path:expr;)*) => {
        $(#[test]
        fn $name() {
            $hold($path);
        })*
    };
}

laws! {
    hold_the_laws_in_silence;
    silent_none_1_lane: Path::mq(1);
    silent_none_2_lanes: Path::mq(2);
    silent_none_4_lanes: Path::mq(4);
    silent_none_3_lanes_sharing_tags: Path::mq(3).sharing();
    silent_deadline_1_lane: Path::mq(1).by(Order::Deadline);
    silent_deadline_4_lanes: Path::mq(4).by(Order::Deadline);
    silent_deadline_2_lanes_sharing_tags: Path::mq(2).by(Order::Deadline).sharing();
    silent_kyber_1_lane: Path::mq(1).by(Order::Kyber);
    silent_kyber_3_lanes: Path::mq(3).by(Order::Kyber);
    silent_bfq_1_lane: Path::mq(1).by(Order::Bfq);
    silent_bfq_4_lanes: Path::mq(4).by(Order::Bfq);
    silent_sq_noop: Path::sq(Affinity::Any);
    silent_sq_noop_one_home: Path::sq(Affinity::Fixed);
    silent_sq_deadline: Path::sq(Affinity::Any).by(Order::Deadline);
    silent_sq_cfq: Path::sq(Affinity::Any).by(Order::Cfq);
    silent_round_robin_3_lanes: Path::mq(3).in_turn();
}

laws! {
    hold_the_laws;
    mq_1_lane: Path::mq(1);
    mq_2_lanes: Path::mq(2);
    mq_3_lanes: Path::mq(3);
    mq_1_lane_scheduled: Path::mq(1).scheduled();
    mq_3_lanes_scheduled: Path::mq(3).scheduled();
    mq_2_lanes_sharing_tags: Path::mq(2).sharing();
    mq_3_lanes_sharing_tags: Path::mq(3).sharing();
    mq_3_lanes_scheduled_sharing_tags: Path::mq(3).scheduled().sharing();
    mq_3_lanes_kyber: Path::mq(3).by(Order::Kyber);
    mq_3_lanes_deadline_sharing_tags: Path::mq(3).by(Order::Deadline).sharing();
    mq_3_lanes_bfq: Path::mq(3).by(Order::Bfq);
    mq_2_lanes_bfq_sharing_tags: Path::mq(2).by(Order::Bfq).sharing();
    sq_deadline: Path::sq(Affinity::Any).by(Order::Deadline);
    mq_3_lanes_with_one_token: Path::mq(3).by(Order::OneToken);
    mq_3_lanes_with_tokens_that_rest: Path::mq(3).by(Order::TokensThatRest);
    mq_2_lanes_with_one_token_sharing_tags: Path::mq(2).by(Order::OneToken).sharing();
    sq_any_home: Path::sq(Affinity::Any);
    sq_fixed_home: Path::sq(Affinity::Fixed);
    sq_any_home_cfq: Path::sq(Affinity::Any).by(Order::Cfq);
    round_robin_1_lane: Path::mq(1).in_turn();
    round_robin_2_lanes: Path::mq(2).in_turn();
    round_robin_3_lanes: Path::mq(3).in_turn();
    round_robin_3_lanes_sharing_tags: Path::mq(3).in_turn().sharing();
}

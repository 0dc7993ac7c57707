use super::*;
use weir_bio::{Bio, Buf, Prng, RqId, SubmitterId};
use weir_ring::Claim;

use crate::request::{FlushStep, Request, State};

const NR: u16 = 8;
const MS: u64 = 1_000_000;

fn rq(submitter: u16) -> Rq {
    let mut claim = Claim::new(Request::free(RqId::new(SubmitterId(submitter), 0, 0)));
    claim.fill(&mut Bio::read(0, Buf::zeroed(4096)), FlushStep::DATA, Nanos::ZERO);
    claim.state = State::Free;
    claim.rq
}

fn write(submitter: u16) -> Rq {
    Rq { op: weir_bio::Op::Write, ..rq(submitter) }
}

fn take(pools: &mut Pools, rq: &Rq, ms: u64) -> bool {
    pools.take(rq, true, Nanos(ms * MS), || MayQueue::May)
}

/// How many this one gets one after the other.
fn takes(pools: &mut Pools, rq: &Rq, ms: u64) -> u16 {
    (0..1000).take_while(|_| take(pools, rq, ms)).count() as u16
}

/// Gives back so many; who was woken.
fn give(pools: &mut Pools, rq: &Rq, count: u16) -> Vec<u16> {
    let mut woken = Vec::new();
    (0..count).for_each(|_| pools.give_back(rq.group, rq.is_sync(), |one| woken.push(one)));
    woken
}

#[test]
fn who_fills_a_pool_gets_a_batch_more_and_at_most_half_as_many_again_as_it_has() {
    assert_eq!(takes(&mut Pools::new(NR), &rq(0), 0), NR + NR / 2);
    let mut wide = Pools::new(128);
    // The one that fills it is the first of the batch.
    assert_eq!(takes(&mut wide, &rq(0), 0), 127 + u16::from(BATCH));
    assert!(!take(&mut wide, &rq(1), 0), "for the others it is full");
    assert!(take(&mut wide, &write(1), 0), "and not in the other direction");
    let other = Rq { group: GroupId(3), ..rq(1) };
    assert!(take(&mut wide, &other, 0), "nor in another group");
    assert!(!take(&mut wide, &Rq { group: GroupId(u32::MAX), ..rq(1) }, 0), "that is the root's");
}

#[test]
fn a_batch_is_over_after_20_ms() {
    let mut pools = Pools::new(128);
    (0..128).for_each(|_| assert!(take(&mut pools, &rq(0), 5)));
    assert!(take(&mut pools, &rq(0), 24));
    assert!(!take(&mut pools, &rq(0), 25), "20 ms after the first of the batch");
}

#[test]
fn those_that_wait_are_woken_one_by_one_in_order_and_each_gets_a_batch_whenever_it_comes() {
    let mut pools = Pools::new(128);
    (0..159).for_each(|_| assert!(take(&mut pools, &rq(0), 0)));
    for waiting in [2, 1, 2, 3] {
        assert!(!take(&mut pools, &rq(waiting), 0));
    }
    assert_eq!(give(&mut pools, &rq(0), 31), [], "it is still full");
    assert_eq!(give(&mut pools, &rq(0), 1), [2]);
    assert!(!take(&mut pools, &rq(1), 0), "one that waits does not pass it by");
    assert_eq!(takes(&mut pools, &rq(2), 1000), u16::from(BATCH), "long after it was woken");
    assert_eq!(give(&mut pools, &rq(0), 33), [1, 3]);
}

#[test]
fn one_that_may_not_wait_takes_nobody_s_turn_and_has_a_free_request_at_once() {
    let mut pools = Pools::new(128);
    (0..159).for_each(|_| assert!(take(&mut pools, &rq(0), 0)));
    let hasty =
        |pools: &mut Pools, one: u16| pools.take(&rq(one), false, Nanos(0), || MayQueue::May);
    assert!(!hasty(&mut pools, 1) && !take(&mut pools, &rq(2), 0) && !take(&mut pools, &rq(3), 0));
    assert_eq!((give(&mut pools, &rq(0), 32), pools.waiting), (vec![2], 1));
    assert!(!take(&mut pools, &rq(3), 0), "the others of its submitter wait on");
    assert!(hasty(&mut pools, 3));
    assert_eq!((give(&mut pools, &rq(0), 128), pools.waiting), (vec![3], 0));
    assert!(pools.is_unused());
}

#[test]
fn when_the_last_request_comes_back_all_that_wait_are_woken() {
    let mut pools = Pools::new(NR);
    assert_eq!(takes(&mut pools, &rq(0), 0), 12);
    (1..20).for_each(|one| assert!(!take(&mut pools, &rq(one), 0)));
    // Those that are woken ask for nothing more.
    let woken = give(&mut pools, &rq(0), 12);
    let all: Vec<u16> = std::iter::once(0).chain(1..20).collect();
    let mut sorted = woken.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, all, "{woken:?}");
    assert!(pools.is_unused());
}

#[test]
fn a_scheduler_may_let_one_in_where_the_pool_is_full_and_keep_one_out() {
    let mut pools = Pools::new(NR);
    (0..NR).for_each(|_| assert!(take(&mut pools, &rq(0), 0)));
    let says = |pools: &mut Pools, one: u16, word| pools.take(&rq(one), true, Nanos(0), || word);
    assert!(!says(&mut pools, 1, MayQueue::May));
    assert!(!says(&mut pools, 0, MayQueue::No), "although it is a batcher");
    (0..NR / 2).for_each(|_| assert!(says(&mut pools, 1, MayQueue::Must)));
    assert!(!says(&mut pools, 1, MayQueue::Must), "half as many again, and no more");
}

#[test]
fn one_for_which_the_device_is_kept_idle_has_its_turn_at_once_if_it_waits() {
    let mut pools = Pools::new(128);
    (0..159).for_each(|_| assert!(take(&mut pools, &rq(0), 0)));
    assert!(!take(&mut pools, &rq(1), 0) && !take(&mut pools, &rq(2), 0));
    let mut woken = Vec::new();
    for hurried in [3, 2, 2] {
        pools.hurry(SubmitterId(hurried), |one| woken.push(one));
    }
    assert_eq!(woken, [2], "once, and not who waits for nothing");
    assert_eq!(takes(&mut pools, &rq(2), 0), u16::from(BATCH));
    assert!(!take(&mut pools, &rq(1), 0), "the other still waits");
    // 191 of 192 are given; beyond them nothing is to be had, and 1 keeps its place.
    assert!(pools.take(&rq(0), true, Nanos(0), || MayQueue::Must));
    pools.hurry(SubmitterId(1), |_| panic!("there is none for it"));
    assert_eq!(give(&mut pools, &rq(0), 65), [1]);
}

#[test]
fn a_submitter_that_is_gone_waits_no_more_and_its_number_has_no_batch() {
    let mut pools = Pools::new(128);
    takes(&mut pools, &rq(0), 0);
    assert!(!take(&mut pools, &rq(1), 0) && !take(&mut pools, &rq(2), 0));
    pools.forget(1);
    assert_eq!(give(&mut pools, &rq(0), 33), [0, 2], "it was refused at the end of its batch");
    pools.forget(0);
    assert!(take(&mut pools, &rq(2), 0), "it was woken");
    assert!(take(&mut pools, &rq(2), 0) && !take(&mut pools, &rq(0), 0), "it has no batch left");
}

/// What each of several equal submitters has had in the end, each with so many I/Os at once.
fn shares(submitters: u16, depth: u16, seed: u64) -> Vec<u32> {
    let (mut pools, mut random) = (Pools::new(128), Prng::new(seed));
    let mut under_way: Vec<u16> = Vec::new();
    let mut has = vec![0_u16; usize::from(submitters)];
    let mut had = vec![0_u32; usize::from(submitters)];
    let mut awake: VecDeque<u16> = (0..submitters).collect();
    for step in 0..60_000_u64 {
        while let Some(one) = awake.pop_front() {
            let index = usize::from(one);
            while has[index] < depth
                && pools.take(&rq(one), true, Nanos(step * 20_000), || MayQueue::May)
            {
                has[index] += 1;
                under_way.push(one);
            }
        }
        let ended = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
        has[usize::from(ended)] -= 1;
        had[usize::from(ended)] += 1;
        pools.give_back(GroupId(0), true, |woken| awake.push_back(woken));
        // It comes back at once, before the one that was woken.
        awake.push_front(ended);
    }
    had
}

#[test]
fn equal_submitters_have_equal_shares_however_many_ios_each_has_at_once() {
    for (submitters, depth) in [(2, 60), (2, 100), (2, 200), (2, 1000), (3, 200), (10, 40)] {
        for seed in [1, 2, 3] {
            let had = shares(submitters, depth, seed);
            let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
            let told = format!("{submitters} of depth {depth}, seed {seed}: {had:?}");
            assert!(f64::from(*most) < 1.1 * f64::from(*least), "{told}");
        }
    }
}

//! The order against a model: a `BTreeMap` keyed by sector and number of insertion.

use std::collections::BTreeMap;

use weir_bio::{Prng, SchedTag};

use super::node::{Node, unstaged};
use super::order::Order;

const ROOM: u16 = 512;

struct Pair {
    order: Order,
    nodes: Vec<Node>,
    model: BTreeMap<(u64, u64), SchedTag>,
    free: Vec<SchedTag>,
    inserted: u64,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            order: Order::new(ROOM),
            nodes: unstaged(ROOM),
            model: BTreeMap::new(),
            free: (0..ROOM).map(SchedTag).collect(),
            inserted: 0,
        }
    }

    fn insert(&mut self, sector: u64) {
        let tag = self.free.pop().expect("the test stays within the room");
        self.nodes[tag.index()].rq.sector = sector;
        self.nodes[tag.index()].rq.tag = tag;
        self.order.insert(&mut self.nodes, tag);
        self.inserted += 1;
        self.model.insert((sector, self.inserted), tag);
    }

    fn remove(&mut self, tag: SchedTag) {
        self.order.remove(&mut self.nodes, tag);
        self.model.retain(|_, held| *held != tag);
        self.free.push(tag);
    }

    /// Compares a look-up from `sector`, with the neighbours of what it finds.
    fn compare(&mut self, sector: u64) -> Option<SchedTag> {
        let mut later = self.model.range((sector, 0)..);
        let expected = later.next().map(|(_, tag)| *tag);
        assert_eq!(self.order.first_from(&self.nodes, sector), expected, "from {sector}");
        let exact = self.model.range((sector, 0)..=(sector, u64::MAX)).next().map(|(_, tag)| *tag);
        assert_eq!(self.order.starting_at(&self.nodes, sector), exact, "at {sector}");
        // Few of them, then so many that they are not passed over one by one.
        for start in [1, 64, 1 << 32].into_iter().filter_map(|back| sector.checked_sub(back)) {
            let spot = self.order.spot(&self.nodes, start);
            let behind = self.order.starting_behind(&self.nodes, &spot, sector);
            assert_eq!(behind, exact, "at {sector}, behind {start}");
        }
        if let Some(tag) = expected {
            let none = SchedTag::NONE;
            let after = later.next().map_or(none, |(_, tag)| *tag);
            let before = self.model.range(..(sector, 0)).next_back().map_or(none, |(_, tag)| *tag);
            assert_eq!(
                (self.nodes[tag.index()].before, self.nodes[tag.index()].after),
                (before, after)
            );
        }
        expected
    }

    fn compare_all(&mut self) {
        let mut at = self.order.first_from(&self.nodes, 0).unwrap_or(SchedTag::NONE);
        for tag in self.model.values() {
            assert_eq!(at, *tag);
            at = self.nodes[at.index()].after;
        }
        assert_eq!(at, SchedTag::NONE);
    }
}

/// A sector of the `n`-th request of a pattern.
type Pattern = fn(&mut Prng, u64) -> u64;

const PATTERNS: [(&str, Pattern); 8] = [
    ("uniform", |prng, _| prng.below(1 << 27) & !7),
    ("sequential", |_, n| n * 8),
    ("descending", |_, n| (1 << 40) - n * 8),
    ("clustered", |prng, _| (1 << 26) + prng.below(4096)),
    ("equal starts", |_, _| 4096),
    ("two clusters", |prng, _| prng.below(2) * (1 << 33) + prng.below(2048)),
    ("moving", |prng, n| n / 1000 * (1 << 20) + prng.below(1 << 12)),
    ("everywhere", |prng, _| prng.next() >> prng.below(64)),
];

#[test]
fn an_order_answers_as_a_balanced_tree_does() {
    for (number, (name, pattern)) in PATTERNS.into_iter().enumerate() {
        for depth in [4, 60, 500] {
            let seed = (number as u64) << 32 | depth as u64;
            println!("{name}, depth {depth}, seed {seed:#x}");
            let mut prng = Prng::new(seed);
            let mut pair = Pair::new();
            for step in 0..8_000 {
                let sector = pattern(&mut prng, step);
                // Empties it now and then, so that the index starts over.
                let emptying = step % 2_000 > 1_800;
                if pair.model.len() < depth && !emptying {
                    pair.insert(sector);
                }
                let found = pair.compare(sector.saturating_sub(prng.below(64)));
                let oldest = pair.model.first_key_value().map(|(_, tag)| *tag);
                let leaves = pair.model.len() == depth || emptying || prng.percent(30);
                if let Some(tag) = found.or(oldest).filter(|_| leaves) {
                    pair.remove(tag);
                }
                if step % 256 == 0 {
                    pair.compare_all();
                }
            }
        }
    }
}

#[test]
fn equal_sectors_keep_their_order_while_the_counter_of_insertions_wraps() {
    let mut pair = Pair::new();
    pair.order.begin_counting_at(u32::MAX - 200);
    // Crowded from two sides, so that the gap buffer finds them by number.
    for round in 0..200 {
        pair.insert(1 << 20);
        pair.insert(round % 40);
    }
    assert!(pair.order.uses_gap());
    let mut prng = Prng::new(1);
    for _ in 0..300 {
        let index = prng.below(pair.model.len() as u64) as usize;
        let tag = *pair.model.values().nth(index).expect("within the model");
        pair.remove(tag);
        pair.compare_all();
    }
}

#[test]
fn a_crowded_order_leaves_its_buckets_and_returns_when_it_was_empty() {
    let mut pair = Pair::new();
    let mut prng = Prng::new(2);
    for _ in 0..256 {
        pair.insert(prng.below(12) * (1 << 33) + prng.below(2048));
    }
    assert!(pair.order.uses_gap(), "so many clusters crowd any buckets");
    while let Some(tag) = pair.compare(0) {
        pair.remove(tag);
    }
    pair.insert(77);
    assert!(!pair.order.uses_gap());
    pair.compare_all();
}

/// One of so many clusters 2^44 sectors apart.
fn clustered(prng: &mut Prng, cluster: u64) -> u64 {
    (cluster << 44) + prng.below(1 << 20)
}

#[test]
fn a_few_clusters_far_apart_are_spread_without_the_gaps_between() {
    for clusters in 2..=9 {
        let mut pair = Pair::new();
        let mut prng = Prng::new(clusters);
        for step in 0..4_000 {
            let cluster = step % clusters;
            if step >= 200 {
                let found = pair.compare(clustered(&mut prng, cluster));
                let first = pair.compare(0).expect("200 are there");
                pair.remove(found.unwrap_or(first));
            }
            let sector = clustered(&mut prng, cluster);
            pair.insert(sector);
            // What is laid out while they grow to 200 says little of where they lie.
            let is_settled = step > 200 + 2 * u64::from(ROOM);
            assert!(!is_settled || !pair.order.uses_gap(), "{clusters} clusters, step {step}");
        }
        pair.compare_all();
    }
}

#[test]
fn a_gap_buffer_is_left_under_load_when_its_requests_are_spread_again() {
    let mut pair = Pair::new();
    let mut prng = Prng::new(5);
    let mut used = [0; 2];
    for step in 0..8_000 {
        if step >= 200 {
            let oldest = pair.model.iter().min_by_key(|((_, number), _)| *number);
            let tag = *oldest.expect("200 are there").1;
            pair.remove(tag);
        }
        // Too many clusters for a while, then few.
        let clusters = if step < 4_000 { 10 } else { 2 };
        let cluster = prng.below(clusters);
        let sector = clustered(&mut prng, cluster) & !0xffff;
        pair.insert(sector);
        pair.compare(sector);
        used[usize::from(step >= 4_000)] += u32::from(pair.order.uses_gap());
    }
    pair.compare_all();
    let [many, few] = used;
    assert!(many > 3_000, "10 clusters were in the gap buffer for {many} of 4,000 steps");
    assert!(few <= 200 + 2 * u32::from(ROOM), "2 clusters for {few}");
}

#[test]
fn one_cluster_anywhere_is_spread_over_new_buckets() {
    let mut pair = Pair::new();
    let mut prng = Prng::new(3);
    for _ in 0..256 {
        pair.insert((1 << 40) + prng.below(1 << 16));
    }
    assert!(!pair.order.uses_gap());
    pair.compare_all();
}

#[test]
fn a_few_anywhere_and_many_that_ascend_need_no_index_and_a_long_walk_gets_one() {
    let mut pair = Pair::new();
    let mut prng = Prng::new(4);
    for _ in 0..200 {
        (0..5).for_each(|_| pair.insert(prng.below(1 << 40)));
        while let Some(tag) = pair.compare(0) {
            pair.remove(tag);
        }
    }
    (0..300).for_each(|n| pair.insert(n * 8));
    assert!(!pair.order.has_index());
    pair.compare_all();
    pair.insert(294 * 8);
    assert!(pair.order.has_index(), "five begin behind it");
    pair.compare_all();
    (0..100).for_each(|n| {
        let tag = pair.compare(n * 16).expect("one is there");
        pair.remove(tag);
    });
    pair.compare_all();
}

//! B-WF2Q+: worst-case fair weighted fair queueing with budgets, at every level of the groups.
//! Source: docs/behaviour/bfq.md, section 3, whose rule numbers the comments carry.
//!
//! It knows sectors, weights and virtual time, nothing of requests. Eligible and waiting entities
//! stand in two heaps: virtual time never goes back, so an entity moves from waiting to eligible
//! once per stamp, and choosing costs O(log n).

use super::entity::{EntityId, IDLE, Kind, LevelId, Place};
use super::forest::{Forest, Span, Tree};
use super::heap::is_after;

/// The most that a queue that returns in time may be owed, sectors: a whole budget as it is by
/// default, as one that had backlog all the time may.
const CREDIT: u64 = 16_384;

/// One sector of service at weight 1, in units of virtual time.
const SECTOR_SHIFT: u32 = 22;

/// The idle class is chosen once when it has waited this long although it has work (rule 8).
pub(super) const IDLE_CLASS_FLOOR_NS: u64 = 200_000_000;

/// Virtual time that `sectors` of service take at `weight`.
pub(super) fn virtual_span(sectors: u64, weight: u64) -> u64 {
    (sectors << SECTOR_SHIFT) / weight
}

impl Tree {
    /// Virtual time that `sectors` of service take of the whole tree. Requests are mostly as large
    /// as the one before, and the weights are the same for long; so the last answer is kept, and
    /// most calls divide nothing.
    #[inline]
    fn span_of(&mut self, sectors: u64) -> u64 {
        if (self.span.sectors, self.span.weight) != (sectors, self.w) {
            self.span =
                Span { sectors, weight: self.w, virtual_span: virtual_span(sectors, self.w) };
        }
        self.span.virtual_span
    }
}

impl Forest {
    /// Rule 1, or rule 2 when `back_shifted`: an entity without backlog has one of `budget`.
    pub(super) fn activate(&mut self, id: EntityId, budget: u64, back_shifted: bool) {
        self.activate_one(id, budget, back_shifted);
        self.propagate(self[id].level, back_shifted);
    }

    fn activate_one(&mut self, id: EntityId, budget: u64, back_shifted: bool) {
        let old_finish = self[id].finish;
        let was_idle = self[id].place == Place::Idle;
        self.withdraw(id);
        let moved = self.refresh(id);
        let back_shifted = back_shifted && !moved;
        let v = self.tree(id).v;
        let reference = if back_shifted && is_after(v, old_finish) { old_finish } else { v };
        let late = was_idle && !moved && is_after(old_finish, reference);
        let entity = &mut self[id];
        entity.start = if late { old_finish } else { reference };
        entity.budget = budget;
        entity.finish = entity.start.wrapping_add(virtual_span(budget, entity.weight));
        let credit = virtual_span(CREDIT, entity.weight);
        if back_shifted && is_after(v, entity.start.wrapping_add(credit)) {
            let late = v.wrapping_sub(entity.start.wrapping_add(credit));
            let push = late / u64::from(entity.coefficient);
            entity.start = entity.start.wrapping_add(push);
            entity.finish = entity.finish.wrapping_add(push);
        }
        self.enqueue(id);
    }

    /// Lets the class and weight that were asked for since the last stamp count, with the entity in
    /// no heap. True if it competes in another tree now, whose time its stamps do not know.
    fn refresh(&mut self, id: EntityId) -> bool {
        let moves = self[id].class != self[id].wanted_class;
        if moves {
            if self[id].place != Place::Nowhere {
                self.discount(id);
            }
            self[id].class = self[id].wanted_class;
        }
        self.reweigh(id);
        moves
    }

    /// Makes the counted weight the wanted one at once.
    pub(super) fn reweigh(&mut self, id: EntityId) {
        let counted = self[id].place != Place::Nowhere;
        let entity = &mut self[id];
        let old = entity.weight;
        entity.base = entity.wanted_base;
        entity.weight = u64::from(entity.base) * u64::from(entity.coefficient);
        let new = entity.weight;
        if counted {
            let (_, tree) = self.parts(id);
            tree.w = tree.w - old + new;
        }
    }

    /// Puts an entity that has its stamps among the backlogged.
    fn enqueue(&mut self, id: EntityId) {
        let counted = self[id].place != Place::Nowhere;
        let (start, finish, weight) = (self[id].start, self[id].finish, self[id].weight);
        let eligible = !is_after(start, self.tree(id).v);
        let key = if eligible { self.key(finish, 0) } else { self.key(start, finish) };
        let (slots, tree) = self.parts(id);
        if !counted {
            tree.w += weight;
        }
        if eligible {
            tree.eligible.push(slots, key, id);
            self[id].place = Place::Eligible;
        } else {
            tree.waiting.push(slots, key, id);
            self[id].place = Place::Waiting;
        }
    }

    /// Takes an entity out of its heap; its weight stays counted until [`forget`](Forest::forget).
    fn withdraw(&mut self, id: EntityId) {
        let place = self[id].place;
        let (slots, tree) = self.parts(id);
        match place {
            Place::Waiting => tree.waiting.remove(slots, id),
            Place::Eligible => tree.eligible.remove(slots, id),
            Place::Idle => tree.idle.remove(slots, id),
            Place::InService | Place::Nowhere => {}
        }
    }

    /// Takes an entity out of its tree and its weight out of the sum.
    pub(super) fn forget(&mut self, id: EntityId) {
        if self[id].place == Place::Nowhere {
            return;
        }
        self.withdraw(id);
        self.discount(id);
    }

    /// Takes the weight of an entity in no heap out of the sum.
    fn discount(&mut self, id: EntityId) {
        let weight = self[id].weight;
        let (_, tree) = self.parts(id);
        tree.w -= weight;
        self[id].place = Place::Nowhere;
    }

    /// Rule 6 for one entity: without backlog it waits in the idle set until its finish. One whose
    /// finish has come is forgotten with the next service: a queue that returns before it was not
    /// away, and counts in the sum all the time.
    fn rest(&mut self, id: EntityId) {
        self.withdraw(id);
        let entity = &mut self[id];
        entity.finish = entity.start.wrapping_add(virtual_span(entity.service, entity.weight));
        entity.service = 0;
        let finish = entity.finish;
        let key = self.key(finish, 0);
        let (slots, tree) = self.parts(id);
        tree.idle.push(slots, key, id);
        self[id].place = Place::Idle;
    }

    /// Rule 5 for one entity, which was in service and so in no heap: what it received moves its
    /// start.
    fn requeue(&mut self, id: EntityId, budget: u64) {
        debug_assert_eq!(self[id].place, Place::InService);
        let entity = &mut self[id];
        entity.start = entity.start.wrapping_add(virtual_span(entity.service, entity.weight));
        entity.service = 0;
        if self.refresh(id) {
            self[id].start = self.tree(id).v;
        }
        let entity = &mut self[id];
        entity.budget = budget;
        entity.finish = entity.start.wrapping_add(virtual_span(budget, entity.weight));
        self.enqueue(id);
    }

    /// Rules 5 and 6 for the leaf in service and all its ancestors, which are in service no more.
    /// `budget` is the leaf's next one if it still has backlog.
    pub(super) fn expire(&mut self, leaf: EntityId, budget: Option<u64>) {
        let (mut id, mut budget) = (leaf, budget);
        loop {
            let level = self[id].level;
            debug_assert_eq!(self.levels[level.index()].in_service, Some(id));
            self.levels[level.index()].in_service = None;
            match budget {
                Some(budget) => self.requeue(id, budget),
                None => self.rest(id),
            }
            let Some(parent) = self.levels[level.index()].entity else { return };
            budget = self.best(level).map(|best| self[best].budget);
            id = parent;
        }
    }

    /// A backlogged entity that is not in service has lost its backlog.
    pub(super) fn deactivate(&mut self, id: EntityId) {
        self.rest(id);
        self.propagate(self[id].level, false);
    }

    /// A waiting entity's budget is now this.
    pub(super) fn set_budget(&mut self, id: EntityId, budget: u64) {
        if self[id].budget == budget || self[id].place == Place::InService {
            return;
        }
        self.stamp_finish(id, budget);
        self.propagate(self[id].level, false);
    }

    fn stamp_finish(&mut self, id: EntityId, budget: u64) {
        self.withdraw(id);
        let entity = &mut self[id];
        entity.budget = budget;
        entity.finish = entity.start.wrapping_add(virtual_span(budget, entity.weight));
        self.enqueue(id);
    }

    /// Rule 7: the children of `level` changed, so its group's budget or backlog may have, and
    /// with it that of the groups above.
    pub(super) fn propagate(&mut self, level: LevelId, back_shifted: bool) {
        let mut level = level;
        while let Some(group) = self.levels[level.index()].entity {
            let best = self.best(level).map(|best| self[best].budget);
            match (self[group].place, best) {
                (Place::InService, _) | (Place::Nowhere | Place::Idle, None) => return,
                (Place::Nowhere | Place::Idle, Some(budget)) => {
                    self.activate_one(group, budget, back_shifted);
                }
                (_, None) => self.rest(group),
                (_, Some(budget)) if self[group].budget == budget => return,
                (_, Some(budget)) => self.stamp_finish(group, budget),
            }
            level = self[group].level;
        }
    }

    /// Rule 4: `sectors` of service for the leaf and every ancestor.
    #[inline(always)]
    pub(super) fn serve(&mut self, leaf: EntityId, sectors: u64) {
        let mut id = leaf;
        loop {
            let entity = &mut self.entities[id.index()];
            entity.service += sectors;
            let (level, class) = (entity.level, entity.class);
            let above = self.levels[level.index()].entity;
            self.pass_time(level, class, sectors);
            match above {
                Some(parent) => id = parent,
                None => return,
            }
        }
    }

    /// Rule 4 for so many times `sectors`, as if they came one after the other.
    #[inline(always)]
    pub(super) fn serve_several(&mut self, leaf: EntityId, sectors: u64, times: u64) {
        let mut id = leaf;
        loop {
            let entity = &mut self.entities[id.index()];
            entity.service += sectors * times;
            let (at, class) = (entity.level, entity.class);
            let level = &mut self.levels[at.index()];
            let (tree, above) = (&mut level.trees[class], level.entity);
            let v = tree.v.wrapping_add(tree.span_of(sectors).wrapping_mul(times));
            let over = tree.idle.top().is_some_and(|(key, _)| !is_after(key.first, v));
            match over {
                false => tree.v = v,
                true => (0..times).for_each(|_| self.pass_time(at, class, sectors)),
            }
            match above {
                Some(parent) => id = parent,
                None => return,
            }
        }
    }

    /// Virtual time of a tree passes by a service; an idle entity whose finish comes is forgotten.
    #[inline(always)]
    fn pass_time(&mut self, level: LevelId, class: usize, sectors: u64) {
        let tree = &mut self.levels[level.index()].trees[class];
        tree.v = tree.v.wrapping_add(tree.span_of(sectors));
        let over = tree.idle.top().filter(|(key, _)| !is_after(key.first, tree.v));
        if let Some((_, over)) = over {
            self.forget(over);
        }
    }

    /// Rule 3 without its side effects: whom `level` would choose next, the floor of the idle
    /// class left aside.
    pub(super) fn best(&mut self, level: LevelId) -> Option<EntityId> {
        let class = (0..3).find(|class| self.level_tree(level, *class).has_backlog())?;
        self.promote(level, class);
        let tree = self.level_tree(level, class);
        // None is eligible: time would jump to the least start, and the heap has that one on top.
        tree.eligible.top().or_else(|| tree.waiting.top()).map(|(_, id)| id)
    }

    fn level_tree(&self, level: LevelId, class: usize) -> &Tree {
        &self.levels[level.index()].trees[class]
    }

    /// Whether the root would go on with another of its children than the one in service. A queue
    /// in service is no candidate; a group is one as long as others below it have backlog.
    pub(super) fn turns_at_root(&mut self) -> bool {
        let (Some(current), Some(next)) =
            (self.levels[LevelId::ROOT.index()].in_service, self.best(LevelId::ROOT))
        else {
            return false;
        };
        let Kind::Group(below) = self[current].kind else { return true };
        if self.best(below).is_none() {
            return true;
        }
        let (ours, theirs) = (&self[current], &self[next]);
        let sooner = theirs.place == Place::Eligible && is_after(ours.finish, theirs.finish);
        theirs.class < ours.class || theirs.class == ours.class && sooner
    }

    /// Moves those whose start has come from waiting to eligible.
    fn promote(&mut self, level: LevelId, class: usize) {
        loop {
            let tree = self.level_tree(level, class);
            let due = tree.waiting.top().filter(|(key, _)| !is_after(key.first, tree.v));
            let Some((_, id)) = due else { return };
            self.withdraw(id);
            let finish = self[id].finish;
            let key = self.key(finish, 0);
            let (slots, tree) = self.parts(id);
            tree.eligible.push(slots, key, id);
            self[id].place = Place::Eligible;
        }
    }

    /// Rules 3 and 8: chooses a leaf and puts it and its ancestors in service. `now` in ns.
    pub(super) fn select(&mut self, now: u64) -> Option<EntityId> {
        let mut level = LevelId::ROOT;
        loop {
            let class = self.choose_class(level, now)?;
            self.promote(level, class);
            let tree = &mut self.levels[level.index()].trees[class];
            if tree.eligible.is_empty() {
                let least = tree.waiting.top().map(|(key, _)| key.first);
                tree.v = least.expect("the class chosen has backlog");
                self.promote(level, class);
            }
            let top = self.level_tree(level, class).eligible.top();
            let (_, id) = top.expect("the least start is eligible now");
            self.withdraw(id);
            self[id].place = Place::InService;
            self.levels[level.index()].in_service = Some(id);
            match self[id].kind {
                Kind::Queue(_) => return Some(id),
                Kind::Group(below) => level = below,
            }
        }
    }

    fn choose_class(&mut self, level: LevelId, now: u64) -> Option<usize> {
        let level = &mut self.levels[level.index()];
        let starved = level.trees[IDLE].has_backlog()
            && now.saturating_sub(level.idle_chosen_at) >= IDLE_CLASS_FLOOR_NS;
        let first = (0..3).find(|class| level.trees[*class].has_backlog())?;
        let class = if starved { IDLE } else { first };
        if class == IDLE {
            level.idle_chosen_at = now;
        }
        Some(class)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entity::{BE, QueueId};
    use super::super::forest::Level;
    use super::*;
    use weir_bio::Prng;

    /// Serves `slots` full budgets and says what each leaf received, in sectors.
    fn run(forest: &mut Forest, leaves: &[EntityId], slots: usize, seed: u64) -> Vec<u64> {
        let mut prng = Prng::new(seed);
        let mut received = vec![0; leaves.len()];
        for _ in 0..slots {
            let leaf = forest.select(0).expect("all are backlogged");
            let at = leaves.iter().position(|l| *l == leaf).unwrap();
            let used = forest[leaf].budget - prng.below(forest[leaf].budget / 2);
            forest.serve(leaf, used);
            received[at] += used;
            forest.expire(leaf, Some(512 + prng.below(16_384)));
        }
        received
    }

    fn leaf(forest: &mut Forest, n: u32, level: LevelId, weight: u32) -> EntityId {
        let id = forest.add(Kind::Queue(QueueId(n)), level, BE, weight);
        forest.activate(id, 8192, false);
        id
    }

    fn group(forest: &mut Forest, level: LevelId, weight: u32) -> LevelId {
        let below = LevelId(forest.levels.len() as u32);
        let id = forest.add(Kind::Group(below), level, BE, weight);
        forest.levels.push(Level::new(Some(id)));
        below
    }

    #[test]
    fn backlogged_leaves_keep_within_one_budget_of_the_fluid_server() {
        for seed in 0..200 {
            let mut prng = Prng::new(seed);
            let weights: Vec<u32> =
                (0..2 + prng.below(7)).map(|_| 1 + prng.below(1000) as u32).collect();
            let mut forest = Forest::new();
            let leaves: Vec<_> = (0..weights.len())
                .map(|n| leaf(&mut forest, n as u32, LevelId::ROOT, weights[n]))
                .collect();
            let received = run(&mut forest, &leaves, 5000, seed);
            let total: u64 = received.iter().sum();
            let sum: u64 = weights.iter().map(|w| u64::from(*w)).sum();
            for (got, weight) in received.iter().zip(&weights) {
                let fluid = total * u64::from(*weight) / sum;
                let lag = got.abs_diff(fluid);
                // Two budgets: one that is being used, one that may just have been used.
                assert!(lag <= 2 * 16_896, "seed {seed}: got {got}, fluid {fluid}, of {weights:?}");
            }
        }
    }

    #[test]
    fn groups_share_by_weight_at_every_level() {
        let mut forest = Forest::new();
        let a = group(&mut forest, LevelId::ROOT, 500);
        let b = group(&mut forest, LevelId::ROOT, 250);
        let a1 = group(&mut forest, a, 100);
        let a2 = group(&mut forest, a, 300);
        let leaves: Vec<_> = [a1, a2, b]
            .into_iter()
            .enumerate()
            .map(|(n, level)| leaf(&mut forest, n as u32, level, 40))
            .collect();
        let received = run(&mut forest, &leaves, 20_000, 3);
        let total: u64 = received.iter().sum();
        for (got, share) in received.iter().zip([1667, 5000, 3333]) {
            let part = got * 10_000 / total;
            assert!(part.abs_diff(share) < 50, "{part} of 10000 instead of {share}");
        }
    }

    #[test]
    fn a_group_has_the_budget_of_its_best_child_when_that_is_changed() {
        let mut forest = Forest::new();
        let upper = group(&mut forest, LevelId::ROOT, 100);
        let lower = group(&mut forest, upper, 100);
        let leaf = leaf(&mut forest, 0, lower, 40);
        let groups = [upper, lower].map(|level| forest.levels[level.index()].entity.unwrap());
        for budget in [500, 9000] {
            forest.set_budget(leaf, budget);
            assert_eq!(groups.map(|group| forest[group].budget), [budget; 2]);
        }
    }

    /// A light leaf waits while a heavy one is served, is served, and returns.
    #[test]
    fn what_returns_in_time_is_owed_what_it_was_owed_and_no_more_than_a_budget() {
        for (served_before, owed) in [(8192, 8192 / 3 - 8 * 2 / 3), (1 << 20, CREDIT)] {
            let mut forest = Forest::new();
            let heavy = leaf(&mut forest, 0, LevelId::ROOT, 80);
            let light = leaf(&mut forest, 1, LevelId::ROOT, 40);
            assert_eq!(forest.select(0), Some(heavy));
            forest.serve(heavy, served_before);
            forest.expire(heavy, Some(8192));
            assert_eq!(forest.select(0), Some(light));
            forest.serve(light, 8);
            forest.expire(light, None);
            assert_eq!(forest.levels[0].trees[BE].w, 120, "it is not away yet");
            forest.activate(light, 256, true);
            let late = forest.tree(light).v.wrapping_sub(forest[light].start);
            let sectors = (late * 40) >> SECTOR_SHIFT;
            assert!(sectors.abs_diff(owed) <= 1, "{sectors} instead of {owed} sectors");
        }
    }

    /// Whether the root turns from the leaf in service, of a group or of the root.
    #[test]
    fn a_group_in_service_is_its_own_successor_while_no_sibling_goes_first() {
        // Leaf in service alone; beside another; of a group alone, beside a leaf of its group,
        // and beside a later and an earlier one of the root.
        for (in_group, sibling, at_root, turns) in [
            (false, false, None, false),
            (false, false, Some(40), true),
            (true, false, None, false),
            (true, true, None, false),
            (true, false, Some(40), true),
            (true, true, Some(40), false),
            (true, true, Some(400), true),
        ] {
            let mut forest = Forest::new();
            let below = group(&mut forest, LevelId::ROOT, 100);
            let level = if in_group { below } else { LevelId::ROOT };
            leaf(&mut forest, 0, level, 40);
            let chosen = forest.select(0).expect("a leaf");
            forest.serve(chosen, 8);
            if sibling {
                leaf(&mut forest, 1, below, 40);
            }
            if let Some(weight) = at_root {
                leaf(&mut forest, 2, LevelId::ROOT, weight);
            }
            let case = (in_group, sibling, at_root);
            assert_eq!(forest.turns_at_root(), turns, "{case:?}");
        }
    }

    #[test]
    fn what_has_left_leaves_no_weight_behind() {
        let mut forest = Forest::new();
        let a = group(&mut forest, LevelId::ROOT, 500);
        let one = leaf(&mut forest, 0, a, 40);
        let two = leaf(&mut forest, 1, LevelId::ROOT, 80);
        let chosen = forest.select(0).unwrap();
        forest.serve(chosen, 4096);
        forest.expire(chosen, None);
        let other = if chosen == one { two } else { one };
        forest.deactivate(other);
        for id in [one, two] {
            forest.forget(id);
        }
        let entity = forest.levels[a.index()].entity.unwrap();
        assert!(!forest.levels[0].trees[BE].has_backlog());
        forest.forget(entity);
        assert_eq!(forest.levels[0].trees[BE].w, 0);
        assert_eq!(forest.levels[a.index()].trees[BE].w, 0);
    }

    #[test]
    fn virtual_time_may_wrap() {
        let mut forest = Forest::new();
        forest.levels[0].trees[BE].v = u64::MAX - 1000;
        let leaves =
            [leaf(&mut forest, 0, LevelId::ROOT, 100), leaf(&mut forest, 1, LevelId::ROOT, 300)];
        let received = run(&mut forest, &leaves, 4000, 5);
        let ratio = received[1] * 100 / received[0];
        assert!((290..=310).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_budget_of_an_entity_that_waits_decides_when_it_is_served() {
        let mut forest = Forest::new();
        let a = leaf(&mut forest, 0, LevelId::ROOT, 40);
        let b = leaf(&mut forest, 1, LevelId::ROOT, 40);
        let mut budgets = |of_a, of_b| {
            forest.set_budget(a, of_a);
            forest.set_budget(b, of_b);
            let first = forest.select(0).expect("both have backlog");
            forest.serve(first, 1);
            forest.expire(first, Some(8192));
            first
        };
        assert_eq!([budgets(9000, 4000), budgets(4000, 9000), budgets(9000, 4000)], [b, a, b]);
        // With its first stamp as well.
        let mut forest = Forest::new();
        let [a, b] = [0, 1].map(|n| forest.add(Kind::Queue(QueueId(n)), LevelId::ROOT, BE, 40));
        forest.activate(a, 9000, false);
        forest.activate(b, 4000, false);
        assert_eq!(forest.select(0), Some(b));
    }

    /// An entity of weight 10 that was served a budget and has nothing more, beside one of 90.
    fn served_and_empty() -> (Forest, EntityId) {
        let mut forest = Forest::new();
        let one = leaf(&mut forest, 0, LevelId::ROOT, 10);
        assert_eq!(forest.select(0), Some(one));
        leaf(&mut forest, 1, LevelId::ROOT, 90);
        forest.serve(one, 8192);
        forest.expire(one, None);
        (forest, one)
    }

    #[test]
    fn an_entity_starts_where_it_ended_as_long_as_it_is_idle_and_now_once_it_is_forgotten() {
        for forgotten in [false, true] {
            let (mut forest, one) = served_and_empty();
            let (finish, v) = (forest[one].finish, forest.tree(one).v);
            assert!(is_after(finish, v), "it had more than its part");
            if forgotten {
                forest.forget(one);
            }
            forest.activate(one, 8192, false);
            assert_eq!(forest[one].start, if forgotten { v } else { finish });
        }
    }

    #[test]
    fn a_return_in_time_is_owed_a_budget_and_both_stamps_move_up_by_what_is_more() {
        for coefficient in [1, 30] {
            let (mut forest, one) = served_and_empty();
            let finish = forest[one].finish;
            forest[one].coefficient = coefficient;
            let weight = 10 * u64::from(coefficient);
            let (_, tree) = forest.parts(one);
            tree.v = finish.wrapping_add(virtual_span(100_000, 10));
            forest.activate(one, 8192, true);
            let more = virtual_span(100_000, 10) - virtual_span(CREDIT, weight);
            let start = finish.wrapping_add(more / u64::from(coefficient));
            let stamps = (forest[one].start, forest[one].finish);
            assert_eq!(stamps, (start, start.wrapping_add(virtual_span(8192, weight))));
        }
    }

    #[test]
    fn the_idle_class_is_chosen_once_when_it_had_nothing_for_200_ms() {
        const MS: u64 = 1_000_000;
        let mut forest = Forest::new();
        let busy = leaf(&mut forest, 0, LevelId::ROOT, 40);
        let idle = forest.add(Kind::Queue(QueueId(1)), LevelId::ROOT, IDLE, 10);
        forest.activate(idle, 8192, false);
        for (at, chosen) in
            [(200 * MS - 1, busy), (200 * MS, idle), (200 * MS, busy), (400 * MS, idle)]
        {
            assert_eq!(forest.select(at), Some(chosen), "at {at} ns");
            forest.expire(chosen, Some(8192));
        }
    }
}

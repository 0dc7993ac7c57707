//! The answer of a comparison in one sentence: which variant to use, and at what price.
//!
//! The first variant is the one that there is: it is kept where nothing is known to be better.

use serde::Serialize;
use weir_trace::document::Compare;
use weir_trace::labels::{in_effect, jobs_differ};
use weir_trace::metric::{COMMITS, FIGURE, FIGURE_NS, IOPS, MAKESPAN, Metric, Unit, primary};

use crate::numbers::{count, percent};
use crate::rank::{Against, Place, against, between, places};
use crate::tone::Tone;
use crate::verdict::{is_alike, labels, undecided};

/// A sentence, its names apart from its words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answer {
    pub(crate) tone: Tone,
    pub(crate) spans: Vec<Span>,
}

/// A part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Span {
    pub(crate) text: String,
    /// Whether it is the name of a variant.
    pub(crate) is_name: bool,
}

/// How many differences by other metrics stand in the sentence.
const BESIDE_MOST: usize = 2;
/// How many variants are told of by name.
const NAMED_MOST: usize = 3;

impl Answer {
    /// It as plain text, names in back quotes.
    pub(crate) fn text(&self) -> String {
        let quoted = |span: &Span| match span.is_name {
            true => format!("`{}`", span.text),
            false => span.text.clone(),
        };
        self.spans.iter().map(quoted).collect()
    }
}

/// The answer by the primary metric.
pub(crate) fn answer(compare: &Compare) -> Answer {
    let name = primary(compare);
    let Some(metric) = Metric::named(name) else {
        return none(&format!("nothing here knows the metric {name}"));
    };
    let subject = Subject::new(compare, metric);
    let Known { better, alike, worse, open } = &subject.known;
    if better.is_empty() && alike.is_empty() && worse.is_empty() {
        return subject.without_first();
    }
    let mut says = Saying::default();
    let tone = match better.is_empty() {
        true => subject.keep(&mut says),
        false => subject.change(&mut says),
    };
    for at in open {
        says.words("; ").name(&subject.labels[*at]).words(" was not compared");
    }
    says.words(".");
    if jobs_differ(compare.variants.iter().map(|variant| &variant.options)) {
        says.words(" Their jobs differ: each variant is compared with the load of its own.");
    }
    if names_effects(compare) {
        subject.name_effects(&mut says);
    }
    Answer { tone, spans: says.0 }
}

/// Whether the answer says what took effect of each variant's options: there are few of them.
pub(crate) fn names_effects(compare: &Compare) -> bool {
    compare.variants.len() <= NAMED_MOST
}

/// The variants with such a place, the best value first.
fn ranked(places: &[Option<Place>], wanted: impl Fn(&Place) -> bool) -> Vec<usize> {
    let is = |at: &usize| places[*at].as_ref().is_some_and(&wanted);
    let mut found: Vec<usize> = (0..places.len()).filter(is).collect();
    found.sort_by_key(|at| places[*at].map(|place| (place.rank, !place.is_head)));
    found
}

fn none(why: &str) -> Answer {
    let mut says = Saying::default();
    says.words(&format!("No answer: {why}."));
    Answer { tone: Tone::Plain, spans: says.0 }
}

/// A sentence being made.
#[derive(Default)]
struct Saying(Vec<Span>);

impl Saying {
    fn words(&mut self, text: &str) -> &mut Saying {
        match self.0.last_mut().filter(|last| !last.is_name) {
            Some(last) => last.text.push_str(text),
            None => self.0.push(Span { text: String::from(text), is_name: false }),
        }
        self
    }

    fn name(&mut self, label: &str) -> &mut Saying {
        self.0.push(Span { text: String::from(label), is_name: true });
        self
    }
}

/// What is known of the others against the first by a metric, the best values first.
#[derive(Default)]
struct Known {
    better: Vec<usize>,
    /// Not told apart.
    alike: Vec<usize>,
    worse: Vec<usize>,
    /// Not compared with it.
    open: Vec<usize>,
}

/// A comparison and the metric that it is judged by.
struct Subject<'a> {
    compare: &'a Compare,
    metric: &'static Metric,
    labels: Vec<String>,
    known: Known,
    places: Vec<Option<Place>>,
}

impl<'a> Subject<'a> {
    fn new(compare: &'a Compare, metric: &'static Metric) -> Subject<'a> {
        let places = places(compare, metric);
        let mut known = Known::default();
        let mut others: Vec<usize> = (1..compare.variants.len()).collect();
        others.sort_by_key(|at| places[*at].map_or((usize::MAX, false), |p| (p.rank, !p.is_head)));
        for at in others {
            match against(compare, metric, 0, at).map(|found| found.is_better(metric)) {
                None => known.open.push(at),
                Some(None) => known.alike.push(at),
                Some(Some(true)) => known.better.push(at),
                Some(Some(false)) => known.worse.push(at),
            }
        }
        Subject { compare, metric, labels: labels(compare), known, places }
    }

    /// Nothing was compared with the first.
    fn without_first(&self) -> Answer {
        let best = ranked(&self.places, |place| place.rank == 1);
        if self.places.first().is_some_and(Option::is_none) && !best.is_empty() {
            let mut says = Saying::default();
            says.words("Use ");
            self.name_all(&mut says, &best);
            says.words(": the best of what was compared; ").name(&self.labels[0]);
            says.words(" was not compared.");
            return Answer { tone: Tone::Better, spans: says.0 };
        }
        let found = self.compare.comparisons.iter().find(|one| one.metric == self.metric.name);
        none(found.map_or("nothing was compared", |found| {
            undecided(found).trim_start_matches("not compared: ")
        }))
    }

    /// The queue mode, the scheduler and the queues of each, as far as its runs tell.
    fn name_effects(&self, says: &mut Saying) {
        let variants = self.compare.variants.iter().zip(&self.labels);
        let known = variants.filter_map(|(variant, label)| Some((label, in_effect(variant)?)));
        for (number, (label, effect)) in known.enumerate() {
            says.words(if number == 0 { " In effect: " } else { "; " });
            says.name(label).words(&format!(" is {effect}"));
        }
        if says.0.last().is_some_and(|last| !last.text.ends_with('.')) {
            says.words(".");
        }
    }

    /// Those of some that none of the others is better than.
    fn unbeaten(&self, of: &[usize]) -> Vec<usize> {
        let beats = |at: usize, other: usize| {
            let found = against(self.compare, self.metric, at, other);
            found.and_then(|found| found.is_better(self.metric)) == Some(true)
        };
        let is_unbeaten = |at: &usize| !of.iter().any(|other| beats(*at, *other));
        let found: Vec<usize> = of.iter().copied().filter(is_unbeaten).collect();
        // In a circle each is beaten.
        if found.is_empty() { of.to_vec() } else { found }
    }

    /// No other is known to be better than the first.
    fn keep(&self, says: &mut Saying) -> Tone {
        let Known { alike, worse, .. } = &self.known;
        let (seen, unseen): (Vec<usize>, Vec<usize>) =
            alike.iter().partition(|at| self.would_be_seen(**at).is_some());
        if worse.is_empty() && seen.is_empty() {
            says.words("No answer: the rounds differ too much to see less than a doubling");
            says.words(", and more of them or longer ones may tell");
            return Tone::Plain;
        }
        says.words("Keep ").name(&self.labels[0]).words(": ");
        let mut begun = !seen.is_empty();
        if begun {
            says.words(&self.no_better(&seen));
        }
        for at in worse.iter().take(NAMED_MOST) {
            let Some(found) = against(self.compare, self.metric, 0, *at) else { continue };
            says.words(if begun { "; " } else { "" });
            begun = true;
            self.difference(says, *at, self.metric, &found);
        }
        match worse.len().saturating_sub(NAMED_MOST) {
            0 => {}
            1 => _ = says.words("; 1 more is worse"),
            more => _ = says.words(&format!("; {more} more are worse")),
        }
        for at in &unseen {
            says.words(if begun { "; " } else { "" }).words("nothing is known of ");
            begun = true;
            says.name(&self.labels[*at]).words(": less than a doubling would not be seen");
        }
        // What the others cost where they are as good, and what they have where they are not.
        let is_told = |at: usize, better: bool| alike.contains(&at) || better;
        for (at, metric, found) in self.beside(0, &is_told) {
            says.words(if worse.contains(&at) { "; but " } else { "; " });
            self.difference(says, at, metric, &found);
        }
        if worse.is_empty() { Tone::Same } else { Tone::Better }
    }

    /// The change for the better against the first that would have been seen, if that is less than
    /// a doubling; what is known to be alike within what matters needs none.
    fn would_be_seen(&self, at: usize) -> Option<f64> {
        let found = between(self.compare, self.metric, 0, at)?;
        if is_alike(found) {
            return Some(0.0);
        }
        let effect = found.min_detectable_effect.filter(|effect| *effect <= 1.0)?;
        Some(if self.metric.more_is_better { effect } else { 1.0 - 1.0 / (1.0 + effect) })
    }

    /// That none of these is better than the first, and what would have been seen.
    fn no_better(&self, others: &[usize]) -> String {
        let title = self.metric.title;
        let found = || others.iter().filter_map(|at| between(self.compare, self.metric, 0, *at));
        if let Some(within) = self.compare.within.filter(|_| found().all(is_alike)) {
            let who =
                if self.known.worse.is_empty() { "no other differs" } else { "others differ" };
            let no = if self.known.worse.is_empty() { "" } else { "no " };
            return format!("{who} by {no}more than {} in {title}", percent(within));
        }
        let words = match self.metric.name {
            IOPS | COMMITS | MAKESPAN | FIGURE | FIGURE_NS => {
                String::from("nothing measurably faster")
            }
            _ => match self.metric.unit {
                Unit::PerSecond => format!("nothing has measurably more {title}"),
                Unit::Nanoseconds => format!("nothing has a measurably lower {title}"),
                Unit::CpuNanoseconds => format!("nothing takes measurably less {title}"),
            },
        };
        let least = others.iter().filter_map(|at| self.would_be_seen(*at)).fold(0.0, f64::max);
        if least > 0.0 {
            format!("{words} ({} would have been seen)", percent(least))
        } else {
            words
        }
    }

    /// Names of variants: the first three, and how many more.
    fn name_all(&self, says: &mut Saying, of: &[usize]) {
        let named = of.len().min(NAMED_MOST);
        for (index, at) in of.iter().take(NAMED_MOST).enumerate() {
            says.words(match index {
                0 => "",
                _ if index + 1 == named => " or ",
                _ => ", ",
            });
            says.name(&self.labels[*at]);
        }
        if of.len() > NAMED_MOST {
            says.words(&format!(" or {} more", of.len() - NAMED_MOST));
        }
        if of.len() > 1 {
            says.words(" (not told apart)");
        }
    }

    /// Others are better than the first.
    fn change(&self, says: &mut Saying) -> Tone {
        let best = self.unbeaten(&self.known.better);
        says.words("Use ");
        self.name_all(says, &best);
        let ratios = best.iter().filter_map(|at| against(self.compare, self.metric, 0, *at));
        let ratios = ratios.map(|found| found.ratio);
        let least = ratios.min_by(|one, other| one.ln().abs().total_cmp(&other.ln().abs()));
        says.words(if best.len() > 1 { ": at least " } else { ": " });
        says.words(&change(self.metric, least.unwrap_or(1.0))).words(" than ");
        says.name(&self.labels[0]);
        let is_told = |at: usize, better: bool| at == best[0] && !better;
        for (_, metric, found) in self.beside(0, &is_told) {
            says.words(", but ").words(&change(metric, found.ratio));
            if best.len() > 1 {
                says.words(" for ").name(&self.labels[best[0]]);
            }
        }
        Tone::Better
    }

    /// The largest differences from the variant at `base` by other metrics, of those wanted.
    fn beside(
        &self,
        base: usize,
        wanted: &dyn Fn(usize, bool) -> bool,
    ) -> Vec<(usize, &'static Metric, Against<'_>)> {
        let others = weir_trace::metric::METRICS.iter();
        let others = others.filter(|metric| metric.name != self.metric.name);
        let variants = 0..self.labels.len();
        let mut found: Vec<_> = others
            .flat_map(|metric| variants.clone().map(move |at| (at, metric)))
            .filter(|(at, _)| *at != base)
            .filter_map(|(at, metric)| {
                let found = against(self.compare, metric, base, at)?;
                let better = found.is_better(metric)?;
                wanted(at, better).then_some((at, metric, found))
            })
            .collect();
        let size = |found: &Against<'_>| found.ratio.ln().abs();
        found.sort_by(|(_, _, one), (_, _, other)| size(other).total_cmp(&size(one)));
        // The largest of all, and of the other kind if there is one: prices do not hide gains.
        let way = |(_, metric, found): &(usize, &Metric, Against<'_>)| found.is_better(metric);
        let first = found.first().map(way);
        if let Some(other) =
            found.iter().position(|one| Some(way(one)) != first).filter(|at| *at > 1)
        {
            found.swap(1, other);
        }
        found.truncate(BESIDE_MOST);
        found
    }

    fn difference(&self, says: &mut Saying, at: usize, metric: &Metric, found: &Against<'_>) {
        let is_better = found.is_better(metric) == Some(true);
        let verb = match (metric.unit, metric.name) {
            (Unit::CpuNanoseconds, _) if is_better => "takes",
            (Unit::CpuNanoseconds, _) => "costs",
            (_, MAKESPAN) => "takes",
            _ => "has",
        };
        says.name(&self.labels[at]).words(&format!(" {verb} {}", change(metric, found.ratio)));
    }
}

/// A ratio as a change of a metric: `28 % more IOPS`.
pub(crate) fn change(metric: &Metric, ratio: f64) -> String {
    let (title, is_more) = (metric.title, ratio >= 1.0);
    if ratio >= 10.0 {
        return format!("{} times the {title}", count(ratio));
    }
    if ratio < 0.1 {
        return format!("{} of the {title}", percent(ratio));
    }
    let way = match (metric.unit, metric.name) {
        (Unit::PerSecond, _) => ["fewer", "more"],
        (Unit::Nanoseconds, name) if name != MAKESPAN => ["lower", "higher"],
        _ => ["less", "more"],
    };
    format!("{} {} {title}", percent(ratio - 1.0), way[usize::from(is_more)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::tests::{add, of};
    use weir_trace::document::{Bench, Comparison};

    const CPU: &str = "cpu_ns_per_io";
    const P99: &str = "latency_p99_ns";

    fn text(compare: &Compare) -> String {
        answer(compare).text()
    }

    #[test]
    fn what_is_no_better_is_left_and_its_price_told() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 101.0)]);
        let kept = "Keep `none`: nothing measurably faster (12 % would have been seen)";
        assert_eq!(text(&compare), format!("{kept}."));
        assert_eq!(answer(&compare).tone, Tone::Same);
        add(&mut compare, CPU, &[100.0, 144.0]);
        assert_eq!(text(&compare), format!("{kept}; `bfq` costs 44 % more CPU per I/O."));
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 50.0)]);
        assert_eq!(text(&compare), "Keep `none`: `bfq` has 50 % fewer IOPS.");
        // A price beside it is no news, and what it has in return is.
        add(&mut compare, CPU, &[100.0, 144.0]);
        assert_eq!(text(&compare), "Keep `none`: `bfq` has 50 % fewer IOPS.");
        add(&mut compare, P99, &[100.0, 20.0]);
        let but = "; but `bfq` has 80 % lower p99 latency.";
        assert_eq!(text(&compare), format!("Keep `none`: `bfq` has 50 % fewer IOPS{but}"));
    }

    #[test]
    fn what_is_better_is_used_and_its_price_told() {
        let mut compare = of(IOPS, &[("sq", 100.0), ("mq", 128.0)]);
        assert_eq!(text(&compare), "Use `mq`: 28 % more IOPS than `sq`.");
        add(&mut compare, P99, &[100.0, 150.0]);
        add(&mut compare, CPU, &[100.0, 70.0]);
        let but = ", but 50 % higher p99 latency.";
        assert_eq!(text(&compare), format!("Use `mq`: 28 % more IOPS than `sq`{but}"));
        let many = [("a1", 50.0), ("b1", 100.0), ("c1", 101.0), ("d1", 102.0), ("e1", 103.0)];
        let more = "(not told apart): at least 100 % more IOPS than `a1`.";
        assert_eq!(text(&of(IOPS, &many)), format!("Use `e1`, `b1` or `c1` or 1 more {more}"));
        // It has no estimate of its own there, and a verdict needs none.
        let compare = of("makespan_ns", &[("sq", 100.0), ("mq", 50.0)]);
        assert_eq!(text(&compare), "Use `mq`: 50 % less time to finish than `sq`.");
    }

    #[test]
    fn what_took_effect_of_few_variants_is_told() {
        let mut compare = of(IOPS, &[("sq", 100.0), ("mq", 128.0)]);
        let said = "Use `mq`: 28 % more IOPS than `sq`.";
        for (at, mode, scheduler, queues) in [(0, "sq", "deadline", 1), (1, "mq", "none", 4)] {
            let options = serde_json::json!({
                "queue_mode": mode, "scheduler": scheduler, "queues": queues, "nr_requests": 128,
            });
            let options = options.as_object().cloned().expect("an object");
            compare.variants[at].rounds = vec![Bench { options, ..Default::default() }];
        }
        let effect =
            "`sq` is sq with deadline, 1 queue of 128; `mq` is mq with none, 4 queues of 128";
        assert_eq!(text(&compare), format!("{said} In effect: {effect}."));
        compare.variants[0].rounds.clear();
        assert_eq!(
            text(&compare),
            format!("{said} In effect: `mq` is mq with none, 4 queues of 128.")
        );
        assert!(names_effects(&of(IOPS, &[("a", 1.0), ("b", 2.0), ("c", 3.0)])));
        assert!(!names_effects(&of(IOPS, &[("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0)])));
    }

    /// What is said of two variants, by their names.
    fn found<'a>(compare: &'a mut Compare, pair: [&str; 2]) -> &'a mut Comparison {
        let is = |one: &&mut Comparison| [&*one.a, &*one.b] == pair;
        compare.comparisons.iter_mut().find(is).expect("the two were compared")
    }

    #[test]
    fn the_best_value_hides_no_variant_that_is_shown_to_be_better() {
        // bfq is the best by its value, and its rounds differ too much to tell it from others.
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 105.0), ("kyber", 103.0)]);
        found(&mut compare, ["a", "c"]).verdict = "c is faster".into();
        assert_eq!(text(&compare), "Use `kyber`: 3.0 % more IOPS than `none`.");
        // Of two that are better the better one.
        let compare = of(IOPS, &[("none", 100.0), ("bfq", 120.0), ("kyber", 150.0)]);
        assert_eq!(text(&compare), "Use `kyber`: 50 % more IOPS than `none`.");
        // Two that are not told apart, of which one alone is better than the first.
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 120.0), ("kyber", 119.0)]);
        found(&mut compare, ["a", "c"]).verdict = "no detectable difference".into();
        assert_eq!(text(&compare), "Use `bfq`: 20 % more IOPS than `none`.");
        // One that is worse than the best is not for that worse than the first.
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 109.0), ("kyber", 95.0)]);
        let kept = "Keep `none`: nothing measurably faster (12 % would have been seen).";
        assert_eq!(text(&compare), kept);
        found(&mut compare, ["a", "c"]).verdict = "c is slower".into();
        let worse = kept.replace("seen).", "seen); `kyber` has 5.0 % fewer IOPS.");
        assert_eq!(text(&compare), worse);
    }

    #[test]
    fn means_do_not_outvote_verdicts() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 110.0)]);
        compare.comparisons[0].ratio = Some(0.9);
        compare.comparisons[0].verdict = "b is slower".into();
        assert_eq!(text(&compare), "Keep `none`: `bfq` has 10 % fewer IOPS.");
        let ranks = places(&compare, Metric::named(IOPS).expect("a metric"));
        assert_eq!([0, 1].map(|at| ranks[at].map(|place| place.rank)), [Some(1), Some(2)]);
    }

    #[test]
    fn where_less_than_a_doubling_is_not_seen_nothing_is_advised() {
        for effect in [Some(1.01), Some(f64::INFINITY), None] {
            let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 101.0), ("kyber", 50.0)]);
            found(&mut compare, ["a", "b"]).min_detectable_effect = effect;
            let worse = "Keep `none`: `kyber` has 50 % fewer IOPS; nothing is known of `bfq`";
            let said = format!("{worse}: less than a doubling would not be seen.");
            assert_eq!(text(&compare), said);
            let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 101.0)]);
            compare.comparisons[0].min_detectable_effect = effect;
            let said = answer(&compare);
            assert!(said.text().starts_with("No answer: the rounds differ too much"), "{said:?}");
            assert_eq!(said.tone, Tone::Plain);
        }
        // The worst of those that can be seen is told, and of times as a fall.
        let mut compare = of(P99, &[("none", 100.0), ("bfq", 101.0), ("kyber", 102.0)]);
        found(&mut compare, ["a", "c"]).min_detectable_effect = Some(1.0);
        let said = "Keep `none`: nothing has a measurably lower p99 latency (50 % would have been";
        assert_eq!(text(&compare), format!("{said} seen)."));
    }

    #[test]
    fn a_gain_is_told_beside_larger_prices() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 101.0)]);
        add(&mut compare, CPU, &[100.0, 500.0]);
        add(&mut compare, "latency_mean_ns", &[100.0, 300.0]);
        add(&mut compare, P99, &[100.0, 40.0]);
        let said = text(&compare);
        assert!(said.contains("costs 400 % more CPU per I/O; `bfq` has 60 % lower p99"), "{said}");
    }

    #[test]
    fn what_cannot_be_said_is_not_said() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 200.0)]);
        compare.comparisons[0].ci99 = None;
        compare.comparisons[0].ci95 = None;
        compare.comparisons[0].verdict = "not compared: too few rounds count (1 of 2)".into();
        let said = "No answer: too few rounds count (1 of 2).";
        assert_eq!((text(&compare).as_str(), answer(&compare).tone), (said, Tone::Plain));
        assert_eq!(text(&Compare::default()), "No answer: nothing was compared.");
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 101.0), ("kyber", 500.0)]);
        for found in compare.comparisons.iter_mut().filter(|found| found.b == "c") {
            (found.ci99, found.ci95) = (None, None);
        }
        assert!(text(&compare).ends_with("seen); `kyber` was not compared."), "{}", text(&compare));
    }

    #[test]
    fn variants_with_jobs_of_their_own_are_told_to_have_them() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 200.0)]);
        assert!(!text(&compare).contains("jobs"));
        compare.variants[1].options["job.threads"] = "2".into();
        let said = text(&compare);
        assert!(said.contains("`job.threads=2 bfq`: 100 % more IOPS than `none`"), "{said}");
        assert!(
            said.ends_with("Their jobs differ: each variant is compared with the load of its own.")
        );
    }

    #[test]
    fn differences_that_do_not_matter_are_told_by_how_little_matters() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 101.0)]);
        compare.within = Some(0.05);
        compare.comparisons[0].verdict = "the same within 5 %".into();
        assert_eq!(text(&compare), "Keep `none`: no other differs by more than 5.0 % in IOPS.");
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 101.0), ("kyber", 50.0)]);
        compare.within = Some(0.05);
        compare.comparisons[0].verdict = "the same within 5 %".into();
        found(&mut compare, ["a", "c"]).verdict = "no detectable difference".into();
        let seen = "nothing measurably faster (12 % would have been seen)";
        assert_eq!(text(&compare), format!("Keep `none`: {seen}."), "one is not known to be alike");
        found(&mut compare, ["a", "c"]).verdict = "c is slower".into();
        let said =
            "Keep `none`: others differ by no more than 5.0 % in IOPS; `kyber` has 50 % fewer";
        assert_eq!(text(&compare), format!("{said} IOPS."));
    }

    #[test]
    fn a_change_of_many_times_is_no_percentage() {
        let of = |name, ratio| change(Metric::named(name).expect("a metric"), ratio);
        assert_eq!(of(IOPS, 14.26), "14.3 times the IOPS");
        assert_eq!(of(IOPS, 0.001), "0.1 % of the IOPS");
        assert_eq!(of(MAKESPAN, 0.5), "50 % less time to finish");
        assert_eq!(of(COMMITS, 0.88), "12 % fewer commits per second");
        assert_eq!(of("read_latency_p99_ns", 1.071), "7.1 % higher p99 read latency");
    }
}

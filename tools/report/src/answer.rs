//! The answer of a comparison in one sentence: which variant to use, and at what price.
//!
//! The first variant is the one that there is: it is kept where nothing is known to be better.

use serde::Serialize;
use weir_trace::document::Compare;
use weir_trace::metric::{COMMITS, FIGURE, FIGURE_NS, IOPS, MAKESPAN, Metric, Unit, primary};

use crate::numbers::{count, percent};
use crate::rank::{Against, Place, against, between, places};
use crate::tone::Tone;
use crate::verdict::{is_alike, labels};

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
    let subject = Subject { compare, metric, labels: labels(compare) };
    let places = places(compare, metric);
    let leaders: Vec<usize> = ranked(&places, |place| place.rank == 1);
    if leaders.is_empty() {
        let found = compare.comparisons.iter().find(|found| found.metric == metric.name);
        let why = found.map(|found| found.verdict.as_str()).filter(|why| !why.is_empty());
        let why = why.map(|why| why.trim_start_matches("not compared: "));
        return none(why.unwrap_or("nothing was compared"));
    }
    let mut says = Saying::default();
    let tone = match places[0] {
        Some(place) if place.rank == 1 => subject.keep(&mut says, &places),
        _ => subject.change(&mut says, &places, &leaders),
    };
    for at in (0..places.len()).filter(|at| places[*at].is_none()) {
        says.words("; ").name(&subject.labels[at]).words(" was not compared");
    }
    says.words(".");
    Answer { tone, spans: says.0 }
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

/// A comparison and the metric that it is judged by.
struct Subject<'a> {
    compare: &'a Compare,
    metric: &'static Metric,
    labels: Vec<String>,
}

impl Subject<'_> {
    /// The first is the best, or not told apart from it.
    fn keep(&self, says: &mut Saying, places: &[Option<Place>]) -> Tone {
        let worse = ranked(places, |place| place.rank > 1);
        let others: Vec<usize> = ranked(places, |place| place.rank == 1);
        let others: Vec<usize> = others.into_iter().filter(|at| *at != 0).collect();
        says.words("Keep ").name(&self.labels[0]).words(": ");
        if !others.is_empty() {
            says.words(&self.no_better(&others));
        }
        let mut begun = !others.is_empty();
        for at in worse.iter().take(NAMED_MOST) {
            let Some(found) = against(self.compare, self.metric, 0, *at) else { continue };
            says.words(if begun { "; " } else { "" });
            begun = true;
            self.difference(says, *at, self.metric, &found);
        }
        if worse.len() > NAMED_MOST {
            says.words(&format!("; {} more are worse", worse.len() - NAMED_MOST));
        }
        // What the others cost where they are as good, and what they have where they are not.
        let is_told = |at: usize, better: bool| others.contains(&at) || better;
        for (at, metric, found) in self.beside(0, &is_told) {
            says.words(if worse.contains(&at) { "; but " } else { "; " });
            self.difference(says, at, metric, &found);
        }
        if worse.is_empty() { Tone::Same } else { Tone::Better }
    }

    /// That none of these is better than the first, and what would have been seen.
    fn no_better(&self, others: &[usize]) -> String {
        let found = || {
            let of_first = |at: &usize| between(self.compare, self.metric, 0, *at);
            others.iter().filter_map(of_first)
        };
        let title = self.metric.title;
        if let Some(within) = self.compare.within.filter(|_| found().all(is_alike)) {
            return format!("no other differs by more than {} in {title}", percent(within));
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
        let effects = found().filter_map(|one| one.min_detectable_effect);
        let least = effects.filter(|effect| effect.is_finite()).fold(0.0, f64::max);
        if least > 0.0 {
            format!("{words} ({} would have been seen)", percent(least))
        } else {
            words
        }
    }

    /// Others are better than the first, or it was not compared.
    fn change(&self, says: &mut Saying, places: &[Option<Place>], leaders: &[usize]) -> Tone {
        says.words("Use ");
        for (index, at) in leaders.iter().take(NAMED_MOST).enumerate() {
            let last = index + 1 == leaders.len().min(NAMED_MOST);
            says.words(match index {
                0 => "",
                _ if last => " or ",
                _ => ", ",
            });
            says.name(&self.labels[*at]);
        }
        if leaders.len() > NAMED_MOST {
            says.words(&format!(" or {} more", leaders.len() - NAMED_MOST));
        }
        if leaders.len() > 1 {
            says.words(" (not told apart)");
        }
        if places[0].is_none() {
            says.words(": the best of what was compared");
            return Tone::Better;
        }
        let best = leaders[0];
        if let Some(found) = against(self.compare, self.metric, 0, best) {
            says.words(": ").words(&change(self.metric, found.ratio)).words(" than ");
            says.name(&self.labels[0]);
        }
        let is_told = |at: usize, better: bool| at == best && !better;
        for (_, metric, found) in self.beside(0, &is_told) {
            says.words(", but ").words(&change(metric, found.ratio));
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
        let said = "Use `e1`, `b1` or `c1` or 1 more (not told apart): 106 % more IOPS than `a1`.";
        assert_eq!(text(&of(IOPS, &many)), said);
        let compare = of("makespan_ns", &[("sq", 100.0), ("mq", 50.0)]);
        // It has no estimate of its own there, so nothing can be ranked.
        assert!(text(&compare).starts_with("No answer: "), "{}", text(&compare));
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
    fn differences_that_do_not_matter_are_told_by_how_little_matters() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 101.0)]);
        compare.within = Some(0.05);
        compare.comparisons[0].verdict = "the same within 5 %".into();
        assert_eq!(text(&compare), "Keep `none`: no other differs by more than 5.0 % in IOPS.");
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

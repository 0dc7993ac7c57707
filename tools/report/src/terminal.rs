//! A comparison for a terminal: the answer first, then figures, in lines that fit.
//!
//! Two variants have a row for each metric. Three and more have one matrix, a row for each variant,
//! best first; the comparisons of each two of them are in the saved document and in the report.

use weir_trace::document::{Compare, Comparison, Inference};
use weir_trace::labels::{in_effect, shortened, shortened_apart};
use weir_trace::metric::{METRICS, Metric, primary};

use crate::answer::{answer, names_effects};
use crate::numbers::{NONE, percent, shown};
use crate::rank::{Place, against, between, places};
use crate::verdict::{capital, is_alike, is_decided, is_difference, labels, way};

/// The widest that lines are, columns.
pub const COLUMNS_MOST: usize = 80;
/// The narrowest that tables are made for, columns.
const COLUMNS_LEAST: usize = 40;
/// Longest name of a variant in a table, characters, and the shortest that one is cut to.
const NAME_MOST: usize = 24;
const NAME_LEAST: usize = 8;
/// Before all lines of a text but its first.
const INDENT: &str = "  ";
/// Between two columns.
const GAP: &str = "  ";

/// What is said of a comparison before its notes: the answer, and its figures.
#[must_use]
pub fn tables(compare: &Compare, columns: usize) -> String {
    let columns = columns.clamp(COLUMNS_LEAST, COLUMNS_MOST);
    let mut text = wrapped(&answer(compare).text(), columns);
    text.push('\n');
    let labels = labels(compare);
    let options = compare.variants.iter().zip(&labels).map(|(variant, label)| {
        let options = weir_trace::labels::words(&variant.options);
        let options = if options.is_empty() { "the target as it is" } else { &options };
        let name = &variant.name;
        let called = if label == name { name.clone() } else { format!("{name}, {label}") };
        format!("{called}: {options} ({} rounds)", variant.rounds.len())
    });
    options.for_each(|line| text.push_str(&wrapped(&line, columns)));
    text.push('\n');
    match labels.len() {
        0 | 1 => {}
        2 => text.push_str(&pair(compare, &labels, columns)),
        _ => text.push_str(&matrix(compare, &labels, columns)),
    }
    let effects = compare.variants.iter().zip(&labels).filter_map(|(variant, label)| {
        in_effect(variant).map(|effect| format!("in effect, {label}: {effect}"))
    });
    for line in effects.filter(|_| !names_effects(compare)).chain(order_notes(compare, &labels)) {
        text.push_str(&wrapped(&line, columns));
    }
    text
}

/// What the figures mean.
#[must_use]
pub fn legend(compare: &Compare, columns: usize) -> String {
    let count = compare.comparisons.iter().filter(|found| is_decided(found)).count();
    let different = compare.comparisons.iter().filter(|found| is_difference(found)).count();
    let without = compare.comparisons.len() - count;
    let without = if without == 0 { String::new() } else { format!("; {without} not compared") };
    let any_time = match compare.inference {
        Inference::Fixed => "",
        Inference::Anytime => " Intervals hold however often they were looked at.",
    };
    let name = primary(compare);
    let others = compare.comparisons.iter().filter(|found| found.metric != name).count();
    let title = Metric::named(name).map_or(name, |metric| metric.title);
    // In words, too: the column is left out where there is no room for it.
    let effect = |found: &Comparison| found.min_detectable_effect.filter(|least| *least <= 10.0);
    let first = compare.comparisons.iter().find(|found| found.metric == name);
    let visible = match first.and_then(effect).filter(|_| compare.variants.len() == 2) {
        Some(least) => format!(
            " A difference of {} in {title} would be seen in four of five such comparisons, a \
             smaller one less often (\"visible\").",
            percent(least)
        ),
        None => String::new(),
    };
    wrapped(
        &format!(
            "{different} of {count} verdicts name a difference{without}. One does where the whole \
             99 % interval of the change lies on one side of 0. Without a difference {title} has \
             one in one comparison of a hundred at most, and the {others} other verdicts together \
             in another.{any_time}{visible}"
        ),
        columns.clamp(COLUMNS_LEAST, COLUMNS_MOST),
    )
}

/// A text in lines of at most so many columns, all but the first indented; each ends with a line
/// break.
#[must_use]
pub fn wrapped(text: &str, columns: usize) -> String {
    let columns = columns.clamp(COLUMNS_LEAST, COLUMNS_MOST);
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        // One that is longer than a line goes on in the next.
        for (part, letters) in letters.chunks(columns - INDENT.len()).enumerate() {
            let gap = usize::from(part == 0 && width > 0);
            if width > 0 && width + gap + letters.len() > columns {
                lines.push('\n');
                lines.push_str(INDENT);
                width = INDENT.len();
            } else if gap > 0 {
                lines.push(' ');
                width += gap;
            }
            lines.extend(letters);
            width += letters.len();
        }
    }
    lines.push('\n');
    lines
}

/// A column of a table.
struct Column {
    cells: Vec<String>,
    to_left: bool,
    /// Whether it is left out before others where there is no room: the highest goes first.
    spare: u8,
}

impl Column {
    fn new(spare: u8, cells: Vec<String>) -> Column {
        Column { cells, to_left: false, spare }
    }

    fn left(self) -> Column {
        Column { to_left: true, ..self }
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|cell| cell.chars().count()).max().unwrap_or_default()
    }
}

fn width(columns: &[Column]) -> usize {
    columns.iter().map(Column::width).sum::<usize>() + GAP.len() * columns.len().saturating_sub(1)
}

/// Rows of columns, without those that there is no room for.
fn aligned(mut table: Vec<Column>, columns: usize) -> String {
    while width(&table) > columns {
        let spare = table.iter().map(|column| column.spare).max().filter(|spare| *spare > 0);
        let Some(spare) = spare else { break };
        table.retain(|column| column.spare != spare);
    }
    let mut text = String::new();
    for row in 0..table.first().map_or(0, |column| column.cells.len()) {
        let cells = table.iter().map(|column| {
            let (cell, width) = (&column.cells[row], column.width());
            if column.to_left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
        text.push('\n');
    }
    text
}

/// The metrics that were compared, the primary one first.
fn compared(compare: &Compare) -> Vec<&'static Metric> {
    let name = primary(compare);
    let is_there =
        |metric: &&Metric| compare.comparisons.iter().any(|found| found.metric == metric.name);
    let mut metrics: Vec<&Metric> = METRICS.iter().filter(is_there).collect();
    metrics.sort_by_key(|metric| metric.name != name);
    metrics
}

fn value(compare: &Compare, metric: &Metric, at: usize) -> Option<String> {
    let estimate = metric.of_variant(&compare.variants[at]).filter(|known| known.mean > 0.0)?;
    Some(shown(metric, estimate.gmean.unwrap_or(estimate.mean)))
}

/// A ratio as a change in per cent, or as a multiple.
fn change(ratio: f64) -> String {
    if ratio < 10.0 { format!("{:+.1} %", (ratio - 1.0) * 100.0) } else { format!("{ratio:.1}x") }
}

/// The interval of a change; what is larger than everything is not told to a tenth.
fn interval([low, high]: [f64; 2]) -> String {
    match high {
        _ if high < 10.0 => {
            format!("{:+.1} .. {:+.1} %", (low - 1.0) * 100.0, (high - 1.0) * 100.0)
        }
        _ if high < 1000.0 => format!("{low:.1}x .. {high:.1}x"),
        _ => format!("{low:.1}x .. > 1000x"),
    }
}

/// The verdict on the second of two in a word or two.
fn word(found: &Comparison) -> String {
    match () {
        () if !is_decided(found) => String::from("not compared"),
        () if is_difference(found) => String::from(way(found)),
        () if is_alike(found) => found.verdict.replacen("the same within", "within", 1),
        () => String::from("none seen"),
    }
}

/// Two variants: a row for each metric.
fn pair(compare: &Compare, labels: &[String], columns: usize) -> String {
    let metrics = compared(compare);
    let column = |head: &str, of: &dyn Fn(&'static Metric) -> Option<String>| {
        let cells = metrics.iter().map(|metric| of(metric).unwrap_or_else(|| NONE.into()));
        std::iter::once(String::from(head)).chain(cells).collect::<Vec<String>>()
    };
    let found = |metric: &'static Metric| between(compare, metric, 0, 1);
    let values = |at: usize| {
        let mut cells = column("", &|metric| value(compare, metric, at));
        let room = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or_default();
        cells[0] = shortened_apart(labels, room.max(NAME_LEAST)).swap_remove(at);
        Column::new(1, cells)
    };
    let effect = |metric| {
        let least = found(metric)?.min_detectable_effect?;
        Some(if least <= 10.0 { percent(least) } else { String::from("> 1000 %") })
    };
    let table = vec![
        Column::new(0, column("", &|metric| Some(capital(metric.title)))).left(),
        values(0),
        values(1),
        Column::new(0, column("change", &|metric| found(metric)?.ratio.map(change))),
        Column::new(2, column("99 % interval", &|metric| found(metric)?.ci99.map(interval))),
        Column::new(0, column("verdict", &|metric| found(metric).map(word))).left(),
        Column::new(3, column("visible", &effect)),
    ];
    let mut text = aligned(table, columns);
    text.push_str(&reasons(metrics.iter().filter_map(|metric| found(metric)), columns));
    text
}

/// Why metrics have no verdict: each reason once, with all that it is the reason of.
fn reasons<'a>(found: impl Iterator<Item = &'a Comparison>, columns: usize) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in found.filter(|one| !is_decided(one)) {
        let title = Metric::named(&one.metric).map_or(one.metric.as_str(), |one| one.title);
        match reasons.iter_mut().find(|(why, _)| *why == one.verdict) {
            Some((_, titles)) => titles.push(title),
            None => reasons.push((&one.verdict, vec![title])),
        }
    }
    let line = |(why, titles): (&str, Vec<&str>)| {
        wrapped(&format!("{}: {why}", capital(&titles.join(", "))), columns)
    };
    reasons.into_iter().map(line).collect()
}

/// Three and more: a row for each variant, best first, and metrics in as many tables as they take.
fn matrix(compare: &Compare, labels: &[String], columns: usize) -> String {
    let metrics = compared(compare);
    let Some(first) = metrics.first() else { return String::new() };
    let of_first = places(compare, first);
    let order = order(&of_first);
    let rank = |at: &usize| of_first[*at].map_or(NONE.into(), |place| place.rank.to_string());
    let names = || {
        let most = NAME_MOST.min(columns / 3 - 1);
        let named = shortened_apart(labels, most);
        let mut cells = vec![String::new(); 2];
        cells.extend(order.iter().map(|at| named[*at].clone()));
        Column::new(0, cells).left()
    };
    let ranks = || {
        let mut cells = vec![String::new(); 2];
        cells.extend(order.iter().map(rank));
        Column::new(0, cells)
    };
    let change = || {
        let mut cells = vec![String::from("against"), shortened(&labels[0], NAME_LEAST + 2)];
        cells.extend(order.iter().map(|at| {
            against(compare, first, 0, *at).map_or(String::new(), |found| change(found.ratio))
        }));
        Column::new(0, cells)
    };
    let mut blocks = vec![vec![ranks(), names()]];
    for metric in metrics.iter().copied() {
        let mut added = vec![cells(compare, metric, &order)];
        if metric.name == first.name {
            added.push(change());
        }
        let block = blocks.last_mut().expect("there is one");
        let room = width(block) + width(&added) + GAP.len();
        if room > columns && block.len() > 2 {
            blocks.push(vec![ranks(), names()]);
        }
        blocks.last_mut().expect("there is one").extend(added);
    }
    let mut text: String = blocks.into_iter().map(|block| aligned(block, columns) + "\n").collect();
    let said = "* the best; = not told apart from it; the number in front is the rank by the first \
                metric";
    text.push_str(&wrapped(said, columns));
    text
}

/// The variants by rank, those without one behind.
pub(crate) fn order(places: &[Option<Place>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|at| places[*at].map_or((usize::MAX, false), |of| (of.rank, !of.is_head)));
    order
}

/// The column of a metric, under its name in two lines.
fn cells(compare: &Compare, metric: &Metric, order: &[usize]) -> Column {
    let title = capital(metric.title);
    let (upper, lower) = title.rsplit_once(' ').unwrap_or(("", &title));
    let places = places(compare, metric);
    let mut cells = vec![format!("{upper} "), format!("{lower} ")];
    cells.extend(order.iter().map(|at| {
        let mark = match places[*at] {
            Some(Place { rank: 1, is_head: true, .. }) => '*',
            Some(Place { rank: 1, .. }) => '=',
            _ => ' ',
        };
        let value = value(compare, metric, *at).unwrap_or_else(|| NONE.into());
        format!("{value}{mark}")
    }));
    Column::new(0, cells)
}

/// What it did to a run of the primary metric to be the second of its round.
fn order_notes(compare: &Compare, labels: &[String]) -> Vec<String> {
    let name = primary(compare);
    let place = |name: &str| compare.variants.iter().position(|variant| variant.name == name);
    let note = |found: &Comparison| {
        let second = found.second_run?;
        let [a, b] = [place(&found.a)?, place(&found.b)?].map(|at| &labels[at]);
        let title = Metric::named(name).map_or(name, |metric| metric.title);
        Some(format!(
            "note: of {a} and {b} the one that ran second in a round had other {title}: {} (99 % \
             interval {}); this is not in the change",
            change(second.mean),
            interval(second.ci99?)
        ))
    };
    compare.comparisons.iter().filter(|found| found.metric == name).filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::tests::{add, of};
    use weir_trace::metric::{CPU, IOPS};

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or_default()
    }

    #[test]
    fn two_variants_are_a_sentence_and_a_row_for_each_metric() {
        let mut compare = of(IOPS, &[("sq", 1_239_699.0), ("mq", 1_602_509.0)]);
        add(&mut compare, CPU, &[121.0, 122.0]);
        let text = tables(&compare, 80);
        assert!(text.starts_with("Use `mq`: 29 % more IOPS than `sq`.\n\na, sq: "), "{text}");
        let rows: Vec<&str> = text.lines().skip(5).collect();
        let cells = |at: usize| rows[at].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(cells(0), "sq mq change 99 % interval verdict visible", "{text}");
        assert_eq!(cells(1), "IOPS 1,239,699 1,602,509 +29.3 % +17.6 .. +42.2 % faster 12 %");
        assert!(cells(2).starts_with("CPU per I/O 121 ns 122 ns +0.8 % -8.2 .. +10.9 % none seen"));
    }

    #[test]
    fn lines_fit_however_narrow_the_terminal_and_long_the_names_are() {
        let long = ["x".repeat(59) + "1", "y".repeat(60)];
        let mut many = Vec::new();
        for at in 0..12 {
            many.push(format!("{}{at}", "scheduler-with-a-name-".repeat(3)));
        }
        let values = |names: &[String]| -> Vec<(String, f64)> {
            names
                .iter()
                .enumerate()
                .map(|(at, name)| (name.clone(), 1e6 + 3e5 * at as f64))
                .collect()
        };
        for names in [&long[..], &many[..3], &many[..]] {
            let named = values(names);
            let named: Vec<(&str, f64)> = named.iter().map(|(n, v)| (n.as_str(), *v)).collect();
            let mut compare = of(IOPS, &named);
            let all: Vec<f64> = named.iter().map(|(_, value)| *value).collect();
            for metric in ["latency_p99_ns", CPU, "read_iops", "read_latency_p99_ns"] {
                add(&mut compare, metric, &all);
            }
            for columns in [40, 57, 80, 200] {
                let text = tables(&compare, columns) + &legend(&compare, columns);
                assert!(widest(&text) <= columns.min(80), "{columns}:\n{text}");
                assert!(text.contains("verdict") || text.contains("* the best"), "{text}");
            }
        }
    }

    #[test]
    fn a_matrix_has_the_best_first_and_marks_what_is_not_told_apart_from_it() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 50.0), ("kyber", 104.0)]);
        add(&mut compare, CPU, &[100.0, 300.0, 200.0]);
        let text = tables(&compare, 80);
        let rows: Vec<&str> = text.lines().skip_while(|line| !line.contains("against")).collect();
        let row = |at: usize| rows[at].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(row(1), "IOPS none I/O", "{text}");
        assert_eq!(row(2), "1 kyber 104* +4.0 % 200 ns", "{text}");
        assert_eq!(row(3), "1 none 100= 100 ns*", "{text}");
        assert_eq!(row(4), "3 bfq 50 -50.0 % 300 ns", "{text}");
        assert!(!text.contains("interval"), "the pairs are in the document: {text}");
    }

    #[test]
    fn what_the_order_of_runs_does_is_told_of_the_primary_metric() {
        let mut compare = of(IOPS, &[("sq", 100.0), ("mq", 101.0)]);
        add(&mut compare, CPU, &[100.0, 101.0]);
        let second = weir_trace::document::Estimate {
            mean: 0.8,
            ci99: Some([0.75, 0.85]),
            ..Default::default()
        };
        compare.comparisons.iter_mut().for_each(|found| found.second_run = Some(second));
        let text = tables(&compare, 80).split_whitespace().collect::<Vec<_>>().join(" ");
        let note = "note: of sq and mq the one that ran second in a round had other IOPS: -20.0 % \
                    (99 % interval -25.0 .. -15.0 %); this is not in the change";
        assert!(text.ends_with(note) && text.matches("note:").count() == 1, "{text}");
    }

    #[test]
    fn a_reason_is_told_once_and_what_would_be_seen_in_words() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 50.0)]);
        add(&mut compare, CPU, &[100.0, 101.0]);
        compare.comparisons[0].min_detectable_effect = Some(0.25);
        let said = legend(&compare, 80).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("A difference of 25 % in IOPS would be seen in four"), "{said}");
        for found in &mut compare.comparisons {
            (found.ci99, found.ci95, found.min_detectable_effect) = (None, None, None);
            found.verdict = "not compared: too few rounds count (2 of 9)".into();
        }
        let text = tables(&compare, 80);
        let why = "\nIOPS, CPU per I/O: not compared: too few rounds count (2 of 9)\n";
        assert!(text.contains(why) && text.matches("too few rounds count").count() == 2, "{text}");
        assert!(!legend(&compare, 80).contains("would be seen"), "nothing is known of that");
    }

    #[test]
    fn what_was_not_compared_says_why_and_what_is_large_is_no_percentage() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 50.0)]);
        (compare.comparisons[0].ci99, compare.comparisons[0].ci95) = (None, None);
        compare.comparisons[0].verdict = "not compared: too few rounds count (2 of 9)".into();
        let text = tables(&compare, 80);
        assert!(text.starts_with("No answer: too few"), "{text}");
        assert!(text.contains("\nIOPS: not compared: too few rounds count (2 of 9)\n"), "{text}");
        assert_eq!(interval([0.0, 1.6e28]), "0.0x .. > 1000x");
        assert_eq!(interval([0.5, 1.25]), "-50.0 .. +25.0 %");
        assert_eq!(interval([1.5, 12.5]), "1.5x .. 12.5x");
        assert_eq!((change(9.99), change(10.5)), ("+899.0 %".into(), "10.5x".into()));
    }
}

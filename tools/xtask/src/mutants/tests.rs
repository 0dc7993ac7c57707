use super::points::Points;
use super::*;

const SAMPLE: &str = "\
const MOST: u64 = 8 + 1;
impl Queue {
    fn is_due(&self, now: u64) -> bool {
        let late = self.at + MOST < now;
        if self.held && !late { return false; }
        late
    }
    const fn fixed(&self) -> bool { 1 < 2 }
    fn serve(&mut self, x: u64) {
        self.served += x.min(MOST);
        self.forget();
    }
    fn chained(&self) -> u8 {
        if let Some(at) = self.last && at > 3 { at } else { 9 }
    }
}
#[cfg(test)]
mod tests { fn a() -> bool { 1 < 2 } }
";

fn changes(function: &str) -> Vec<String> {
    let points = Points::of(SAMPLE).unwrap();
    let of = points.mutations.into_iter().filter(|one| one.function == function);
    of.map(|one| one.change).collect()
}

#[test]
fn operators_conditions_statements_bodies_and_constants_are_changed() {
    assert_eq!(
        changes("Queue::is_due"),
        [
            "the function answers true",
            "the function answers false",
            "self.at + MOST < now: < becomes <=",
            "self.at + MOST < now: < becomes >",
            "self.at + MOST: + becomes -",
            "self.at + MOST: + becomes *",
            "MOST becomes twice MOST",
            "self.held && !late: && becomes ||",
            "self.held is negated",
            "!late: ! is left out",
        ]
    );
    assert_eq!(
        changes("Queue::serve"),
        [
            "the function does nothing",
            "self.served += x.min(MOST); is left out",
            "self.served += x.min(MOST): += becomes -=",
            "self.served += x.min(MOST): += becomes *=",
            "x.min(MOST): min becomes max",
            "MOST becomes twice MOST",
            "self.forget(); is left out",
        ]
    );
}

#[test]
fn constants_tests_and_the_chain_of_a_let_are_left_as_they_are() {
    assert!(changes("Queue::fixed").is_empty());
    assert!(changes("a").is_empty());
    let chained = changes("Queue::chained");
    assert!(!chained.iter().any(|change| change.contains("&&")), "{chained:?}");
    assert!(chained.contains(&"at > 3: > becomes >=".to_owned()), "{chained:?}");
}

#[test]
fn the_file_with_its_mutations_is_rust_and_without_them_the_file() {
    let points = Points::of(SAMPLE).unwrap();
    assert_eq!(points.render(SAMPLE, 0, |_| false).text, SAMPLE);
    let all = points.render(SAMPLE, 100, |_| true);
    assert!(syn::parse_file(&all.text).is_ok(), "{}", all.text);
    for at in 0..points.mutations.len() {
        let is = format!("crate::mutant::is({})", 100 + at);
        assert_eq!(all.text.matches(&is).count(), 1, "{is}");
        let one = points.render(SAMPLE, 100, |kept| kept == at);
        assert!(syn::parse_file(&one.text).is_ok(), "{}", one.text);
        assert_eq!(one.text.matches("mutant::is").count(), 1, "{}", one.text);
    }
}

#[test]
fn a_range_of_the_built_text_leads_back_to_the_mutation() {
    let points = Points::of(SAMPLE).unwrap();
    let all = points.render(SAMPLE, 0, |_| true);
    let at = points.mutations.iter().position(|m| m.change.ends_with("< becomes <=")).unwrap();
    let of: Vec<&str> = all
        .ranges
        .iter()
        .filter(|(_, numbers)| numbers.contains(&at))
        .map(|(range, _)| &all.text[range.clone()])
        .collect();
    assert_eq!(of[0], "*wl <= *wr");
    assert!(of[1].starts_with("({ let (wl, wr) = (&(") && of[1].ends_with("*wl < *wr } })"));
    assert_eq!(of.len(), 2);
}

#[test]
fn a_sample_is_the_same_for_the_same_seed_and_of_the_files_asked_for() {
    let one = |number: usize| Numbered {
        number,
        path: if number.is_multiple_of(2) { "a/bfq.rs" } else { "a/cfq.rs" }.to_owned(),
        mutation: points::Mutation { function: "f".into(), change: String::new(), line: number },
    };
    let all: Vec<Numbered> = (0..100).map(one).collect();
    let settings = |seed: u64, of: &str| Settings {
        of: vec![of.to_owned()],
        sample: 10,
        seed,
        since: None,
        named: None,
        seconds: None,
        jobs: 1,
    };
    let drawn = |seed: u64, of: &str, changed: Option<&Changed>| -> Vec<usize> {
        choose(&all, &settings(seed, of), changed).iter().map(|one| one.number).collect()
    };
    assert_eq!(drawn(1, "cfq", None), drawn(1, "cfq", None));
    assert_ne!(drawn(1, "cfq", None), drawn(2, "cfq", None));
    assert_eq!(drawn(1, "cfq", None).len(), 10);
    assert!(drawn(1, "cfq", None).iter().all(|number| number % 2 == 1));
    let changed = Changed::from([("a/cfq.rs".to_owned(), (3..8).collect())]);
    assert_eq!(drawn(1, "cfq", Some(&changed)), [3, 5, 7]);
    let names = all.iter().map(|one| (one.number, format!("{} | f | {}", one.path, one.number)));
    let text = "  a/cfq.rs | f | 7\na/cfq.rs | f | 8\na/bfq.rs | f | 90\n";
    let found = named(&all, &names.collect(), text);
    assert_eq!(found.iter().map(|one| one.number).collect::<Vec<_>>(), [7, 90]);
}

#[test]
fn changed_lines_are_those_of_the_new_file() {
    let diff = "--- a/x.rs\n+++ b/x.rs\n@@ -3 +3,2 @@ fn a\n+b\n@@ -9,4 +10,0 @@\n@@ -20 +17 @@\n\
                --- a/y.rs\n+++ /dev/null\n@@ -1,2 +0,0 @@\n";
    let changed = read_changes(diff);
    assert_eq!(changed["x.rs"], BTreeSet::from([3, 4, 17]));
    assert_eq!(changed.len(), 1);
}

#[test]
fn outcomes_are_read_as_they_were_noted_and_only_for_the_same_code() {
    let folder = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("outcomes.txt");
    let notes = Notes::of(&path, 7).unwrap();
    notes.add("a.rs | f | x", Outcome::Caught, "one").unwrap();
    notes.add("a.rs | f | y", Outcome::Survived, "-").unwrap();
    let again = Notes::of(&path, 7).unwrap().known;
    let other = Notes::of(&path, 8).unwrap().known;
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(again["a.rs | f | x"], (Outcome::Caught, "one".to_owned()));
    assert_eq!(again["a.rs | f | y"], (Outcome::Survived, "-".to_owned()));
    assert!(other.is_empty());
}

#[test]
fn a_survivor_fails_the_run_unless_its_reason_is_known() {
    let outcome = |outcome: Outcome| (outcome, "-".to_owned());
    let outcomes = Outcomes::from([
        ("a".to_owned(), outcome(Outcome::Caught)),
        ("b".to_owned(), outcome(Outcome::Timeout)),
        ("c".to_owned(), outcome(Outcome::Survived)),
        ("d".to_owned(), outcome(Outcome::Unreached)),
    ]);
    let mut reasons = BTreeMap::from([("c".to_owned(), "cost: less".to_owned())]);
    assert!(!report(&outcomes, &reasons, &BTreeMap::new()));
    reasons.insert("d".to_owned(), "equivalent: same".to_owned());
    assert!(report(&outcomes, &reasons, &BTreeMap::new()));
}

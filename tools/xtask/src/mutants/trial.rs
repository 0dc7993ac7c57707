//! Test programs of the copy: which of their tests come by a mutation, and whether one notices it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::workspace::Error;

/// CPU time of one test with a mutation, seconds, beyond twice that without one. Other load
/// makes no timeout of it.
const CPU_SECONDS: u64 = 10;

/// Address space of a test program, KiB: a mutation can make a list grow for ever.
const SPACE_KIB: u64 = 4 << 20;

/// Tests that take longer than two seconds, so long runs and no tables: left out.
const LONG: [&str; 6] = [
    "legacy::cfq::tests::a_million_random_events_end_at_rest_and_repeat_exactly",
    "legacy::cfq::tests::ten_thousand_random_sequences_lose_nothing_and_strand_nobody",
    concat!(
        "mq::kyber::tests::random::random_sequences_lose_double_and_strand_nothing",
        "_and_choose_as_the_model_does"
    ),
    "properties::group_idle_keeps_the_share_of_a_thinking_group_and_costs_throughput",
    "properties::without_idling_groups_share_requests_and_not_bytes",
    "slots::p9_service_stays_within_the_budget_and_budgets_within_their_bounds",
];

/// One test of one program.
#[derive(Clone, Debug)]
pub struct Test {
    program: PathBuf,
    pub name: String,
    /// Without a mutation.
    seconds: f64,
}

/// What became of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Caught,
    /// Caught as well: the tests used more CPU time than they may.
    Timeout,
    Survived,
    /// No test comes by.
    Unreached,
}

/// All tests, from quick to slow, and by mutation those that come by.
pub struct Tests {
    tests: Vec<Test>,
    reach: BTreeMap<usize, Vec<usize>>,
    folder: PathBuf,
}

impl Tests {
    /// Runs each test once, without a mutation; one that fails is an error.
    pub fn of(programs: &[PathBuf], tree: &Path) -> Result<Tests, Error> {
        let folder = tree.join("core/sched");
        let note = tree.join("../reached.txt");
        let mut found = Vec::new();
        for program in programs {
            for name in names(program)?.into_iter().filter(|name| !LONG.contains(&name.as_str())) {
                let mut test = Test { program: program.clone(), name, seconds: 0.0 };
                // A file of an earlier run would be added to.
                let _ = fs::remove_file(&note);
                let start = Instant::now();
                let reached = ("WEIR_MUTANTS_REACHED", note.display().to_string());
                if test.run(&folder, &reached, u64::MAX)? != Outcome::Survived {
                    return Err(format!("{} fails without a mutation", test.name));
                }
                test.seconds = start.elapsed().as_secs_f64();
                let text = fs::read_to_string(&note).unwrap_or_default();
                let numbers: Vec<usize> =
                    text.lines().filter_map(|line| line.parse().ok()).collect();
                found.push((test, numbers));
            }
        }
        found.sort_by(|(a, _), (b, _)| a.seconds.total_cmp(&b.seconds));
        let mut reach: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, (_, numbers)) in found.iter().enumerate() {
            for &number in numbers {
                reach.entry(number).or_default().push(at);
            }
        }
        let tests = found.into_iter().map(|(test, _)| test).collect();
        Ok(Tests { tests, reach, folder })
    }

    pub fn len(&self) -> usize {
        self.tests.len()
    }

    /// Without a mutation, seconds, one after the other.
    pub fn seconds(&self) -> f64 {
        self.tests.iter().map(|test| test.seconds).sum()
    }

    /// Tries a mutation on the tests that come by, those in `first` before the others, until one
    /// notices it; which.
    pub fn attempt(
        &self,
        number: usize,
        first: Option<usize>,
    ) -> Result<(Outcome, Option<usize>), Error> {
        let Some(reach) = self.reach.get(&number) else { return Ok((Outcome::Unreached, None)) };
        let first = first.filter(|first| reach.contains(first));
        let rest = reach.iter().copied().filter(|&at| Some(at) != first);
        for at in first.into_iter().chain(rest) {
            let test = &self.tests[at];
            let most = CPU_SECONDS + 2 * test.seconds.ceil() as u64;
            match test.run(&self.folder, &("WEIR_MUTANT", number.to_string()), most)? {
                Outcome::Survived => {}
                other => return Ok((other, Some(at))),
            }
        }
        Ok((Outcome::Survived, None))
    }

    pub fn name(&self, at: usize) -> &str {
        &self.tests[at].name
    }
}

impl Test {
    fn run(
        &self,
        folder: &Path,
        (key, value): &(&str, String),
        seconds: u64,
    ) -> Result<Outcome, Error> {
        let cpu = if seconds == u64::MAX { "unlimited".to_owned() } else { seconds.to_string() };
        let limits = format!("ulimit -c 0; ulimit -t {cpu}; ulimit -v {SPACE_KIB}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &limits, "sh"]).arg(&self.program);
        command.args(["--exact", &self.name, "--test-threads=1"]);
        command.current_dir(folder).env(key, value).env("RUST_BACKTRACE", "0");
        // A seed that fails would be kept by what makes seeds.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().map_err(|error| format!("sh: {error}"))?;
        Ok(match status.code() {
            Some(0) => Outcome::Survived,
            Some(_) => Outcome::Caught,
            // Ended by the limit on CPU time, or by itself.
            None if is_cpu_limit(status) => Outcome::Timeout,
            None => Outcome::Caught,
        })
    }
}

#[cfg(unix)]
fn is_cpu_limit(status: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    // SIGKILL and SIGXCPU.
    [Some(9), Some(24)].contains(&status.signal())
}

#[cfg(not(unix))]
fn is_cpu_limit(_: std::process::ExitStatus) -> bool {
    false
}

fn names(program: &Path) -> Result<Vec<String>, Error> {
    let output = Command::new(program).args(["--list", "--format", "terse"]).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

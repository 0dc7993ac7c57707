//! `weir compare --continue FILE`: more rounds of a comparison that was saved.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use clap::{Args, FromArgMatches};
use weir_bench::compare::Earlier;
use weir_bench::results::document::environment;
use weir_bench::workload::spec::Prepare;
use weir_trace::document::{CompareDocument, Document, Environment};

use super::Compare;
use crate::Failure;

/// What a comparison goes on with.
#[derive(Clone, Debug)]
pub(super) struct GoesOn {
    /// The command line that began it.
    pub(super) command: Vec<String>,
    /// What was measured.
    pub(super) earlier: Earlier,
}

/// The greatest number of a round that is gone on behind: a thousand sittings of the most rounds.
const ROUND_MOST: u32 = 1000 * super::MOST_ROUNDS;

impl Compare {
    /// The comparison that the file is of, to be gone on with, with this one's outputs and limits.
    pub(super) fn of_saved(self, file: &Path) -> Result<Compare, Failure> {
        let failed = |why: String| Failure::Bad(format!("--continue {}: {why}", file.display()));
        if let Some(given) = self.job.first_given().or_else(|| self.first_variant()) {
            return Err(failed(format!("{given} would change what is compared")));
        }
        let (document, about) = compared(file).map_err(failed)?;
        let before = asked(&document.command).map_err(failed)?;
        if let Some(run) = &before.command.run {
            let user = rustix::process::geteuid().as_raw();
            is_own(user, &about).map_err(|why| failed(format!("it runs {run:?}, and {why}")))?;
        }
        if before.sim.is_some() {
            let why = "it was simulated, where more --rounds take only time to compute";
            return Err(failed(String::from(why)));
        }
        same_machine(&document).map_err(failed)?;
        let CompareDocument { command, runs, control, .. } = document;
        let goes_on = GoesOn { command, earlier: Earlier { runs, control } };
        Ok(Compare {
            goes_on: Some(goes_on),
            rounds: None,
            max_rounds: self.max_rounds,
            max_time: self.max_time,
            within: self.within.or(before.within),
            fail_if: self.fail_if.or(before.fail_if),
            // What was there may have been written over then, and what is there now is not that.
            destroy: self.destroy,
            // What was to be filled was, before its first round.
            prepare: if before.prepare == Prepare::Fill { Prepare::Auto } else { before.prepare },
            save: self.save,
            report: self.report,
            markdown: self.markdown,
            csv: self.csv,
            json: self.json,
            quiet: self.quiet,
            ..before
        })
    }

    pub(super) fn first_variant(&self) -> Option<String> {
        self.variants.given().first().map(|(name, _)| format!("--{name}"))
    }
}

/// That no other user can have written a file: what stands in it is run by a shell.
fn is_own(user: u32, about: &Metadata) -> Result<(), String> {
    let (owner, mode) = (about.uid(), about.mode() & 0o7777);
    if owner != user {
        return Err(format!("it belongs to user {owner}: it is trusted only if to user {user}"));
    }
    if mode & 0o022 != 0 {
        return Err(format!("it has mode {mode:04o}: others may have written it"));
    }
    Ok(())
}

/// The comparison in a file, and what is known of the file.
fn compared(file: &Path) -> Result<(CompareDocument, Metadata), String> {
    let read = || -> std::io::Result<(Vec<u8>, Metadata)> {
        let (mut file, mut bytes) = (File::open(file)?, Vec::new());
        file.read_to_end(&mut bytes)?;
        Ok((bytes, file.metadata()?))
    };
    let (bytes, about) = read().map_err(|error| error.to_string())?;
    match serde_json::from_slice(&bytes) {
        Ok(Document::Compare(document)) => has_rounds(&document).map(|()| (*document, about)),
        Ok(Document::Sweep(_)) => {
            Err(String::from("it is a sweep, and one comparison is gone on with at a time"))
        }
        Ok(_) => Err(String::from("it is no comparison that weir compare has saved")),
        Err(error) => Err(format!("it is no comparison that weir compare has saved: {error}")),
    }
}

/// That it has rounds, with numbers that rounds have.
fn has_rounds(document: &CompareDocument) -> Result<(), String> {
    let last = document.runs.iter().map(|run| run.round).max();
    match last.ok_or("it has no runs")? {
        last if last > ROUND_MOST => Err(format!("round={last} is above {ROUND_MOST}")),
        _ => Ok(()),
    }
}

/// What that command line asked for.
fn asked(command: &[String]) -> Result<Compare, String> {
    let secret = |word: &&String| word.contains("%...@");
    if let Some(word) = command.iter().find(secret) {
        return Err(format!("its command line has {word}: the secret was not saved"));
    }
    let words = match command {
        [_, name, words @ ..] if name == "compare" => words,
        _ => return Err(format!("its command line is none of weir compare: {command:?}")),
    };
    // Of one that went on with another the first command line is kept.
    if words.iter().any(|word| word == "--continue" || word.starts_with("--continue=")) {
        return Err(String::from("its command line is of one that goes on with another"));
    }
    let known = clap::Command::new("compare").no_binary_name(true);
    let known = crate::strict(Compare::augment_args(known));
    let read = known.try_get_matches_from(words).and_then(|m| Compare::from_arg_matches(&m));
    read.map_err(|error| {
        let said = error.to_string();
        let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("its command line is not understood: {said}")
    })
}

/// Rounds of two machines are not of one comparison.
fn same_machine(document: &CompareDocument) -> Result<(), String> {
    let told = |of: &Environment| {
        format!("{} CPUs {}, Linux {}, weir {}", of.cpus, of.cpu_model, of.kernel, of.weir)
    };
    let now = told(&environment(SystemTime::now()));
    let then = document.runs.iter().map(|run| told(&run.document.environment));
    match then.into_iter().find(|then| *then != now) {
        Some(then) => Err(format!("it was measured with {then}, and this is {now}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(String::from).collect()
    }

    #[test]
    fn a_command_line_is_read_as_it_was_given() {
        let line = "weir compare --target null:1MiB --a queue_mode=sq --b queue_mode=mq \
                    --rw randread --runtime 50ms --randseed 7 --within 2%";
        let asked = asked(&words(line)).expect("a comparison");
        assert_eq!(asked.target, ["null:1MiB"]);
        assert_eq!((asked.randseed, asked.within, asked.rounds), (Some(7), Some(0.02), None));
        assert_eq!(asked.variants.given(), [("a", "queue_mode=sq"), ("b", "queue_mode=mq")]);
    }

    #[test]
    fn a_file_that_others_may_have_written_is_not_trusted() {
        let path = std::env::temp_dir().join(format!("weir-own-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        std::fs::remove_file(&path).expect("it has no name any more");
        let user = rustix::process::geteuid().as_raw();
        let with = |mode: u32| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            file.set_permissions(mode).and_then(|()| file.metadata()).expect("its own")
        };
        assert_eq!(is_own(user, &with(0o644)), Ok(()));
        for mode in [0o664, 0o646] {
            let why = is_own(user, &with(mode)).expect_err("others");
            assert!(why.contains(&format!("mode {mode:04o}")), "{why}");
        }
        let why = is_own(user + 1, &with(0o644)).expect_err("another's");
        assert!(why.contains(&format!("belongs to user {user}")), "{why}");
    }

    #[test]
    fn what_no_comparison_was_begun_with_is_refused() {
        for (line, why) in [
            ("weir bench --rw read", "none of weir compare"),
            ("weir compare --frob", "not understood"),
            ("weir compare --continue a.json", "goes on with another"),
            ("weir compare --continue=a.json", "goes on with another"),
            ("weir compare --target iscsi://me%...@host/target/0", "the secret was not saved"),
        ] {
            let refused = asked(&words(line)).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}

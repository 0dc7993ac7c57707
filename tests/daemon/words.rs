//! `weir` run with words to its end, as people run it.

use super::program::{Ended, Running};
use super::{Folder, weir};

/// Runs `weir` with these words to its end.
#[track_caller]
pub fn attempt(folder: &Folder, words: &[&str]) -> Ended {
    let mut command = weir(folder);
    command.args(words);
    Running::start(command).end()
}

/// The output of a `weir` command, which has to succeed.
#[track_caller]
pub fn told(folder: &Folder, words: &[&str]) -> String {
    let Ended { code, stdout, stderr } = attempt(folder, words);
    assert_eq!(code, Some(0), "weir {words:?}: {stdout}{stderr}");
    stdout
}

/// These words are refused: exit status 2, nothing on standard output, and every one of `parts` in
/// what is said.
#[track_caller]
pub fn expect_refused(folder: &Folder, words: &[&str], parts: &[&str]) {
    let Ended { code, stdout, stderr } = attempt(folder, words);
    assert_eq!(code, Some(2), "weir {words:?}: {stderr}");
    assert_eq!(stdout, "", "weir {words:?}");
    for part in parts {
        assert!(stderr.contains(part), "weir {words:?} does not say {part:?} but {stderr}");
    }
}

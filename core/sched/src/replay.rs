//! Replays: a scheduler is given what another was given, and asked when the other was asked.
//!
//! Pure: a recording in, an outcome out. It can be let go its own way, or be led along the
//! recording, its choice compared with the recorded one at each step.

mod details;
mod outcome;
mod player;
pub mod recording;
mod setting;
mod writing;

pub use details::Details;
pub use outcome::{Decision, Line, Options, Outcome};
use player::{Player, TAGS_MAX};
pub use recording::{Event, Kind, Range, Recording, ReplayError, Stated, tick_of};
use setting::{entry_of, setup_of};
pub use writing::Writer;

/// Replays a recording.
///
/// # Errors
/// No or an unknown scheduler, a tunable or a value it does not have, more requests at once than
/// a scheduler has tags for.
pub fn replay(recording: &Recording, options: &Options) -> Result<Outcome, ReplayError> {
    let entry = entry_of(recording, options)?;
    let mut setup = setup_of(recording, options, entry)?;
    loop {
        let mut player = Player::new(recording, options, entry, &setup)?;
        let failed = recording.events.iter().find_map(|event| {
            let what = player.play(event).err()?;
            Some(ReplayError { line: Some(event.line), what })
        });
        match failed {
            None => return Ok(player.outcome),
            // Most recordings need few, and following one copies a scheduler often.
            Some(_) if player.free.is_empty() && setup.nr_requests < TAGS_MAX => {
                setup.nr_requests = setup.nr_requests.saturating_mul(4);
            }
            Some(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(text: &str, options: &Options) -> Result<(Vec<String>, String), String> {
        let recording = Recording::read(text.as_bytes()).map_err(|error| error.to_string())?;
        let outcome = replay(&recording, options).map_err(|error| error.to_string())?;
        Ok((outcome.lines.iter().map(Line::to_string).collect(), outcome.to_string()))
    }

    fn own_way(text: &str) -> (Vec<String>, String) {
        played(text, &Options::default()).unwrap()
    }

    fn followed(text: &str) -> (Vec<String>, String) {
        played(text, &Options { follow: true, ..Options::default() }).unwrap()
    }

    const THREE: &str = "scheduler noop\n0 I R 80 8 0 0\n1 I W 0 8 0 0\n2 I R 40 8 0 0\n";

    #[test]
    fn led_its_own_way_a_scheduler_says_what_it_gives_each_time_it_is_asked() {
        let text = format!("{THREE}5 D R 40 8 - -\n7 D R 80 8 - -\n9 C R 40 8 - -\n");
        let expected = ["5 R 80 8".to_owned(), "7 W 0 8".to_owned()];
        assert_eq!(own_way(&text), (expected.to_vec(), "replay: 2 dispatches".to_owned()));
    }

    #[test]
    fn it_says_nothing_when_nothing_is_given_and_ends_what_it_gave_at_that_time() {
        // Two recorded requests are one here: the second time nothing is left.
        let text = "scheduler noop\n0 I R 0 8 0 0\n0 I R 8 8 0 0\n1 D R 0 8 - -\n2 C R 0 8 - -\n\
                    3 D R 8 8 - -\n4 C R 8 8 - -\n5 I R 0 8 0 0\n6 D R 0 8 - -\n7 C R 0 8 - -";
        let expected = ["1 R 0 16", "3 nothing", "6 R 0 8"].map(String::from);
        assert_eq!(own_way(text).0, expected);
    }

    #[test]
    fn followed_a_choice_that_differs_is_said_and_the_recorded_one_taken() {
        let text =
            format!("{THREE}5 D R 40 8 - -\n6 C R 40 8 - -\n7 D R 80 8 - -\n8 D W 0 8 - -\n");
        let lines = ["differs at 5: recorded R 40 8, chose R 80 8".to_owned()];
        let last = "replay: 2 of 3 dispatches match (66.66 %)".to_owned();
        assert_eq!(followed(&text), (lines.to_vec(), last));
    }

    #[test]
    fn followed_a_merge_that_differs_is_said_and_counts() {
        // Recorded apart, but one here; and recorded as one, but of different ops' neighbours.
        let text = "scheduler noop\n0 I R 0 8 0 0\n1 I R 8 8 0 0\n2 D R 0 8 - -\n3 D R 8 8 - -\n\
                    4 I R 50 8 0 0\n4 I R 0 8 0 0\n5 F R 42 8 0 0\n6 D R 42 16 - -\n7 D R 0 8 - -";
        let lines = ["differs at 1: recorded I R 8 8, chose M R 8 8"].map(String::from);
        let last = "replay: 3 of 4 dispatches match (75.00 %)".to_owned();
        assert_eq!(followed(text), (lines.to_vec(), last));
    }

    #[test]
    fn followed_requests_joined_otherwise_are_sorted_out_when_they_leave() {
        // The bio at 8 closes the gap, and here all three become one; the recording has two.
        let text = "scheduler noop\n0 I W 0 8 0 0\n0 I W 16 8 0 0\n1 M W 8 8 0 0\n\
                    2 D W 16 8 - -\n3 D W 0 16 - -\n4 C W 16 8 - -\n4 C W 0 16 - -";
        let (lines, last) = followed(text);
        assert_eq!(lines, ["differs at 2: recorded W 16 8, chose W 0 24"]);
        assert_eq!(last, "replay: 1 of 2 dispatches match (50.00 %)");
        // And the other way round: two here, one in the recording.
        let text = "scheduler noop\n0 I W 0 8 0 0\n0 I W 90 8 0 0\n0 I W 16 8 0 0\n1 M W 8 8 0 0\n\
                    2 D W 0 24 - -\n3 D W 90 8 - -\n";
        let (lines, last) = followed(text);
        assert_eq!(lines, ["differs at 2: recorded W 0 24, chose W 0 16"]);
        assert_eq!(last, "replay: 1 of 2 dispatches match (50.00 %)");
    }

    #[test]
    fn a_merge_that_differs_counts_against_one_dispatch() {
        let text = "scheduler noop\n0 I R 0 8 0 0\n0 I R 8 8 0 0\n";
        let (lines, last) = followed(&format!("{text}1 D R 0 8 - -\n1 D R 8 8 - -\n"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(last, "replay: 1 of 2 dispatches match (50.00 %)");
        assert_eq!(followed("scheduler noop").1, "replay: 0 of 0 dispatches match (100.00 %)");
    }

    #[test]
    fn a_flush_is_nobodys_choice() {
        let text = "scheduler noop\n0 I R 0 8 0 0\n1 D F 0 0 - -\n2 C F 0 0 - -\n3 D R 0 8 - -\n";
        assert_eq!(followed(text).1, "replay: 2 of 2 dispatches match (100.00 %)");
        assert_eq!(own_way(text).0, ["1 F 0 0", "3 R 0 8"]);
    }

    #[test]
    fn a_merge_of_very_many_bios_meets_no_limit() {
        let mut text = "scheduler noop\n0 I W 0 8 0 0\n".to_owned();
        for bio in 1..1000 {
            text += &format!("{bio} M W {} 8 0 0\n", bio * 8);
        }
        text += "1000 D W 0 8000 - -\n1001 C W 0 8000 - -\n";
        assert_eq!(followed(&text).1, "replay: 1 of 1 dispatches match (100.00 %)");
    }

    #[test]
    fn a_recording_may_hold_more_at_once_than_an_ordinary_device() {
        let mut text = "scheduler noop\n".to_owned();
        for bio in 0..1000 {
            text += &format!("{bio} I W {} 8 0 0\n", bio * 16);
        }
        for bio in 0..1000 {
            text += &format!("1000 D W {} 8 - -\n", bio * 16);
        }
        assert_eq!(followed(&text).1, "replay: 1000 of 1000 dispatches match (100.00 %)");
        assert_eq!(own_way(&text).0.len(), 1000);
    }

    #[test]
    fn a_setting_that_cannot_be_is_refused() {
        for (text, part) in [
            ("queue nr_requests 0", "nr_requests 0"),
            ("queue nr_requests 65536", "line 2: queue nr_requests 65536"),
            ("queue hard_queues 65", "hard_queues 65"),
            ("queue nomerges 3", "nomerges 3"),
            ("queue frob 1", "line 2: queue \"frob\" is none of nr_requests"),
            ("calls all\ncompat 1.0", "line 3: compat \"1.0\": noop has"),
            ("calls all\n0 N - - - - - hq=1", "line 3: hq 1: hard_queues is 1"),
        ] {
            let error = played(&format!("scheduler noop\n{text}"), &Options::default());
            let error = error.unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn nearly_everything_is_not_everything() {
        let outcome = Outcome {
            scheduler: "noop",
            tick_us: None,
            dispatches: 1_000_000,
            differences: Some(1),
            lines: Vec::new(),
        };
        let last = "replay: 999999 of 1000000 dispatches match (99.99 %)";
        assert_eq!(outcome.to_string(), last);
    }

    #[test]
    fn a_scheduler_or_tunable_that_is_not_there_is_refused_with_those_that_are() {
        let named = |name: &str| Options { scheduler: Some(name.to_owned()), ..Options::default() };
        for (text, options, parts) in [
            ("", Options::default(), ["no `scheduler` line", "which"]),
            ("\nscheduler frob", Options::default(), ["line 2: scheduler \"frob\"", "noop"]),
            ("scheduler noop", named("frob"), ["scheduler \"frob\"", "noop"]),
            ("scheduler none", Options::default(), ["line 1: scheduler \"none\"", "noop"]),
            ("scheduler noop\nset a 1", Options::default(), ["line 2: no tunable \"a\"", "none"]),
        ] {
            let error = played(text, &options).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{text:?}: {error}");
        }
        let set = Options { settings: vec![("a".into(), "1".into())], ..Options::default() };
        assert!(played("scheduler noop", &set).unwrap_err().starts_with("no tunable"));
        // Another scheduler need not have what was set for the recorded one.
        assert!(played("scheduler mq-deadline\nset frob 1", &named("noop")).is_ok());
    }
}

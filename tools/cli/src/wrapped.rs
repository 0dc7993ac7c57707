//! The help as it is shown: paragraphs fill the terminal, and an example that is longer than a line
//! goes on behind a backslash, so that it can be pasted.

use clap::Command;

/// The most columns of the help on a wide terminal.
const WIDEST: usize = 100;

/// Columns of an example: as most terminals have at least.
const EXAMPLE_COLUMNS: usize = 80;

const EXAMPLE: &str = "Example: ";

/// At the end of a line of an example that goes on.
const END: &str = " \\";

/// The command and those below it, with their words in paragraphs of one line each, which clap
/// breaks where the terminal ends.
pub(crate) fn wrapped(command: Command) -> Command {
    let text = |styled: &clap::builder::StyledStr| paragraphs(&styled.to_string());
    let about = command.get_about().map(text);
    let long = command.get_long_about().map(text);
    let mut command = command.max_term_width(WIDEST);
    if let Some(about) = about {
        // As clap has it, one line of a list is no sentence.
        command = command.about(about.strip_suffix('.').unwrap_or(&about).to_owned());
    }
    if let Some(long) = long {
        command = command.long_about(long);
    }
    command.mut_subcommands(wrapped)
}

/// The lines of each paragraph joined.
fn paragraphs(text: &str) -> String {
    let mut shown = String::new();
    let mut is_open = false;
    for line in text.lines() {
        let is_example = line.starts_with(EXAMPLE);
        if is_open && !is_example && !line.is_empty() {
            shown.push(' ');
        } else if !shown.is_empty() {
            shown.push('\n');
        }
        match is_example {
            true => shown.push_str(&folded(line)),
            false => shown.push_str(line),
        }
        is_open = !is_example && !line.is_empty();
    }
    shown
}

/// An example on as many lines as it takes, broken in front of flags.
fn folded(example: &str) -> String {
    let mut lines = vec![String::new()];
    for piece in pieces(example) {
        let line = lines.last_mut().expect("one at least");
        let length = line.chars().count() + 1 + piece.chars().count() + END.len();
        match (line.is_empty(), length > EXAMPLE_COLUMNS) {
            (true, _) => line.push_str(piece),
            (false, false) => line.extend([" ", piece]),
            (false, true) => lines.push(format!("    {piece}")),
        }
    }
    lines.join(&format!("{END}\n"))
}

/// The parts of a command: each begins with a flag, and what is in quotes is no flag of it.
fn pieces(command: &str) -> Vec<&str> {
    let mut starts = vec![0];
    let mut quoted = false;
    for (at, one) in command.char_indices() {
        match one {
            '\'' => quoted = !quoted,
            ' ' if !quoted && command[at + 1..].starts_with("--") => starts.push(at + 1),
            _ => {}
        }
    }
    let ends = starts.iter().skip(1).map(|start| start - 1).chain([command.len()]);
    starts.iter().zip(ends).map(|(start, end)| &command[*start..end]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_paragraph_are_joined_and_examples_stay_apart() {
        let text =
            "Does one thing\nin two lines.\n\nAnd more.\nOf it.\nExample: weir a\nExample: b";
        let joined =
            "Does one thing in two lines.\n\nAnd more. Of it.\nExample: weir a\nExample: b";
        assert_eq!(paragraphs(text), joined);
    }

    #[test]
    fn a_long_example_goes_on_behind_a_backslash_and_quotes_stay_whole() {
        let quoted = "--run 'fio --rw=read --bs=4k --size=1G --name=x'";
        let example = format!("Example: weir compare --a scheduler=none --device sda {quoted}");
        let expected =
            format!("Example: weir compare --a scheduler=none --device sda \\\n    {quoted}");
        assert_eq!(folded(&example), expected);
        let exact = format!("Example: {}", "x".repeat(71));
        assert_eq!(folded(&exact), exact);
    }

    /// Whether a word of the second line had room in the first.
    fn is_ragged(line: &str, next: &str, width: usize) -> bool {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let begins = next.trim_start();
        let is_text = ![line, next].iter().any(|line| line.trim().is_empty())
            && indent(line) == indent(next)
            && !begins.starts_with(['-', '['])
            && [line, next].iter().all(|line| !line.starts_with(EXAMPLE))
            && !line.ends_with(END);
        let word = begins.split(' ').next().unwrap_or_default();
        is_text && line.chars().count() + 1 + word.chars().count() <= width
    }

    /// What is wrong with the help of a command, in either form, and of those below it.
    fn faults(command: &Command, width: usize, found: &mut Vec<String>) {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let mut sized = command.clone().term_width(width);
        for help in [sized.render_long_help().to_string(), sized.render_help().to_string()] {
            let lines: Vec<&str> = help.lines().collect();
            let is_wide = |line: &&&str| line.chars().count() > width;
            let wide = lines.iter().filter(is_wide).map(|line| format!("{name}, {width}: {line}"));
            found.extend(wide);
            // The words about the command, and those behind each of its flags.
            let start = lines.iter().position(|line| line.starts_with("Usage:")).expect("a usage");
            for (at, pair) in lines.windows(2).enumerate() {
                let is_flags = pair.iter().all(|line| line.starts_with("          "));
                if (at + 1 < start || is_flags) && is_ragged(pair[0], pair[1], width) {
                    found.push(format!("{name}, {width}, ragged: {pair:#?}"));
                }
            }
        }
        command.get_subcommands().for_each(|below| faults(below, width, found));
    }

    #[test]
    fn every_help_fills_its_columns_and_none_is_wider() {
        let mut command = wrapped(crate::whole());
        command.build();
        let mut found = Vec::new();
        [80, 100].iter().for_each(|width| faults(&command, *width, &mut found));
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

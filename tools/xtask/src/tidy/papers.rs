//! The commands that documents must show, and the paths that no tracked file may name.

use super::Finding;
use super::source::Source;

/// The two commands a newcomer needs; README.md shows both.
const COMMANDS: [&str; 2] = ["make run", "make test"];
/// Top folders under which people and build machines keep their checkouts.
const HOMES: [&str; 6] = ["home", "root", "Users", "work", "workspace", "builds"];

/// Asks README.md for the two commands.
pub fn check_readme(sources: &[Source]) -> Vec<Finding> {
    let readme = sources.iter().find(|source| source.path == "README.md");
    let lacking = COMMANDS.iter().filter(|c| !readme.is_some_and(|file| file.text.contains(**c)));
    lacking
        .map(|command| {
            let what = format!("README.md does not show `{command}`");
            Finding { file: "README.md".to_owned(), line: 1, what }
        })
        .collect()
}

/// Looks for absolute paths that exist on one machine only.
pub fn check_machine_paths(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        if let Some(path) = HOMES.iter().find_map(|home| machine_path(line, home)) {
            let what = format!("path `{path}` of one machine, name it relative to the repository");
            findings.push(Finding { file: source.path.clone(), line: index + 1, what });
        }
    }
    findings
}

/// The first path of `line` that begins with the folder `home` at the root of a file system.
fn machine_path<'a>(line: &'a str, home: &str) -> Option<&'a str> {
    for separator in ["/", "\\"] {
        let needle = format!("{separator}{home}{separator}");
        for (at, _) in line.match_indices(&needle) {
            let before = line[..at].chars().next_back();
            let inside = |c: char| c.is_alphanumeric() || "_-.~})>*$".contains(c);
            let path = &line[at..];
            let end = path.find(|c: char| c.is_whitespace() || "\"'`,;:)".contains(c));
            let path = &path[..end.unwrap_or(path.len())];
            let below = path.strip_prefix(&needle).unwrap_or_default();
            if !before.is_some_and(inside) && below.starts_with(char::is_alphanumeric) {
                return Some(path);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readme(text: &str) -> usize {
        check_readme(&[Source::new("README.md", text)]).len()
    }

    #[test]
    fn a_readme_without_one_of_the_commands_is_found() {
        assert_eq!(readme("Run `make run`, then\n    make test\n"), 0);
        assert_eq!(readme("Run `make run`."), 1);
        assert_eq!(check_readme(&[]).len(), 2);
    }

    // Put together here, so that this file does not name such a path itself.
    fn path(home: &str) -> String {
        ["", home, "ann", "weir"].join("/")
    }

    #[test]
    fn a_path_of_one_machine_is_found_in_any_file() {
        for home in HOMES {
            let text = format!("one\nsee \"{}\" there", path(home));
            let found = check_machine_paths(&Source::new("docs/a.md", text));
            assert_eq!(found.len(), 1, "{home}");
            assert_eq!(found[0].line, 2);
            assert!(found[0].what.contains(&format!("`{}`", path(home))), "{found:?}");
        }
        let windows = ["C:", "Users", "ann"].join("\\");
        assert_eq!(check_machine_paths(&Source::new("a.md", windows)).len(), 1);
    }

    #[test]
    fn a_folder_of_that_name_further_down_or_with_nothing_below_is_no_machine_path() {
        for text in [format!("target{}", path("work")), format!("$HOME{}", path("root"))] {
            assert!(check_machine_paths(&Source::new("a.sh", text)).is_empty());
        }
        assert!(check_machine_paths(&Source::new("a.md", "\"/home/\" and /home/$USER")).is_empty());
    }
}

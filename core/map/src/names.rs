//! The names of disks in a target. One with a colon is a target itself: a disk that has no name but
//! what it is.

use weir_queue::Written;

/// The names in `A+B+...`. A plus in one is written `\+` and a backslash `\\`, as the text behind a
/// target's colon has them. A target that stands there again is another disk with a number behind.
pub(crate) fn names_of(written: &Written<'_>, text: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for name in split_at_pluses(text) {
        if name.is_empty() {
            let first = written.name;
            return Err(format!("target {:?} names no disk, as in {first}:sda+sdb", written.text));
        }
        if !names.contains(&name) {
            names.push(name);
            continue;
        }
        if !is_target(&name) {
            return Err(format!("target {:?} names disk {name} twice", written.text));
        }
        let numbered = (2..).map(|number| format!("{name}#{number}"));
        names.extend(numbered.into_iter().find(|numbered| !names.contains(numbered)));
    }
    Ok(names)
}

/// The target that stands in the place of a name, if one does: without the number that
/// [`names_of`] put behind it.
pub(crate) fn target_of<'a>(names: &'a [String], name: &str) -> Option<&'a str> {
    let at = names.iter().position(|known| known == name).filter(|_| is_target(name))?;
    let is_numbered = |first: &&String| {
        let number = name.strip_prefix(first.as_str()).and_then(|rest| rest.strip_prefix('#'));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    Some(names[..at].iter().find(is_numbered).unwrap_or(&names[at]))
}

/// No disk of a daemon has a colon in its name.
fn is_target(name: &str) -> bool {
    name.contains(':')
}

fn split_at_pluses(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let name = names.last_mut().expect("one name");
        match c {
            '\\' => name.extend(chars.next()),
            '+' => names.push(String::new()),
            c => name.push(c),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<String>, String> {
        names_of(&Written { name: "linear", rest: text, text }, text)
    }

    #[test]
    fn a_plus_parts_names_and_one_behind_a_backslash_is_part_of_a_name() {
        let known = names(r"sda+linear:a\+b+file:x\\+sdb").expect("names");
        assert_eq!(known, ["sda", "linear:a+b", r"file:x\", "sdb"]);
        for text in ["", "sda+", "+sda", "sda++sdb"] {
            assert!(names(text).expect_err(text).contains("names no disk"), "{text}");
        }
        assert!(names("sda+sdb+sda").expect_err("twice").contains("names disk sda twice"));
    }

    #[test]
    fn a_target_that_stands_there_again_is_another_disk_of_the_same_kind() {
        let known = names("null:1M+sda+null:1M+null:2M+null:1M").expect("names");
        assert_eq!(known, ["null:1M", "sda", "null:1M#2", "null:2M", "null:1M#3"]);
        let targets: Vec<_> = known.iter().map(|name| target_of(&known, name)).collect();
        let same = Some("null:1M");
        assert_eq!(targets, [same, None, same, Some("null:2M"), same]);
        // A path that ends like a number is a path.
        let known = names("file:/x#2+file:/y").expect("names");
        assert_eq!(target_of(&known, "file:/x#2"), Some("file:/x#2"));
        assert_eq!(target_of(&known, "file:/z"), None);
    }
}

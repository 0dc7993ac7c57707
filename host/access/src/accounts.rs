//! Users and groups: a number, or a name of this machine's own files.
//!
//! Names that only a directory service knows have to be given by number: to ask one takes the C
//! library's lookup, which loads foreign code into the daemon.

/// The user of this number or of this name in /etc/passwd.
pub(crate) fn user(text: &str) -> Result<u32, String> {
    number_of(text, "user", "/etc/passwd")
}

/// The group of this number or of this name in /etc/group.
pub(crate) fn group(text: &str) -> Result<u32, String> {
    number_of(text, "group", "/etc/group")
}

fn number_of(text: &str, what: &str, file: &str) -> Result<u32, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        // The largest number means "as it is" to chown(2).
        let number = text.parse().ok().filter(|number| *number != u32::MAX);
        return number.ok_or_else(|| format!("{text:?} is no {what} in 0..={}", u32::MAX - 1));
    }
    let lines = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let found = lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty() && *name == text);
        name.and_then(|_| fields.nth(1)?.parse().ok())
    });
    found.ok_or_else(|| format!("{text:?} is neither a number nor a {what} of {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_a_number_or_a_name_of_this_machine() {
        assert_eq!((user("root"), group("root")), (Ok(0), Ok(0)));
        assert_eq!((user("1000"), group("4294967294")), (Ok(1000), Ok(4_294_967_294)));
        for text in ["4294967295", "7x", "", "no such user", "root:x"] {
            assert!(user(text).is_err_and(|why| why.contains(&format!("{text:?}"))), "{text}");
        }
    }
}

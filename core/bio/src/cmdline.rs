//! The words of a kernel's command line, read as the kernel reads its own
//! (docs/behaviour/block-layer.md, section 13.4).
//!
//! Words stand between blanks that are in no double quotes; those behind the word `--` are for the
//! first program. In a name `-` and `_` are the same. Where a name comes twice, the last one counts
//! for readers that want one value.

/// A word of the line that the kernel looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// The word as it stands there.
    pub word: &'a str,
    /// The part before `=`, or all of it.
    pub name: &'a str,
    /// The part behind `=`; `None`: a flag, which has none.
    pub value: Option<&'a str>,
}

impl<'a> Parameter<'a> {
    /// Name and value of a word, without the quotes around the value or around the whole word.
    fn of(word: &'a str) -> Parameter<'a> {
        let inner = word.strip_prefix('"');
        let bare = inner.unwrap_or(word);
        let Some((name, value)) = bare.split_once('=') else {
            let closed = inner.and_then(|inner| inner.strip_suffix('"'));
            return Parameter { word, name: closed.unwrap_or(bare), value: None };
        };
        let opened = value.strip_prefix('"');
        let quoted = opened.or(inner.map(|_| value));
        let value = quoted.map_or(value, |value| value.strip_suffix('"').unwrap_or(value));
        Parameter { word, name, value: Some(value) }
    }

    /// Whether it has this name.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        let plain = |byte| if byte == b'-' { b'_' } else { byte };
        self.name.len() == name.len() && self.name.bytes().map(plain).eq(name.bytes().map(plain))
    }
}

/// The parameters of a line, in order.
pub fn parameters(line: &str) -> impl Iterator<Item = Parameter<'_>> {
    let mut quoted = false;
    let apart = line.split(move |c: char| {
        quoted ^= c == '"';
        c.is_whitespace() && !quoted
    });
    let words = apart.filter(|word| !word.is_empty()).map(Parameter::of);
    // Its quotes are taken off before it is looked at.
    words.take_while(|parameter| parameter.name != "--" || parameter.value.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_a_word_together_and_are_no_part_of_a_name_or_a_value() {
        let line = r#"quiet a="b c" "d=e f" "g" h=i"j k" l= -- a=m"#;
        let read: Vec<_> = parameters(line).map(|read| (read.name, read.value)).collect();
        let expected = [
            ("quiet", None),
            ("a", Some("b c")),
            ("d", Some("e f")),
            ("g", None),
            ("h", Some(r#"i"j k""#)),
            ("l", Some("")),
        ];
        assert_eq!(read, expected);
        assert_eq!(parameters(line).nth(1).map(|read| read.word), Some(r#"a="b c""#));
        assert_eq!(parameters("  ").next(), None);
        let names = |line| parameters(line).map(|read| read.name).collect::<Vec<_>>();
        assert_eq!(names(r#"a "--" b"#), ["a"]);
        assert_eq!(names("a --=1 --b c"), ["a", "--", "--b", "c"]);
    }

    #[test]
    fn a_name_is_the_same_with_either_dash() {
        let read = Parameter::of("scsi-mod.use_blk-mq=1");
        assert!(read.is("scsi_mod.use_blk_mq") && read.is("scsi-mod.use-blk-mq"));
        assert!(!read.is("scsi_mod") && !read.is("scsi.mod.use_blk_mq"));
    }
}

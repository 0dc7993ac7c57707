//! The boot parameters of the documents, with the meaning they had: `elevator=`,
//! `scsi_mod.use_blk_mq=` and `dm_mod.use_blk_mq=` (docs/behaviour/block-layer.md, section 13.4).
//!
//! Words are read by [`weir_bio::cmdline`]. The last of a name counts, and a flag without a value
//! is set. Words of other parts of a system are passed over and told.

use weir_bio::cmdline::{Parameter, parameters};

/// A kernel command line, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cmdline {
    /// `elevator=`: what single-queue disks that state no scheduler get.
    pub elevator: Option<String>,
    /// `scsi_mod.use_blk_mq=`: whether disks named `sd*` that state no queue mode are multi-queue.
    pub scsi_mod_use_blk_mq: Option<bool>,
    /// `dm_mod.use_blk_mq=`: the same for mapped disks.
    pub dm_mod_use_blk_mq: Option<bool>,
    /// Words that mean nothing here, in order.
    pub others: Vec<String>,
    /// The line as it was given.
    pub text: String,
}

pub(crate) const ELEVATOR: &str = "elevator";
pub(crate) const SCSI: &str = "scsi_mod.use_blk_mq";
pub(crate) const DM: &str = "dm_mod.use_blk_mq";

impl Cmdline {
    /// Parses a line. A parameter that is none of the three is no error: it stands in
    /// [`others`](Cmdline::others).
    ///
    /// # Errors
    /// The parameter, its value and what it takes.
    pub fn parse(line: &str) -> Result<Cmdline, String> {
        let mut cmdline = Cmdline { text: String::from(line.trim()), ..Cmdline::default() };
        for parameter in parameters(line) {
            let Parameter { word, value, .. } = parameter;
            if parameter.is(ELEVATOR) {
                match value.filter(|value| !value.is_empty()) {
                    Some(value) => cmdline.elevator = Some(String::from(value)),
                    None => return Err(format!("{word:?} names no scheduler: elevator=NAME")),
                }
            } else if parameter.is(SCSI) {
                cmdline.scsi_mod_use_blk_mq = Some(flag(SCSI, value)?);
            } else if parameter.is(DM) {
                cmdline.dm_mod_use_blk_mq = Some(flag(DM, value)?);
            } else {
                cmdline.others.push(String::from(word));
            }
        }
        Ok(cmdline)
    }

    /// This line with `later` behind it, which counts where both say something.
    #[must_use]
    pub fn then(mut self, later: &Cmdline) -> Cmdline {
        self.elevator = later.elevator.clone().or(self.elevator);
        self.scsi_mod_use_blk_mq = later.scsi_mod_use_blk_mq.or(self.scsi_mod_use_blk_mq);
        self.dm_mod_use_blk_mq = later.dm_mod_use_blk_mq.or(self.dm_mod_use_blk_mq);
        self.others.extend(later.others.iter().cloned());
        let apart = if self.text.is_empty() || later.text.is_empty() { "" } else { " " };
        self.text = format!("{}{apart}{}", self.text, later.text);
        self
    }
}

/// A flag of a module; without a value it is set.
fn flag(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("1" | "y" | "yes" | "on") => Ok(true),
        Some("0" | "n" | "no" | "off") => Ok(false),
        Some(_) => {
            let value = value.unwrap_or_default();
            Err(format!("{name}={value} is none of 0, 1, y, n, on, off"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_a_kernel_reads_it() {
        let line =
            "quiet scsi_mod.use_blk_mq=0 elevator=cfq scsi-mod.use-blk-mq dm_mod.use_blk_mq=N";
        let cmdline = Cmdline::parse(line).unwrap();
        assert_eq!(cmdline.elevator.as_deref(), Some("cfq"));
        assert_eq!(cmdline.scsi_mod_use_blk_mq, Some(true), "the last counts");
        assert_eq!(cmdline.dm_mod_use_blk_mq, Some(false));
        assert_eq!(cmdline.others, ["quiet"]);
        assert_eq!(Cmdline::parse("  ").unwrap(), Cmdline::default());
    }

    #[test]
    fn quotes_keep_a_word_together_and_two_dashes_end_the_line() {
        for (line, elevator, others) in [
            (r#"foo="a elevator=cfq b" quiet"#, None, &[r#"foo="a elevator=cfq b""#, "quiet"][..]),
            (r#"quiet elevator="noop""#, Some("noop"), &["quiet"]),
            (r#""elevator=noop" ro"#, Some("noop"), &["ro"]),
            ("quiet -- elevator=noop", None, &["quiet"]),
            ("elevator=noop -- quiet", Some("noop"), &[]),
            (r#"foo="-- elevator=cfq" elevator=noop"#, Some("noop"), &[r#"foo="-- elevator=cfq""#]),
            (r#"foo="elevator=cfq elevator=noop"#, None, &[r#"foo="elevator=cfq elevator=noop"#]),
            ("--x elevator=noop", Some("noop"), &["--x"]),
        ] {
            let cmdline = Cmdline::parse(line).unwrap();
            assert_eq!(cmdline.elevator.as_deref(), elevator, "{line}");
            assert_eq!(cmdline.others, others, "{line}");
        }
    }

    #[test]
    fn a_bad_value_is_refused_with_what_there_is() {
        for (line, told) in [
            ("elevator=\"\"", "names no scheduler"),
            ("scsi_mod.use_blk_mq=2", "scsi_mod.use_blk_mq=2 is none of 0, 1, y, n"),
            ("dm_mod.use_blk_mq=", "dm_mod.use_blk_mq= is none of 0, 1"),
            ("elevator=", "names no scheduler"),
            ("elevator", "names no scheduler"),
        ] {
            let error = Cmdline::parse(line).unwrap_err();
            assert!(error.contains(told), "{line}: {error}");
        }
    }

    #[test]
    fn a_disks_own_line_counts_before_the_one_for_all() {
        let all = Cmdline::parse("elevator=cfq scsi_mod.use_blk_mq=0").unwrap();
        let own = Cmdline::parse("elevator=noop").unwrap();
        let both = all.then(&own);
        assert_eq!(both.elevator.as_deref(), Some("noop"));
        assert_eq!(both.scsi_mod_use_blk_mq, Some(false));
    }
}

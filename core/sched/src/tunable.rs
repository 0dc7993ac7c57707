//! A scheduler's knobs: one table of them, which the tree, `weir schedulers`, the documentation,
//! errors and completions are made from.

use std::fmt;

/// Why a tunable was not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunableError {
    /// No such name; the text lists those there are.
    Unknown(String),
    /// The text is no number this tunable takes (Linux: EINVAL); the text names value and bound.
    Invalid(String),
    /// The number does not fit its type (Linux: ERANGE).
    OutOfRange(String),
}

impl fmt::Display for TunableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (TunableError::Unknown(text)
        | TunableError::Invalid(text)
        | TunableError::OutOfRange(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for TunableError {}

/// The unit of a tunable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 0 or 1.
    Flag,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Requests.
    Requests,
    /// Sectors of 512 bytes.
    Sectors,
    /// KiB.
    Kib,
    /// A number that multiplies.
    Factor,
    /// Choices of a direction.
    Selections,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Flag => "0 or 1",
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "us",
            Unit::Nanoseconds => "ns",
            Unit::Requests => "requests",
            Unit::Sectors => "sectors",
            Unit::Kib => "KiB",
            Unit::Factor => "factor",
            Unit::Selections => "selections",
        })
    }
}

/// How the text of a number is read (docs/behaviour/block-layer.md, section 15.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// 32 bits with a sign, the base by its prefix: `0x` hexadecimal, `0` octal.
    Signed32,
    /// 64 bits without a sign, decimal.
    Unsigned64,
}

impl Number {
    /// The least and the most it can hold.
    #[must_use]
    pub const fn range(self) -> (i128, i128) {
        match self {
            Number::Signed32 => (i32::MIN as i128, i32::MAX as i128),
            Number::Unsigned64 => (0, u64::MAX as i128),
        }
    }
}

/// From when on a new value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// From the next event on.
    AtOnce,
    /// For requests that are inserted later.
    LaterRequests,
    /// From the next time on that a queue is given the device.
    NextSlice,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            When::AtOnce => "at once",
            When::LaterRequests => "for later requests",
            When::NextSlice => "from the next slice on",
        })
    }
}

/// One tunable, as it is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// Its name in `iosched/`.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its value at attach on a rotational device; [`Tunables::value`] knows the real one.
    pub default: i128,
    /// The least it can be.
    pub least: i128,
    /// The most it can be.
    pub most: i128,
    /// How its text is read.
    pub number: Number,
    /// From when on a new value holds.
    pub when: When,
    /// Its effect, in one sentence.
    pub meaning: &'static str,
}

impl Tunable {
    /// One that is read as 64 bits without a sign and clamped to its range, as those of `bfq` and
    /// `cfq` are.
    pub(crate) const fn clamped(
        name: &'static str,
        unit: Unit,
        default: i128,
        (least, most): (i128, i128),
        meaning: &'static str,
    ) -> Tunable {
        let (number, when) = (Number::Unsigned64, When::AtOnce);
        Tunable { name, unit, default, least, most, number, when, meaning }
    }

    /// The same, but a new value holds from then on.
    pub(crate) const fn holds(self, when: When) -> Tunable {
        Tunable { when, ..self }
    }

    /// The number that `text` means in the tree: clamped where Linux clamps.
    ///
    /// # Errors
    /// [`TunableError::Invalid`] for what is no number;
    /// [`TunableError::OutOfRange`] for a number beyond the type.
    pub fn parse(&self, text: &str) -> Result<i128, TunableError> {
        let value = self.number_of(text)?;
        let (type_least, type_most) = self.number.range();
        if !(type_least..=type_most).contains(&value) {
            return Err(TunableError::OutOfRange(self.outside(text)));
        }
        Ok(value.clamp(self.least, self.most))
    }

    /// The number that `text` means in a configuration: nothing is clamped.
    ///
    /// # Errors
    /// As [`parse`](Tunable::parse), and [`TunableError::OutOfRange`] outside the range.
    pub fn parse_strict(&self, text: &str) -> Result<i128, TunableError> {
        let value = self.number_of(text)?;
        if !(self.least..=self.most).contains(&value) {
            return Err(TunableError::OutOfRange(self.outside(text)));
        }
        Ok(value)
    }

    fn outside(&self, text: &str) -> String {
        let Tunable { name, least, most, .. } = self;
        format!("{name} {:?} is outside {least}..={most}", text.trim_end())
    }

    fn number_of(&self, text: &str) -> Result<i128, TunableError> {
        let digits = text.strip_suffix('\n').unwrap_or(text);
        let signed = self.number == Number::Signed32;
        let (negative, digits) = match (digits.as_bytes().first(), signed) {
            (Some(b'-'), true) => (true, &digits[1..]),
            (Some(b'+'), _) => (false, &digits[1..]),
            _ => (false, digits),
        };
        let lower = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        let (base, digits) = match lower {
            Some(hex) if signed => (16, hex),
            _ if signed && digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
            _ => (10, digits),
        };
        if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
            let Tunable { name, unit, least, most, .. } = self;
            // The text may be a megabyte long.
            let shown: String = text.chars().take(40).collect();
            return Err(TunableError::Invalid(format!(
                "{name} {shown:?} is not a number ({unit}, {least}..={most})"
            )));
        }
        // Longer than any type's numbers: what it is exactly no longer matters.
        let value = i128::from_str_radix(digits, base).unwrap_or(i128::MAX);
        Ok(if negative { -value } else { value })
    }
}

/// A row of a scheduler's own table: a tunable of an `S`, and where in it the value is.
#[derive(Debug)]
pub struct Row<S> {
    /// What the tree, the documentation and the errors say of it.
    pub tunable: Tunable,
    /// The value, in its own unit.
    pub get: fn(&S) -> i128,
    /// Takes a value within the range.
    pub set: fn(&mut S, i128),
}

impl<S> Row<S> {
    /// A tunable with its two ways to the value.
    pub(crate) const fn new(
        tunable: Tunable,
        get: fn(&S) -> i128,
        set: fn(&mut S, i128),
    ) -> Row<S> {
        Row { tunable, get, set }
    }
}

/// The tunables of a table of rows.
pub const fn tunables<S, const N: usize>(rows: &[Row<S>; N]) -> [Tunable; N] {
    let mut tunables = [NOTHING; N];
    let mut at = 0;
    while at < N {
        tunables[at] = rows[at].tunable;
        at += 1;
    }
    tunables
}

/// Stands in a table until its row is copied there.
const NOTHING: Tunable = Tunable {
    name: "",
    unit: Unit::Flag,
    default: 0,
    least: 0,
    most: 0,
    number: Number::Signed32,
    when: When::AtOnce,
    meaning: "",
};

/// What has tunables declares them as rows; that they can be read and set by name follows.
pub trait Tuned: Sized + 'static {
    /// The rows, in the order a directory lists them.
    const ROWS: &'static [Row<Self>];
    /// The [`tunables`] of the rows.
    const TABLE: &'static [Tunable];
}

/// Reading and setting tunables by their sysfs names.
pub trait Tunables {
    /// All of them, in the order a directory lists them.
    fn table(&self) -> &'static [Tunable];

    /// The value of one in the table, in its own unit.
    fn value(&self, name: &str) -> i128;

    /// Sets one in the table to a value within its range.
    fn put(&mut self, name: &str, value: i128);
}

impl<S: Tuned> Tunables for S {
    fn table(&self) -> &'static [Tunable] {
        S::TABLE
    }

    fn value(&self, name: &str) -> i128 {
        (row_of::<S>(name).get)(self)
    }

    fn put(&mut self, name: &str, value: i128) {
        (row_of::<S>(name).set)(self, value);
    }
}

fn row_of<S: Tuned>(name: &str) -> &'static Row<S> {
    let row = S::ROWS.iter().find(|row| row.tunable.name == name);
    row.unwrap_or_else(|| panic!("{name} is not in the table"))
}

/// The tunables of what has none.
impl Tuned for [(); 0] {
    const ROWS: &'static [Row<Self>] = &[];
    const TABLE: &'static [Tunable] = &[];
}

/// No tunables.
pub(crate) fn none() -> &'static mut dyn Tunables {
    let nothing: &'static mut [(); 0] = &mut [];
    nothing
}

impl dyn Tunables + '_ {
    /// The row of this name.
    ///
    /// # Errors
    /// [`TunableError::Unknown`], with the names there are.
    pub fn row(&self, name: &str) -> Result<&'static Tunable, TunableError> {
        row(self.table(), name)
    }

    /// The value as sysfs shows it.
    ///
    /// # Errors
    /// [`TunableError::Unknown`].
    pub fn show(&self, name: &str) -> Result<String, TunableError> {
        self.row(name).map(|row| self.value(row.name).to_string())
    }

    /// Sets it from text as a write to the tree does.
    ///
    /// # Errors
    /// See [`Tunable::parse`]; nothing changes then.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), TunableError> {
        let row = self.row(name)?;
        self.put(row.name, row.parse(text)?);
        Ok(())
    }

    /// Sets it from text as a configuration does.
    ///
    /// # Errors
    /// See [`Tunable::parse_strict`], and [`TunableError::OutOfRange`] for what the tree would take
    /// and Linux does not keep whole. Nothing changes then.
    pub fn set_strict(&mut self, name: &str, text: &str) -> Result<(), TunableError> {
        let row = self.row(name)?;
        let (value, before) = (row.parse_strict(text)?, self.value(row.name));
        self.put(row.name, value);
        let kept = self.value(row.name);
        if kept != value {
            self.put(row.name, before);
            let what = format!("{} {value} is too large: {kept} would be left of it", row.name);
            return Err(TunableError::OutOfRange(what));
        }
        Ok(())
    }
}

/// The row called `name`.
///
/// # Errors
/// [`TunableError::Unknown`], with the names there are.
pub fn row(table: &'static [Tunable], name: &str) -> Result<&'static Tunable, TunableError> {
    table.iter().find(|row| row.name == name).ok_or_else(|| {
        let names: Vec<_> = table.iter().map(|row| row.name).collect();
        TunableError::Unknown(match names.is_empty() {
            true => format!("no tunable {name:?}: this scheduler has none"),
            false => format!("no tunable {name:?}; there are {}", names.join(", ")),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: Tunable = Tunable {
        name: "fifo_batch",
        unit: Unit::Requests,
        default: 16,
        least: 0,
        most: i32::MAX as i128,
        number: Number::Signed32,
        when: When::AtOnce,
        meaning: "Requests in a batch.",
    };
    const LATENCY: Tunable = Tunable {
        name: "read_lat_nsec",
        unit: Unit::Nanoseconds,
        default: 2_000_000,
        most: u64::MAX as i128,
        number: Number::Unsigned64,
        ..BATCH
    };

    #[test]
    fn a_signed_number_has_its_base_by_prefix_and_is_clamped() {
        let cases =
            [("8", 8), ("0x10\n", 16), ("010", 8), ("0", 0), ("-1", 0), ("+3", 3), ("-0x2", 0)];
        for (text, value) in cases {
            assert_eq!(BATCH.parse(text), Ok(value), "{text:?}");
        }
        for text in ["", "\n", "a", "1 ", " 1", "1\n\n", "08", "0x", "--1", "1.5"] {
            let error = BATCH.parse(text);
            assert!(matches!(error, Err(TunableError::Invalid(_))), "{text:?}: {error:?}");
        }
        for text in ["2147483648", "-2147483649", &"9".repeat(1 << 20)] {
            assert!(matches!(BATCH.parse(text), Err(TunableError::OutOfRange(_))));
        }
    }

    #[test]
    fn an_unsigned_number_is_decimal_and_has_no_sign() {
        assert_eq!(LATENCY.parse("18446744073709551615"), Ok(u64::MAX as i128));
        assert_eq!(LATENCY.parse("010"), Ok(10));
        assert!(matches!(LATENCY.parse("-1"), Err(TunableError::Invalid(_))));
        assert!(matches!(LATENCY.parse("0x10"), Err(TunableError::Invalid(_))));
        let beyond = LATENCY.parse("18446744073709551616");
        assert!(matches!(beyond, Err(TunableError::OutOfRange(_))), "{beyond:?}");
    }

    #[test]
    fn a_configuration_refuses_what_the_tree_clamps() {
        assert_eq!(BATCH.parse("-1"), Ok(0));
        let error = BATCH.parse_strict("-1").unwrap_err().to_string();
        assert!(error.contains("fifo_batch") && error.contains("0..=2147483647"), "{error}");
    }

    #[test]
    fn an_unknown_name_lists_those_there_are() {
        let error = row(&[BATCH, LATENCY], "fifo").unwrap_err().to_string();
        assert!(error.contains("fifo_batch, read_lat_nsec"), "{error}");
    }
}

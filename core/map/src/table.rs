//! Tables in dm's words: a line for each target, `START LENGTH TYPE ARGUMENTS`, in sectors, with
//! the names of disks in place of device numbers (docs/behaviour/mapped.md, section 4).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::SplitWhitespace;

use weir_bio::{Limits, SECTOR};

use crate::layout::{Area, Layout, Place, Shape};

/// A line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// First sector of the mapped disk.
    pub start: u64,
    /// Its length in sectors.
    pub sectors: u64,
    /// Its type, as in `striped`.
    pub kind: String,
    /// The words behind that, one space between two.
    pub arguments: String,
}

/// Areas whose legs have names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAreas {
    /// The areas; their legs are numbers of names.
    pub areas: Vec<Area>,
    /// The names of the legs, each once, in the order in which they come first.
    pub names: Vec<String>,
}

/// Most stripes of an area.
pub(crate) const STRIPES_MAX: u64 = 1024;

/// Most lines of a table.
const ROWS_MAX: usize = 4096;

/// Sectors of the longest disk: its last byte is the largest offset of a file.
pub(crate) const SECTORS_MAX: u64 = i64::MAX as u64 / SECTOR;

/// Reads the lines of a table; a line ends with a new line or a semicolon.
///
/// # Errors
/// The line, counted from 1, and the value that is wrong.
pub fn parse_rows(text: &str) -> Result<Vec<Row>, String> {
    let lines = text.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty());
    let (mut rows, mut end): (Vec<Row>, u64) = (Vec::new(), 0);
    for (index, line) in lines.enumerate() {
        let named = |why: String| format!("line {} of the table: {why}", index + 1);
        let row = parse_row(line).map_err(named)?;
        if row.start != end {
            return Err(named(format!("it begins at sector {}, not at {end}", row.start)));
        }
        end = row.start.saturating_add(row.sectors);
        if end > SECTORS_MAX {
            return Err(named(format!("it ends beyond {SECTORS_MAX} sectors")));
        }
        rows.push(row);
    }
    match rows.len() {
        0 => Err(String::from("a table without a line, as in \"0 2048 linear sda 0\"")),
        1..=ROWS_MAX => Ok(rows),
        many => Err(format!("a table of {many} lines, at most {ROWS_MAX}")),
    }
}

fn parse_row(line: &str) -> Result<Row, String> {
    let mut words = line.split_whitespace();
    let start = number("start", words.next(), 0, u64::MAX)?;
    let sectors = number("length", words.next(), 1, u64::MAX)?;
    let kind = words.next().ok_or("no type, as in \"0 2048 linear sda 0\"")?;
    let arguments = words.collect::<Vec<_>>().join(" ");
    Ok(Row { start, sectors, kind: String::from(kind), arguments })
}

pub(crate) fn number(name: &str, word: Option<&str>, least: u64, most: u64) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("{name} is missing"))?;
    let value: Option<u64> = word.parse().ok();
    value
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| format!("{name}={word} is outside {least}..={most}"))
}

/// The types of line that are areas.
const AREA_KINDS: [&str; 4] = ["linear", "striped", "zero", "error"];

/// Reads a table of linear, striped, zero and error areas; `others` are the types of line that a
/// message names beside them.
///
/// # Errors
/// The line and the value that is wrong.
pub fn parse_areas(rows: &[Row], others: &[&str]) -> Result<NamedAreas, String> {
    let (mut legs, mut areas) = (LegNames::default(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        let shape = legs.parse_shape(row, others);
        let shape = shape.map_err(|why| format!("line {} of the table: {why}", index + 1))?;
        areas.push(Area { start: row.start, sectors: row.sectors, shape });
    }
    let named = NamedAreas { areas, names: legs.names };
    named.refuse_overlaps()?;
    Ok(named)
}

/// The legs that the lines read so far have named.
#[derive(Default)]
struct LegNames {
    names: Vec<String>,
    /// Their numbers: 4096 lines may name four million.
    numbers: BTreeMap<String, usize>,
}

impl LegNames {
    fn parse_shape(&mut self, row: &Row, others: &[&str]) -> Result<Shape, String> {
        let mut words = row.arguments.split_whitespace();
        let shape = match row.kind.as_str() {
            "linear" => Shape::Linear(self.parse_place(&mut words)?),
            "striped" => self.parse_stripes(row, &mut words)?,
            "zero" => Shape::Zero,
            "error" => Shape::Error,
            other => {
                let known = [&AREA_KINDS, others].concat().join(", ");
                return Err(format!("unknown type {other:?}; known are {known}"));
            }
        };
        match words.next() {
            None => Ok(shape),
            Some(word) => Err(format!("{word:?} is one argument too many")),
        }
    }

    fn parse_stripes(
        &mut self,
        row: &Row,
        words: &mut SplitWhitespace<'_>,
    ) -> Result<Shape, String> {
        let count = number("#stripes", words.next(), 1, STRIPES_MAX)?;
        let chunk = number("chunk_sectors", words.next(), 1, u32::MAX.into())?;
        if !row.sectors.is_multiple_of(count) {
            return Err(format!(
                "Target length not divisible by number of stripes: {} sectors, {count} stripes",
                row.sectors
            ));
        }
        if !(row.sectors / count).is_multiple_of(chunk) {
            return Err(format!(
                "Target length not divisible by chunk size: {} sectors of a stripe, {chunk} of a \
                 chunk",
                row.sectors / count
            ));
        }
        let stripes = (0..count).map(|_| self.parse_place(words)).collect::<Result<_, _>>()?;
        Ok(Shape::Striped { chunk: chunk as u32, stripes })
    }

    fn parse_place(&mut self, words: &mut SplitWhitespace<'_>) -> Result<Place, String> {
        let name = words.next().ok_or("a device is missing")?;
        let offset = number("offset", words.next(), 0, u64::MAX)?;
        let leg = match self.numbers.get(name) {
            Some(leg) => *leg,
            None => {
                self.numbers.insert(String::from(name), self.names.len());
                self.names.push(String::from(name));
                self.names.len() - 1
            }
        };
        Ok(Place { leg, offset })
    }
}

impl NamedAreas {
    /// A sector of a leg in two areas would be two sectors of the disk.
    fn refuse_overlaps(&self) -> Result<(), String> {
        let mut ranges: Vec<(usize, u64, u64)> = self.areas.iter().flat_map(ranges_of).collect();
        ranges.sort_unstable();
        let overlap =
            ranges.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].2 > pair[1].1);
        match overlap {
            None => Ok(()),
            Some(pair) => {
                Err(format!("sector {} of {} is used twice", pair[1].1, self.names[pair[0].0]))
            }
        }
    }
}

/// The ranges of legs that an area takes: leg, first sector, and the one behind the last.
fn ranges_of(area: &Area) -> Vec<(usize, u64, u64)> {
    let places = area.shape.places();
    let sectors = area.sectors / places.len().max(1) as u64;
    let range = |place: &Place| (place.leg, place.offset, place.offset.saturating_add(sectors));
    places.iter().map(range).collect()
}

/// Sectors of the largest logical block.
pub(crate) fn block_of(limits: &[Limits]) -> u64 {
    limits.iter().map(|limits| u64::from(limits.block_sectors())).max().unwrap_or(1)
}

/// Sectors of each leg that are whole blocks of all legs, and not beyond its true end.
pub(crate) fn usable(limits: &[Limits]) -> Vec<u64> {
    let block = block_of(limits);
    let whole = |limits: &Limits| {
        let sectors = whole_sectors(limits);
        sectors - sectors % block
    };
    limits.iter().map(whole).collect()
}

/// Sectors of whole blocks, all of which keep what is written: a last block that the true end of
/// the disk cuts does not.
pub(crate) fn whole_sectors(limits: &Limits) -> u64 {
    let cut = if limits.padding > 0 { u64::from(limits.block_sectors()) } else { 0 };
    limits.capacity.saturating_sub(cut)
}

/// Holds areas against their legs: inside, and at multiples of the logical block.
pub(crate) fn check_areas(areas: &[Area], limits: &[Limits], names: &[&str]) -> Result<(), String> {
    let block = block_of(limits);
    for area in areas {
        let chunk = match &area.shape {
            Shape::Linear(_) | Shape::Zero | Shape::Error => block,
            Shape::Striped { chunk, .. } => u64::from(*chunk),
        };
        for (name, value) in [("start", area.start), ("length", area.sectors), ("chunk", chunk)] {
            if !value.is_multiple_of(block) {
                return Err(format!("{name}={value} is no multiple of a block of {block} sectors"));
            }
        }
        for (leg, first, end) in ranges_of(area) {
            let (limits, name) = (&limits[leg], names[leg]);
            let whole = whole_sectors(limits);
            if end > whole {
                return Err(format!("sector {} of {name} is beyond its {whole}", end - 1));
            }
            let own = u64::from(limits.block_sectors());
            if !first.is_multiple_of(own) {
                return Err(format!(
                    "offset={first} on {name} is no multiple of its block of {own}"
                ));
            }
        }
    }
    Ok(())
}

/// The table of a layout.
#[must_use]
pub fn table_text(layout: &Layout, names: &[String]) -> String {
    let place = |place: &Place| format!("{} {}", names[place.leg], place.offset);
    lines(layout, |shape| match shape {
        Shape::Linear(one) => format!("linear {}", place(one)),
        Shape::Striped { chunk, stripes } => {
            let places: Vec<String> = stripes.iter().map(place).collect();
            format!("striped {} {chunk} {}", stripes.len(), places.join(" "))
        }
        Shape::Zero => String::from("zero"),
        Shape::Error => String::from("error"),
    })
}

/// Its status; `has_failed` says whether a leg has answered with an error.
#[must_use]
pub fn status_text(
    layout: &Layout,
    names: &[String],
    has_failed: impl Fn(usize) -> bool,
) -> String {
    lines(layout, |shape| match shape {
        Shape::Linear(_) => String::from("linear"),
        Shape::Zero => String::from("zero"),
        Shape::Error => String::from("error"),
        Shape::Striped { stripes, .. } => {
            let devices: Vec<&str> =
                stripes.iter().map(|place| names[place.leg].as_str()).collect();
            let state = |place: &Place| if has_failed(place.leg) { 'D' } else { 'A' };
            let states: String = stripes.iter().map(state).collect();
            format!("striped {} {} 1 {states}", stripes.len(), devices.join(" "))
        }
    })
}

fn lines(layout: &Layout, words: impl Fn(&Shape) -> String) -> String {
    let mut text = String::new();
    for area in layout.areas() {
        let _ = writeln!(text, "{} {} {}", area.start, area.sectors, words(&area.shape));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    fn read(text: &str) -> Result<NamedAreas, String> {
        parse_areas(&parse_rows(text)?, &[])
    }

    #[test]
    fn a_table_that_was_read_is_written_as_it_was() {
        for seed in 0..200 {
            let mut prng = Prng::new(seed);
            let (mut text, mut start, mut offset) = (String::new(), 0, 0);
            for row in 0..1 + prng.below(4) {
                let (count, chunk) = (1 + prng.below(9), 1 + prng.below(300));
                let rows = 1 + prng.below(50);
                let sectors = if row % 2 == 0 { count * chunk * rows } else { chunk };
                let mut place = |leg: u64| format!("disk{leg} {}", offset + leg);
                let words = match row % 2 {
                    0 => {
                        let places: Vec<String> = (0..count).map(&mut place).collect();
                        format!("striped {count} {chunk} {}", places.join(" "))
                    }
                    _ => format!("linear {}", place(prng.below(9))),
                };
                let _ = writeln!(text, "{start} {sectors} {words}");
                (start, offset) = (start + sectors, offset + (1 << 20));
            }
            let named = read(&text).unwrap_or_else(|why| panic!("seed {seed}: {why}\n{text}"));
            assert_eq!(table_text(&Layout::new(named.areas), &named.names), text, "seed {seed}");
        }
    }

    #[test]
    fn a_status_line_names_the_stripes_and_those_that_have_failed() {
        let named = read("0 64 striped 2 16 sda 0 sdb 8; 64 10 linear sda 100").unwrap();
        let status = status_text(&Layout::new(named.areas), &named.names, |leg| leg == 1);
        assert_eq!(status, "0 64 striped 2 sda sdb 1 AD\n64 10 linear\n");
    }

    #[test]
    fn a_table_that_is_wrong_is_refused_with_line_name_value_and_bound() {
        for (text, part) in [
            ("", "a table without a line"),
            ("0 8 linear sda 0; 9 8 linear sdb 0", "line 2 of the table: it begins at sector 9"),
            ("1 8 linear sda 0", "it begins at sector 1, not at 0"),
            ("0 0 linear sda 0", "length=0 is outside 1"),
            ("0 -1 linear sda 0", "length=-1 is outside"),
            ("0 8", "no type"),
            ("0 8 mirror sda 0", "unknown type \"mirror\""),
            ("0 8 linear sda", "offset is missing"),
            ("0 8 linear", "a device is missing"),
            ("0 8 linear sda 0 1", "\"1\" is one argument too many"),
            ("0 8 striped 0 4", "#stripes=0 is outside 1..=1024"),
            ("0 8 striped 2 0 sda 0 sdb 0", "chunk_sectors=0 is outside"),
            ("0 9 striped 2 4 sda 0 sdb 0", "Target length not divisible by number of stripes"),
            ("0 12 striped 2 4 sda 0 sdb 0", "Target length not divisible by chunk size"),
            ("0 16 striped 2 4 sda 0 sda 4", "sector 4 of sda is used twice"),
            ("0 8 linear sda 0; 8 8 linear sda 7", "sector 7 of sda is used twice"),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(part), "{text:?}: {why}");
        }
        assert!(read("0 8 linear sda 0; 8 8 linear sda 8").is_ok(), "neighbours");
    }
}

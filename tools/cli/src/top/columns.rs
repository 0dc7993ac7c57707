//! Tables as wide as their screen: columns that have no room are left out, none is cut.

use ratatui::layout::Constraint;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) head: &'static str,
    /// Numbers stand at the right, and so does their heading.
    pub(super) is_number: bool,
    /// The higher, the earlier it is left out; 0 always stays.
    pub(super) rank: u8,
}

impl Column {
    pub(super) const fn text(head: &'static str, rank: u8) -> Column {
        Column { head, is_number: false, rank }
    }

    pub(super) const fn number(head: &'static str, rank: u8) -> Column {
        Column { head, is_number: true, rank }
    }
}

/// Width of what holds these cells whole, characters.
fn widths(columns: &[Column], rows: &[Vec<String>]) -> Vec<usize> {
    let cells = |at: usize| rows.iter().filter_map(move |row| row.get(at));
    let width = |(at, column): (usize, &Column)| {
        let longest = cells(at).map(|cell| cell.chars().count()).max().unwrap_or(0);
        longest.max(column.head.chars().count())
    };
    columns.iter().enumerate().map(width).collect()
}

/// The columns that stand side by side in so many characters, one apart.
fn kept(columns: &[Column], widths: &[usize], room: usize) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let width = |kept: &[usize]| kept.iter().map(|at| widths[*at] + 1).sum::<usize>();
    while width(&kept) > room + 1 {
        let last = kept.iter().copied().max_by_key(|at| columns[*at].rank);
        match last.filter(|at| columns[*at].rank > 0) {
            Some(last) => kept.retain(|at| *at != last),
            None => break,
        }
    }
    kept
}

/// A table of those columns that have room; the row `marked` stands out, and `tint` is the style of
/// the cell in a row and a column.
pub(super) fn table(
    columns: &[Column],
    rows: &[Vec<String>],
    room: u16,
    marked: Option<usize>,
    tint: &dyn Fn(usize, usize) -> Style,
) -> Table<'static> {
    let widths = widths(columns, rows);
    let kept = kept(columns, &widths, usize::from(room));
    let cell = |at: usize, text: &str| {
        let line = Line::from(String::from(text));
        Cell::from(if columns[at].is_number { line.right_aligned() } else { line })
    };
    let body = rows.iter().enumerate().map(|(place, row)| {
        let style = match Some(place) == marked {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        let cells = kept.iter().map(|at| cell(*at, &row[*at]).style(tint(place, *at)));
        Row::new(cells).style(style)
    });
    let head = Row::new(kept.iter().map(|at| cell(*at, columns[*at].head)));
    let head = head.style(Style::new().add_modifier(Modifier::BOLD));
    let fixed = kept.iter().map(|at| Constraint::Length(widths[*at] as u16));
    Table::new(body, fixed).header(head).column_spacing(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_left_out_by_rank_and_the_first_stays_whatever_the_room() {
        let columns = [Column::text("NAME", 0), Column::text("MODE", 2), Column::number("kB/s", 1)];
        let rows = [vec![String::from("scratch"), String::from("mq"), String::from("123456")]];
        let widths = widths(&columns, &rows);
        assert_eq!(widths, [7, 4, 6]);
        assert_eq!(kept(&columns, &widths, 19), [0, 1, 2]);
        assert_eq!(kept(&columns, &widths, 18), [0, 2]);
        assert_eq!(kept(&columns, &widths, 13), [0]);
        assert_eq!(kept(&columns, &widths, 0), [0]);
    }
}

//! Markdown as the tables of weir make it, into a page of the manual: headings, paragraphs, lists,
//! tables and examples. It is no reader of Markdown at large.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// The page without the paragraph that says how the Markdown file is made.
pub(super) fn without_notice(text: &str) -> String {
    let kept = text.split("\n\n").filter(|part| !part.starts_with("`cargo xtask"));
    kept.collect::<Vec<_>>().join("\n\n")
}

/// Adds a text to the page.
pub(super) fn add(page: &mut Roff, text: &str) {
    let mut lines = text.lines().peekable();
    // The heads of the columns of a table.
    let mut columns: Vec<String> = Vec::new();
    let mut is_new = true;
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with("# ") || line.starts_with("|---") {
            (columns, is_new) = match line.starts_with('|') {
                true => (columns, is_new),
                false => (Vec::new(), true),
            };
        } else if let Some(head) = line.strip_prefix("## ") {
            // A word of the file or of a target stays as it is written.
            let is_sentence = head.starts_with(|c: char| c.is_ascii_uppercase());
            let head = if is_sentence { head.to_uppercase() } else { head.to_owned() };
            page.control("SH", [head.as_str()]);
        } else if line.starts_with("```") {
            page.control("PP", []).control("EX", []);
            for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
                page.text([roman(line)]);
            }
            page.control("EE", []);
        } else if let Some(item) = line.strip_prefix("- ") {
            page.control("IP", ["-", "2"]).text(inlines(item));
        } else if line.starts_with('|') {
            let cells = cells(line);
            match columns.is_empty() {
                true => columns = cells,
                false => add_row(page, &columns, &cells),
            }
        } else {
            if is_new {
                page.control("PP", []);
            }
            is_new = false;
            page.text(inlines(line));
        }
    }
}

/// A row: its first two cells over what the others say.
fn add_row(page: &mut Roff, columns: &[String], cells: &[String]) {
    let cell = |name: &str| {
        let at = columns.iter().position(|column| column == name);
        at.and_then(|at| cells.get(at)).map_or("", String::as_str)
    };
    let name = cells.first().map(|cell| cell.replace('`', "")).unwrap_or_default();
    page.control("TP", ["8"]);
    page.text([bold(name), roman(" "), italic(cell("takes").replace('`', ""))]);
    let mut said = cell("meaning").to_owned();
    for (what, of) in [("Default", cell("default")), ("Flag", cell("flag"))] {
        if !of.is_empty() {
            said.push_str(&format!(" {what}: {of}."));
        }
    }
    page.text(inlines(said.trim()));
}

fn cells(line: &str) -> Vec<String> {
    // A bar within a cell is written with a backslash.
    let line = line.trim_matches('|').replace("\\|", "\u{0}");
    line.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

/// Code is bold; of a link its words are left.
fn inlines(text: &str) -> Vec<Inline> {
    let mut made = Vec::new();
    for (at, part) in text.split('`').enumerate() {
        match at % 2 {
            _ if part.is_empty() => {}
            0 => made.push(roman(without_links(part))),
            _ => made.push(bold(part)),
        }
    }
    made
}

fn without_links(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once('[') {
        left.push_str(before);
        let link = from.split_once("](").and_then(|(words, behind)| {
            let (_, behind) = behind.split_once(')')?;
            Some((words, behind))
        });
        match link {
            Some((words, behind)) => {
                left.push_str(words);
                rest = behind;
            }
            None => {
                left.push('[');
                rest = from;
            }
        }
    }
    left + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_a_page() {
        let text = "# Title\n\nA `word` and [a link](x.md).\nMore.\n\n## Part\n\n- one\n\n\
                    | option | takes | default | meaning |\n|---|---|---|---|\n\
                    | `io` | a\\|b | a | Of `it`. |\n\n```\nx = [1]\n```\n";
        let mut page = Roff::new();
        add(&mut page, text);
        let made = page.to_roff();
        let expected = ".PP\nA \\fBword\\fR and a link.\nMore.\n.SH PART\n.IP - 2\none\n.TP 8\n\
                        \\fBio\\fR \\fIa|b\\fR\nOf \\fBit\\fR. Default: a.\n.PP\n.EX\nx = [1]\n\
                        .EE\n";
        assert_eq!(made, expected);
    }
}

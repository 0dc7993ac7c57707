//! A page as Markdown: words and tables.

use crate::page::{Block, Page, Section, Table};
use crate::tone::Verdict;

pub(crate) fn write(page: &Page) -> String {
    let mut text = format!("# {}\n\n", plain(&page.title));
    for card in &page.cards {
        let about = if card.about.is_empty() { String::new() } else { format!("{}: ", card.about) };
        let spans = card.answer.spans.iter().map(|span| match span.is_name {
            true => format!("**{}**", plain(&span.text)),
            false => plain(&span.text),
        });
        text.push_str(&format!("{}{}\n\n", plain(&about), spans.collect::<String>()));
        let facts = card.facts.iter().map(|(name, value)| format!("{name}: {value}"));
        let facts = facts.collect::<Vec<_>>().join("; ");
        if !facts.is_empty() {
            text.push_str(&format!("{}\n\n", plain(&facts)));
        }
    }
    verdicts(&mut text, &page.verdicts);
    let has_words =
        |section: &&Section| section.blocks.iter().any(|b| !matches!(b, Block::Charts { .. }));
    for section in page.sections.iter().filter(has_words) {
        text.push_str(&format!("## {}\n\n", plain(&section.title)));
        for block in &section.blocks {
            match block {
                Block::Prose { text: prose } => text.push_str(&format!("{}\n\n", plain(prose))),
                Block::Verdicts { verdicts: all } => verdicts(&mut text, all),
                Block::Table(one) => table(&mut text, one),
                Block::Code { text: code } => fenced(&mut text, code),
                Block::Notes { notes } => {
                    notes.iter().for_each(|note| text.push_str(&format!("- {}\n", plain(note))));
                    text.push('\n');
                }
                Block::Charts { .. } => {}
            }
        }
    }
    text
}

fn verdicts(text: &mut String, verdicts: &[Verdict]) {
    for verdict in verdicts {
        text.push_str(&format!("- {}\n", plain(&verdict.text)));
    }
    if !verdicts.is_empty() {
        text.push('\n');
    }
}

fn table(text: &mut String, table: &Table) {
    if !table.caption.is_empty() {
        text.push_str(&format!("{}\n\n", plain(&table.caption)));
    }
    let row = |cells: &[String]| {
        let cells = cells.iter().map(|cell| plain(cell)).collect::<Vec<_>>().join(" | ");
        format!("| {cells} |\n")
    };
    text.push_str(&row(&table.head));
    let rule = std::iter::once("---").chain((1..table.head.len()).map(|_| "---:"));
    text.push_str(&format!("| {} |\n", rule.collect::<Vec<_>>().join(" | ")));
    table.rows.iter().for_each(|cells| text.push_str(&row(cells)));
    text.push('\n');
}

/// A fence longer than any in the code.
fn fenced(text: &mut String, code: &str) {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    text.push_str(&format!("{fence}\n{code}\n{fence}\n\n"));
}

/// Text that means nothing to Markdown, nor to HTML within it.
fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '|' | '#' | '[' | ']' | '~' => safe.extend(['\\', c]),
            // A text that looks like an address becomes a link on its own, also without brackets.
            ':' if text[at..].starts_with("://") => safe.push_str("&#58;"),
            '@' => safe.push_str("&#64;"),
            '.' if ends_in_www(&safe) => safe.push_str("&#46;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

fn ends_in_www(text: &str) -> bool {
    text.len() >= 3 && text.as_bytes()[text.len() - 3..].eq_ignore_ascii_case(b"www")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_a_document_is_no_link_and_nothing_is_struck_out() {
        assert_eq!(plain("www.x.test ~~y~~"), "www&#46;x.test \\~\\~y\\~\\~");
        assert_eq!(plain("https://x.test a@b.c"), "https&#58;//x.test a&#64;b.c");
    }

    #[test]
    fn a_section_of_charts_alone_is_left_out() {
        let mut charts = Section::new("Charts");
        let chart = crate::page::Chart { caption: String::new(), svg: String::new(), table: None };
        charts.charts([Some(chart)]);
        let mut words = Section::new("Words");
        words.prose("here");
        let page = Page { sections: vec![charts, words], ..Page::default() };
        assert_eq!(write(&page), "# \n\n## Words\n\nhere\n\n");
    }

    #[test]
    fn text_of_documents_means_nothing_to_markdown() {
        let mut section = Section::new("a | b\n# c");
        let mut one = Table::new("", ["name", "value"]);
        one.row([String::from("<script>|"), String::from("`x` *y*")]);
        section.table(one);
        section.blocks.push(Block::Code { text: String::from("echo ```` it") });
        let page =
            Page { title: String::from("[t](u)"), sections: vec![section], ..Page::default() };
        let text = write(&page);
        assert!(text.starts_with("# \\[t\\](u)\n"), "{text}");
        assert!(text.contains("## a \\| b \\# c\n"), "{text}");
        assert!(text.contains("| &lt;script&gt;\\| | \\`x\\` \\*y\\* |\n"), "{text}");
        assert!(text.contains("\n`````\necho ```` it\n`````\n"), "{text}");
    }
}

//! The screen: what is selected and sorted, and how it is drawn.

use std::collections::{BTreeMap, VecDeque};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline, TableState};

use super::columns::{Column, table};
use super::sample::{ClientLine, DiskLine, Queue, Scene};

/// The column that disks and clients are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    Iops,
    Latency,
}

impl Sort {
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Name => Sort::Iops,
            Sort::Iops => Sort::Latency,
            Sort::Latency => Sort::Name,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Iops => "IOPS",
            Sort::Latency => "latency",
        }
    }
}

/// The state of the screen.
#[derive(Default)]
pub(super) struct View {
    scene: Scene,
    /// The selected disk, by name: its line moves when the order does.
    selected: Option<String>,
    pub(super) sort: Sort,
    pub(super) interval_ms: u64,
    /// Mean latencies of each disk's last intervals, us, the latest last.
    history: BTreeMap<String, VecDeque<u64>>,
}

/// Intervals that a sparkline remembers.
const HISTORY: usize = 240;

impl View {
    pub(super) fn new(interval_ms: u64) -> View {
        View { interval_ms, ..View::default() }
    }

    /// Takes what happened in another interval.
    pub(super) fn update(&mut self, scene: Scene) {
        self.scene = scene;
        let disks = &self.scene.disks;
        self.history.retain(|name, _| disks.iter().any(|disk| disk.name == *name));
        for disk in disks {
            let past = self.history.entry(disk.name.clone()).or_default();
            past.push_back((disk.wait_ms * 1000.0) as u64);
            if past.len() > HISTORY {
                past.pop_front();
            }
        }
        self.arrange();
    }

    /// Puts disks and clients in order.
    pub(super) fn arrange(&mut self) {
        let sort = self.sort;
        let ios = |disk: &DiskLine| disk.reads + disk.writes;
        self.scene.disks.sort_by(|a, b| match sort {
            Sort::Name => a.name.cmp(&b.name),
            Sort::Iops => ios(b).total_cmp(&ios(a)),
            Sort::Latency => b.wait_ms.total_cmp(&a.wait_ms),
        });
        if sort != Sort::Name {
            self.scene.clients.sort_by(|a, b| b.ios.total_cmp(&a.ios));
        }
    }

    /// The place of the selected disk, the first if none is.
    fn place(&self) -> usize {
        let named = |disk: &DiskLine| Some(&disk.name) == self.selected.as_ref();
        self.scene.disks.iter().position(named).unwrap_or(0)
    }

    /// Selects another disk, so many lines further down.
    pub(super) fn select(&mut self, further: isize) {
        let last = self.scene.disks.len().saturating_sub(1);
        let place = self.place().saturating_add_signed(further).min(last);
        self.selected = self.scene.disks.get(place).map(|disk| disk.name.clone());
    }

    /// Lines that show everything there is.
    pub(super) fn height(&self) -> u16 {
        let lines = FIXED + LATENCY + self.disk_lines() + self.map_height() + self.client_lines();
        lines.try_into().unwrap_or(u16::MAX)
    }

    fn disk_lines(&self) -> usize {
        self.scene.disks.len() + 1
    }

    fn client_lines(&self) -> usize {
        self.scene.clients.len() + 1
    }

    fn map_height(&self) -> usize {
        self.scene
            .disks
            .get(self.place())
            .map_or(0, |disk| disk.queues.len().max(1) + 2 + disk.listing.len())
    }

    /// Lines of disks, map, latency and clients on a screen of so many. Parts that a small screen
    /// has no room for are left out, the disks last.
    fn shares(&self, height: usize) -> [usize; 4] {
        let room = height.saturating_sub(FIXED);
        let wanted = [self.disk_lines(), self.map_height(), LATENCY, self.client_lines()];
        if wanted.iter().sum::<usize>() <= room {
            return wanted;
        }
        let latency = if room >= 16 { LATENCY } else { 0 };
        let left = room - latency;
        let disks = wanted[0].min((left / 2).max(3)).min(left);
        let map = if room >= 10 { wanted[1].min((left - disks) / 2) } else { 0 };
        // Its two lines of heading alone are of no use.
        let map = if map < 3 { 0 } else { map };
        let clients = wanted[3].min(left - disks - map);
        // The disks may have the lines that these do not need.
        let disks = wanted[0].min(left - map - clients);
        [disks, map, latency, clients]
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let shares = self.shares(usize::from(frame.area().height));
        let [disks, map, latency, clients] = shares.map(|lines| Constraint::Length(lines as u16));
        let one = Constraint::Length(1);
        let areas = Layout::vertical([one, disks, map, latency, clients, Constraint::Min(0), one]);
        let [title, disk_area, map, latency, clients, _, keys] = areas.areas(frame.area());
        let text = format!(
            "weir top   {}, {}   every {:.1} s   by {}",
            counted(self.scene.disks.len(), "disk"),
            counted(self.scene.clients.len(), "client"),
            self.interval_ms as f64 / 1000.0,
            self.sort.name()
        );
        frame.render_widget(Paragraph::new(text).style(bold()), title);
        self.draw_disks(frame, disk_area);
        if let Some(disk) = self.scene.disks.get(self.place()) {
            let lines = fitted(self.map_lines(disk), map.height, "queue");
            frame.render_widget(Paragraph::new(lines), map);
            if latency.height > 0 {
                self.draw_latency(frame, disk, latency);
            }
        }
        self.draw_clients(frame, clients);
        let help = "q quit   up/down select a disk   s sort   + - interval";
        frame.render_widget(Paragraph::new(help).style(dim()), keys);
    }

    /// The disks, the selected one among those that are seen.
    fn draw_disks(&self, frame: &mut Frame<'_>, area: Rect) {
        let row = |disk: &DiskLine| {
            let cells = [
                disk.name.clone(),
                disk.scheduler.clone(),
                disk.mode.clone(),
                disk.queues.len().max(1).to_string(),
                format!("{:.0}", disk.reads),
                format!("{:.0}", disk.writes),
                format!("{:.0}", disk.kilobytes),
                format!("{:.3}", disk.wait_ms),
                format!("{:.2}", disk.queued),
                format!("{:.1}", disk.busy_pct),
            ];
            cells.map(|cell| printable(&cell)).to_vec()
        };
        let rows: Vec<_> = self.scene.disks.iter().map(row).collect();
        let fits = rows.len() < usize::from(area.height);
        // The last line says how many are out of sight.
        let seen = if fits { area.height } else { area.height.saturating_sub(1) };
        let list = Rect { height: seen, ..area };
        let table = table(&DISK, &rows, area.width, Some(self.place()));
        let mut state = TableState::default().with_selected(Some(self.place()));
        frame.render_stateful_widget(table, list, &mut state);
        if !fits && area.height > 2 {
            let hidden = rows.len() - usize::from(seen.saturating_sub(1)).min(rows.len());
            let line = Rect { y: area.y + seen, height: 1, ..area };
            frame.render_widget(Paragraph::new(more(hidden, "disk")).style(dim()), line);
        }
    }

    /// Which submitters and clients feed which hard queue of a disk.
    fn map_lines(&self, disk: &DiskLine) -> Vec<Line<'_>> {
        let title = format!("{}: submitters and clients by hard queue", printable(&disk.name));
        let mut lines = vec![Line::from(""), Line::styled(title, bold())];
        let feeding = |queue: &str| {
            let clients = self.scene.clients.iter();
            let here = clients.filter(|client| {
                client.disk == disk.name && [queue, "all"].contains(&client.hard_queue.as_str())
            });
            let names = here.map(|client| printable(&client.name)).collect::<Vec<_>>().join(" ");
            if names.is_empty() { String::from("no client") } else { names }
        };
        if disk.queues.is_empty() {
            lines.push(Line::from(format!("  one queue for all <- {}", feeding("all"))));
        }
        for Queue { index, slots, tags } in &disk.queues {
            let many = |text: &str| if text == "1" { "" } else { "s" };
            let slot = if slots.contains([',', '-']) { "slots" } else { "slot" };
            let clients = feeding(index);
            let text =
                format!("  {index} ({tags} tag{}) <- {slot} {slots} <- {clients}", many(tags));
            lines.push(Line::from(printable(&text)));
        }
        lines.extend(disk.listing.iter().map(|line| Line::from(format!("  {}", printable(line)))));
        lines
    }

    fn draw_latency(&self, frame: &mut Frame<'_>, disk: &DiskLine, area: Rect) {
        let [_, title, chart] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(1)])
                .areas(area);
        let past = self.history.get(&disk.name);
        let values: Vec<u64> = past.map_or_else(Vec::new, |past| past.iter().copied().collect());
        let shown = &values[values.len().saturating_sub(usize::from(area.width))..];
        let most = shown.iter().max().copied().unwrap_or(0);
        let text = format!(
            "{}: mean latency of the last {}, at most {most} us",
            printable(&disk.name),
            counted(shown.len(), "interval")
        );
        frame.render_widget(Paragraph::new(text).style(bold()), title);
        frame.render_widget(Sparkline::default().data(shown), chart);
    }

    fn draw_clients(&self, frame: &mut Frame<'_>, area: Rect) {
        let row = |client: &ClientLine| {
            let cells = [
                client.name.clone(),
                client.disk.clone(),
                client.address.clone(),
                client.group.clone(),
                client.class.clone(),
                client.hard_queue.clone(),
                client.in_flight.clone(),
                format!("{:.0}", client.ios),
                format!("{:.0}", client.kilobytes),
            ];
            cells.map(|cell| printable(&cell)).to_vec()
        };
        let rows: Vec<_> = self.scene.clients.iter().map(row).collect();
        let fits = rows.len() < usize::from(area.height);
        let seen = if fits { area.height } else { area.height.saturating_sub(1) };
        let list = Rect { height: seen, ..area };
        frame.render_widget(table(&CLIENT, &rows, area.width, None), list);
        if !fits && area.height > 2 {
            let hidden = rows.len() - usize::from(seen.saturating_sub(1)).min(rows.len());
            let line = Rect { y: area.y + seen, height: 1, ..area };
            frame.render_widget(Paragraph::new(more(hidden, "client")).style(dim()), line);
        }
    }
}

/// Title and keys.
const FIXED: usize = 2;

/// An empty line, a heading and two of a sparkline.
const LATENCY: usize = 4;

const DISK: [Column; 10] = [
    Column::text("DISK", 0),
    Column::text("SCHEDULER", 5),
    Column::text("MODE", 9),
    Column::number("QUEUES", 8),
    Column::number("r/s", 1),
    Column::number("w/s", 2),
    Column::number("kB/s", 4),
    Column::number("ms", 3),
    Column::number("aqu-sz", 7),
    Column::number("%util", 6),
];

const CLIENT: [Column; 9] = [
    Column::text("CLIENT", 0),
    Column::text("DISK", 3),
    Column::text("ADDRESS", 4),
    Column::text("GROUP", 6),
    Column::text("CLASS", 7),
    Column::text("QUEUE", 5),
    Column::number("IN FLIGHT", 8),
    Column::number("IOPS", 1),
    Column::number("kB/s", 2),
];

/// As `1 disk` and `2 disks`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn more(hidden: usize, noun: &str) -> String {
    format!("  and {} more that the screen has no room for", counted(hidden, noun))
}

/// As many lines as there is room for; the last says how many are missing.
fn fitted<'a>(mut lines: Vec<Line<'a>>, height: u16, noun: &str) -> Vec<Line<'a>> {
    let room = usize::from(height);
    if lines.len() > room && room > 0 {
        let hidden = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(Line::styled(more(hidden, noun), dim()));
    }
    lines
}

/// Names come from outside, and control characters command a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    /// A daemon of so many disks, queues of each, and clients.
    fn view(disks: usize, queues: usize, clients: usize) -> View {
        let queue = |at: usize| Queue {
            index: at.to_string(),
            slots: at.to_string(),
            tags: String::from("64"),
        };
        let disk = |at: usize| DiskLine {
            name: format!("scratch-disk-{at:02}"),
            scheduler: String::from("mq-deadline"),
            mode: String::from("mq"),
            queues: (0..queues).map(queue).collect(),
            reads: 123_456.0,
            kilobytes: 7_654_321.0,
            ..DiskLine::default()
        };
        let client = |at: usize| ClientLine {
            name: format!("nbd/sda/{at}"),
            in_flight: String::from("17"),
            address: String::from("[2001:db8::1]:54321"),
            ios: 98_765.0,
            ..ClientLine::default()
        };
        let mut view = View::new(1000);
        view.update(Scene {
            disks: (0..disks).map(disk).collect(),
            clients: (0..clients).map(client).collect(),
        });
        view
    }

    fn drawn(view: &View, width: u16, height: u16) -> Vec<String> {
        let Ok(mut screen) = Terminal::new(TestBackend::new(width, height));
        let Ok(_) = screen.draw(|frame| view.draw(frame));
        let cells = screen.backend().buffer().content();
        let line = |line: &[ratatui::buffer::Cell]| {
            line.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
        };
        cells.chunks(usize::from(width)).map(line).collect()
    }

    #[test]
    fn the_selected_disk_is_on_the_screen_however_many_there_are() {
        for (width, height) in [(80, 24), (40, 10), (80, 8), (110, 40)] {
            for place in [0, 11, 12, 29] {
                let mut view = view(30, 2, 3);
                view.select(place);
                let lines = drawn(&view, width, height);
                let name = format!("scratch-disk-{place:02}");
                let is_line = |line: &&String| line.starts_with(&name) && !line.contains(':');
                let found = lines.iter().find(is_line);
                assert!(found.is_some(), "{name} at {width} x {height}: {lines:#?}");
                let told = lines.iter().any(|line| line.contains("more that the screen"));
                assert!(told || height > 36, "nothing says that disks are missing: {lines:#?}");
            }
        }
    }

    #[test]
    fn a_narrow_screen_has_fewer_columns_and_cuts_no_name_and_no_number() {
        for width in [110, 80, 60, 40, 30] {
            let lines = drawn(&view(2, 1, 2), width, 30);
            let disk = lines.iter().find(|line| line.starts_with("scratch-disk-01")).expect("it");
            let known = [
                "scratch-disk-01",
                "mq-deadline",
                "mq",
                "1",
                "123456",
                "0",
                "7654321",
                "0.000",
                "0.00",
                "0.0",
            ];
            for word in disk.split_whitespace() {
                assert!(known.contains(&word), "{word:?} at {width}: {disk}");
            }
            assert!(disk.contains("123456"), "{disk}");
            let client = lines.iter().find(|line| line.starts_with("nbd/sda/1")).expect("a client");
            let known = ["nbd/sda/1", "[2001:db8::1]:54321", "17", "98765", "0"];
            assert!(client.split_whitespace().all(|word| known.contains(&word)), "{client}");
        }
    }

    #[test]
    fn a_frame_of_its_own_height_has_every_disk_queue_and_client() {
        let view = view(22, 11, 9);
        let text = drawn(&view, 110, view.height()).join("\n");
        for name in ["scratch-disk-21", "\n  10 (64 tags) <- slot 10 <-", "nbd/sda/8"] {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert!(!text.contains("more that the screen"), "{text}");
    }

    #[test]
    fn a_mapped_disk_has_its_paths_below_its_queues() {
        let mut view = view(1, 2, 0);
        let lines = ["paths=1/2", "  `- sda failed prio=1 in_flight=0"];
        view.scene.disks[0].listing = lines.map(String::from).to_vec();
        let shown = drawn(&view, 100, view.height());
        let at = |text: &str| shown.iter().position(|line| line.contains(text));
        assert!(at("1 (64 tags)").unwrap() < at(lines[0]).unwrap(), "{shown:?}");
        assert!(at(lines[0]).unwrap() < at(lines[1]).unwrap(), "{shown:?}");
    }

    #[test]
    fn one_is_no_plural() {
        let text = drawn(&view(1, 1, 1), 80, 24).join("\n");
        assert!(text.contains("1 disk, 1 client  ") && text.contains("slot 0 <-"), "{text}");
        assert!(text.contains("the last 1 interval,"), "{text}");
    }

    #[test]
    fn no_screen_is_too_small_or_too_large_to_draw_on() {
        for width in [1, 2, 7, 300] {
            for height in [1, 2, 3, 5, 9, 12, 15, 200] {
                drawn(&view(0, 0, 0), width, height);
                drawn(&view(30, 12, 30), width, height);
            }
        }
    }
}

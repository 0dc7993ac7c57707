//! The screen: what is selected and sorted, and how it is drawn.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline, TableState};

use super::columns::{Column, table};
use super::sample::{ClientLine, DiskLine, PollingLine, Queue, Scene};

/// The column that disks and clients are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Busy,
    Name,
    Iops,
    Latency,
}

impl Sort {
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Busy => Sort::Iops,
            Sort::Name => Sort::Busy,
            Sort::Iops => Sort::Latency,
            Sort::Latency => Sort::Name,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Busy => "busiest first",
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
    /// Of each disk's last intervals, the latest last.
    history: BTreeMap<String, VecDeque<Past>>,
    /// Whether colours are shown. Whatever they say stands there in words as well.
    pub(super) coloured: bool,
}

/// One interval of a disk: I/Os a second, kB a second, mean latency in us.
type Past = [u64; 3];

/// Intervals that a chart remembers.
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
            past.push_back([disk.ios(), disk.kilobytes, disk.wait_ms * 1000.0].map(|it| it as u64));
            if past.len() > HISTORY {
                past.pop_front();
            }
        }
        self.arrange();
    }

    /// Puts disks and clients in order: partitions stand behind their pool.
    pub(super) fn arrange(&mut self) {
        let sort = self.sort;
        let by = |a: &DiskLine, b: &DiskLine| {
            let order = match sort {
                Sort::Busy => b.busy_pct.total_cmp(&a.busy_pct).then(b.ios().total_cmp(&a.ios())),
                Sort::Name => Ordering::Equal,
                Sort::Iops => b.ios().total_cmp(&a.ios()),
                Sort::Latency => b.wait_ms.total_cmp(&a.wait_ms),
            };
            order.then_with(|| a.name.cmp(&b.name))
        };
        let disks = std::mem::take(&mut self.scene.disks).into_iter();
        let (mut parts, mut wholes): (Vec<_>, Vec<_>) = disks.partition(|disk| disk.pool.is_some());
        parts.sort_by(by);
        wholes.sort_by(by);
        for whole in wholes {
            let name = whole.name.clone();
            self.scene.disks.push(whole);
            let here = parts.extract_if(.., |part| part.pool.as_ref() == Some(&name));
            self.scene.disks.extend(here);
        }
        if sort != Sort::Name {
            let clients = &mut self.scene.clients;
            clients.sort_by(|a, b| b.ios.total_cmp(&a.ios).then_with(|| a.name.cmp(&b.name)));
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
        let lines = FIXED + CHARTS + self.disk_lines() + self.map_height() + self.client_lines();
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

    /// Lines of disks, clients, charts and map on a screen of so many. Parts for which a small
    /// screen has no room are left out, the disks last; the charts have what is left over.
    fn shares(&self, height: usize) -> [usize; 4] {
        let room = height.saturating_sub(FIXED);
        let wanted = [self.disk_lines(), self.client_lines(), CHARTS, self.map_height()];
        let all = wanted.iter().sum::<usize>();
        if all <= room {
            let [disks, clients, charts, map] = wanted;
            return [disks, clients, charts + (room - all).min(CHARTS_MAX), map];
        }
        let charts = if room >= 16 { CHARTS } else { 0 };
        let left = room - charts;
        let disks = wanted[0].min((left / 2).max(3)).min(left);
        let clients = wanted[1].min(left - disks);
        let map = wanted[3].min(left - disks - clients);
        // Its two lines of heading alone are of no use.
        let map = if map < 3 { 0 } else { map };
        // The disks may have the lines that these do not need, and the charts what is left.
        let disks = wanted[0].min(left - map - clients);
        let charts = if charts > 0 { room - disks - clients - map } else { 0 };
        [disks, clients, charts, map]
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let shares = self.shares(usize::from(frame.area().height));
        let [disks, clients, charts, map] = shares.map(|lines| Constraint::Length(lines as u16));
        let one = Constraint::Length(1);
        let areas = Layout::vertical([one, disks, clients, charts, map, Constraint::Min(0), one]);
        let [title, disk_area, clients, charts, map, _, keys] = areas.areas(frame.area());
        let polling = self.scene.polling.as_ref().map_or_else(String::new, |polling| {
            let PollingLine { poll, cpu_pct, met } = polling;
            let poll = printable(poll);
            format!("   polling {poll}: {cpu_pct:.0} % of a CPU, {met:.0} sleeps saved/s")
        });
        let text = format!(
            "weir top   {}, {}   every {:.1} s   {}{polling}",
            counted(self.scene.disks.len(), "disk"),
            counted(self.scene.clients.len(), "client"),
            self.interval_ms as f64 / 1000.0,
            self.sort.name()
        );
        frame.render_widget(Paragraph::new(text).style(bold()), title);
        self.draw_disks(frame, disk_area);
        self.draw_clients(frame, clients);
        if let Some(disk) = self.scene.disks.get(self.place()) {
            let lines = fitted(self.map_lines(disk), map.height, "queue");
            frame.render_widget(Paragraph::new(lines), map);
            if charts.height > 0 {
                self.draw_charts(frame, disk, charts);
            }
        }
        let help = "q quit   up/down select a disk   s sort   + - interval";
        frame.render_widget(Paragraph::new(help).style(dim()), keys);
    }

    /// A style that has this colour if colours are shown.
    fn tint(&self, colour: Color) -> Style {
        if self.coloured { Style::new().fg(colour) } else { Style::new() }
    }

    /// The disks, the selected one among those that are seen.
    fn draw_disks(&self, frame: &mut Frame<'_>, area: Rect) {
        let row = |disk: &DiskLine| {
            let cells = [
                format!("{}{}", if disk.pool.is_some() { "  " } else { "" }, disk.name),
                disk.scheduler.clone(),
                disk.mode.clone(),
                match &disk.pool {
                    Some(_) => String::from("-"),
                    None => disk.queues.len().max(1).to_string(),
                },
                format!("{:.0}", disk.reads),
                format!("{:.0}", disk.writes),
                format!("{:.0}", disk.kilobytes),
                format!("{:.3}", disk.wait_ms),
                format!("{:.2}", disk.queued),
                format!("{:.1}", disk.busy_pct),
                bar(disk.busy_pct),
            ];
            cells.map(|cell| printable(&cell)).to_vec()
        };
        let rows: Vec<_> = self.scene.disks.iter().map(row).collect();
        let fits = rows.len() < usize::from(area.height);
        // The last line says how many are out of sight.
        let seen = if fits { area.height } else { area.height.saturating_sub(1) };
        let list = Rect { height: seen, ..area };
        let tint = |row: usize, column: usize| match (column, self.scene.disks[row].busy_pct) {
            (..9, _) => Style::new(),
            (_, ..60.0) => self.tint(Color::Green),
            (_, ..90.0) => self.tint(Color::Yellow),
            _ => self.tint(Color::Red),
        };
        let table = table(&DISK, &rows, area.width, Some(self.place()), &tint);
        let mut state = TableState::default().with_selected(Some(self.place()));
        frame.render_stateful_widget(table, list, &mut state);
        if !fits && area.height > 2 {
            let hidden = rows.len() - usize::from(seen.saturating_sub(1)).min(rows.len());
            let line = Rect { y: area.y + seen, height: 1, ..area };
            frame.render_widget(Paragraph::new(more(hidden, "disk")).style(dim()), line);
        }
    }

    /// Which submitters and clients feed which hard queue of a disk, and the requests a second that
    /// its driver ends.
    fn map_lines(&self, disk: &DiskLine) -> Vec<Line<'_>> {
        let title = format!("{}: submitters and clients by hard queue", printable(&disk.name));
        let mut lines = vec![Line::from(""), Line::styled(title, bold())];
        // Clients of a pool are those of its disks, and its queues are theirs.
        let of_pool = |client: &str| {
            let pool = |line: &&DiskLine| line.name == client && line.pool.is_some();
            self.scene
                .disks
                .iter()
                .find(pool)
                .is_some_and(|line| line.pool.as_ref() == Some(&disk.name))
        };
        let feeding = |queue: Option<&str>| {
            let clients = self.scene.clients.iter();
            let here = clients.filter(|client| {
                let feeds =
                    queue.is_none_or(|queue| [queue, "all"].contains(&client.hard_queue.as_str()));
                feeds && (client.disk == disk.name || of_pool(&client.disk))
            });
            let names = here.map(|client| printable(&client.name)).collect::<Vec<_>>().join(" ");
            if names.is_empty() { String::from("no client") } else { names }
        };
        if let Some(pool) = &disk.pool {
            let text = format!("  the queues of {pool} <- {}", feeding(None));
            lines.push(Line::from(printable(&text)));
        } else if disk.queues.is_empty() {
            lines.push(Line::from(format!("  one queue for all <- {}", feeding(None))));
        }
        for Queue { index, slots, tags, rate, .. } in &disk.queues {
            let many = |text: &str| if text == "1" { "" } else { "s" };
            let slot = if slots.contains([',', '-']) { "slots" } else { "slot" };
            let clients = feeding(Some(index));
            let text = format!(
                "  {index} ({tags} tag{}, {rate:.0}/s) <- {slot} {slots} <- {clients}",
                many(tags)
            );
            lines.push(Line::from(printable(&text)));
        }
        lines.extend(disk.listing.iter().map(|line| Line::from(format!("  {}", printable(line)))));
        lines
    }

    /// The past of a disk: as many charts side by side as have room.
    fn draw_charts(&self, frame: &mut Frame<'_>, disk: &DiskLine, area: Rect) {
        let lines = Layout::vertical([1, 1, 1].map(Constraint::Length));
        let [_, title, labels] = lines.areas(area);
        let below = Rect { y: area.y + 3, height: area.height.saturating_sub(3), ..area };
        let past: Vec<Past> = self
            .history
            .get(&disk.name)
            .map_or_else(Vec::new, |past| past.iter().copied().collect());
        let count = if area.width >= 120 { 3 } else { 2 };
        let columns =
            Layout::horizontal([Constraint::Fill(1); 3].into_iter().take(count)).spacing(2);
        let (heads, bodies) = (columns.split(labels), columns.split(below));
        let width = usize::from(bodies.first().map_or(0, |body| body.width));
        let past = &past[past.len().saturating_sub(width)..];
        let text =
            format!("{}: the last {}", printable(&disk.name), counted(past.len(), "interval"));
        frame.render_widget(Paragraph::new(text).style(bold()), title);
        let kinds =
            [("IOPS", 0, Color::Cyan), ("mean us", 2, Color::Magenta), ("kB/s", 1, Color::Blue)];
        for ((head, body), (name, of, colour)) in heads.iter().zip(bodies.iter()).zip(kinds) {
            let values: Vec<u64> = past.iter().map(|past| past[of]).collect();
            let (now, most) = (values.last().copied(), values.iter().max().copied());
            let label = format!("{name} {}, at most {}", now.unwrap_or(0), most.unwrap_or(0));
            frame.render_widget(Paragraph::new(label), *head);
            frame.render_widget(Sparkline::default().data(&values).style(self.tint(colour)), *body);
        }
    }

    fn draw_clients(&self, frame: &mut Frame<'_>, area: Rect) {
        let ms = |time: Option<f64>| time.map_or(String::from("-"), |ms| format!("{ms:.2}"));
        let row = |client: &ClientLine| {
            let cells = [
                client.name.clone(),
                client.disk.clone(),
                client.address.clone(),
                client.group.clone(),
                client.class.clone(),
                client.poll.clone(),
                client.hard_queue.clone(),
                client.in_flight.clone(),
                format!("{:.0}", client.ios),
                format!("{:.0}", client.kilobytes),
                ms(client.p50_ms),
                ms(client.p99_ms),
                held(client.held_pct),
                match (client.share_pct, client.weight_pct) {
                    (Some(share), Some(weight)) => format!("{share:.0}/{weight:.0}%"),
                    _ => String::from("-"),
                },
            ];
            cells.map(|cell| printable(&cell)).to_vec()
        };
        let rows: Vec<_> = self.scene.clients.iter().map(row).collect();
        let fits = rows.len() < usize::from(area.height);
        let seen = if fits { area.height } else { area.height.saturating_sub(1) };
        let list = Rect { height: seen, ..area };
        let tint = |row: usize, column: usize| match self.scene.clients[row].held_pct {
            Some([cap, queue, device]) if column == HELD => {
                self.tint(if cap >= queue.max(device) {
                    Color::Yellow
                } else if queue >= device {
                    Color::Magenta
                } else {
                    Color::Blue
                })
            }
            _ => Style::new(),
        };
        frame.render_widget(table(&CLIENT, &rows, area.width, None, &tint), list);
        if !fits && area.height > 2 {
            let hidden = rows.len() - usize::from(seen.saturating_sub(1)).min(rows.len());
            let line = Rect { y: area.y + seen, height: 1, ..area };
            frame.render_widget(Paragraph::new(more(hidden, "client")).style(dim()), line);
        }
    }
}

/// The column of what held a client.
const HELD: usize = 12;

/// The reasons that held I/Os, the largest first; one below a per cent is left out.
fn held(parts: Option<[f64; 3]>) -> String {
    let Some([cap, queue, device]) = parts else { return String::from("-") };
    let mut reasons = [("cap", cap), ("queue", queue), ("device", device)];
    reasons.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown = reasons.iter().filter(|(_, part)| *part >= 1.0);
    shown.map(|(name, part)| format!("{name} {part:.0}%")).collect::<Vec<_>>().join(" ")
}

/// Per cent as a bar of ten.
fn bar(pct: f64) -> String {
    let full = (pct / 10.0).round().clamp(0.0, 10.0) as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(10 - full))
}

/// Title and keys.
const FIXED: usize = 2;

/// An empty line, a heading, a line of labels and two of charts.
const CHARTS: usize = 5;

/// Further lines of charts: more would say no more.
const CHARTS_MAX: usize = 24;

const DISK: [Column; 11] = [
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
    Column::text("BUSY", 10),
];

const CLIENT: [Column; 14] = [
    Column::text("CLIENT", 0),
    Column::text("DISK", 7),
    Column::text("ADDRESS", 11),
    Column::text("GROUP", 6),
    Column::text("CLASS", 10),
    Column::text("POLL", 12),
    Column::text("QUEUE", 9),
    Column::number("IN FLIGHT", 8),
    Column::number("IOPS", 1),
    Column::number("kB/s", 2),
    Column::number("p50 ms", 5),
    Column::number("p99 ms", 3),
    Column::text("HELD BY", 4),
    Column::number("SHARE/WEIGHT", 6),
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
            rate: 1234.4,
            ..Queue::default()
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
            polling: None,
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
                assert!(told || height > 38, "nothing says that disks are missing: {lines:#?}");
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
                "..........",
            ];
            for word in disk.split_whitespace() {
                assert!(known.contains(&word), "{word:?} at {width}: {disk}");
            }
            assert!(disk.contains("123456"), "{disk}");
            let client = lines.iter().find(|line| line.starts_with("nbd/sda/1")).expect("a client");
            let known = ["nbd/sda/1", "[2001:db8::1]:54321", "17", "98765", "0", "-"];
            assert!(client.split_whitespace().all(|word| known.contains(&word)), "{client}");
        }
    }

    #[test]
    fn a_frame_of_its_own_height_has_every_disk_queue_and_client() {
        let view = view(22, 11, 9);
        let text = drawn(&view, 110, view.height()).join("\n");
        for name in ["scratch-disk-21", "\n  10 (64 tags, 1234/s) <- slot 10 <-", "nbd/sda/8"] {
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
        assert!(at("1 (64 tags, 1234/s)").unwrap() < at(lines[0]).unwrap(), "{shown:?}");
        assert!(at(lines[0]).unwrap() < at(lines[1]).unwrap(), "{shown:?}");
    }

    #[test]
    fn a_daemon_that_polls_says_so_in_the_first_line() {
        let mut view = view(1, 1, 1);
        assert!(!drawn(&view, 120, 24)[0].contains("polling"));
        let poll = String::from("adaptive");
        view.scene.polling = Some(PollingLine { poll, cpu_pct: 74.6, met: 20_123.4 });
        let title = &drawn(&view, 120, 24)[0];
        let told = "busiest first   polling adaptive: 75 % of a CPU, 20123 sleeps saved/s";
        assert!(title.ends_with(told), "{title}");
    }

    #[test]
    fn one_is_no_plural() {
        let text = drawn(&view(1, 1, 1), 80, 24).join("\n");
        assert!(text.contains("1 disk, 1 client  ") && text.contains("slot 0 <-"), "{text}");
        assert!(text.contains("the last 1 interval\n"), "{text}");
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

//! The screen: what is selected and sorted, and how it is drawn.

use std::collections::{BTreeMap, VecDeque};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Sparkline, Table};

use super::sample::{ClientLine, DiskLine, Scene};

/// What disks and clients are sorted by.
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

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let disks = self.scene.disks.len() as u16;
        let selected = self.scene.disks.get(self.place());
        let queues = selected.map_or(1, |disk| disk.queues.len().max(1)) as u16;
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length((disks + 1).min(12)),
            Constraint::Length((queues + 2).min(10)),
            Constraint::Length(4),
            Constraint::Min(2),
            Constraint::Length(1),
        ]);
        let [title, disk_area, map, latency, clients, keys] = areas.areas(frame.area());
        let text = format!(
            "weir top   {disks} disks, {} clients   every {:.1} s   by {}",
            self.scene.clients.len(),
            self.interval_ms as f64 / 1000.0,
            self.sort.name()
        );
        frame.render_widget(Paragraph::new(text).style(bold()), title);
        frame.render_widget(self.disk_table(), disk_area);
        if let Some(disk) = selected {
            frame.render_widget(Paragraph::new(self.map_lines(disk)), map);
            self.draw_latency(frame, disk, latency);
        }
        frame.render_widget(self.client_table(), clients);
        let help = "q quit   up/down select a disk   s sort   + - interval";
        frame.render_widget(Paragraph::new(help).style(dim()), keys);
    }

    fn disk_table(&self) -> Table<'_> {
        let head =
            ["DISK", "SCHEDULER", "MODE", "QUEUES", "r/s", "w/s", "kB/s", "ms", "aqu-sz", "%util"];
        let row = |(place, disk): (usize, &DiskLine)| {
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
            let style = if place == self.place() { reversed() } else { Style::new() };
            Row::new(cells.map(|cell| printable(&cell))).style(style)
        };
        let widths = [14, 12, 4, 6, 9, 9, 10, 9, 8, 6].map(Constraint::Length);
        let rows = self.scene.disks.iter().enumerate().map(row);
        Table::new(rows, widths).header(Row::new(head).style(bold()))
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
        for queue in &disk.queues {
            let (index, slots, tags) = (&queue.index, &queue.slots, &queue.tags);
            let clients = feeding(index);
            lines
                .push(Line::from(format!("  {index} ({tags} tags) <- slots {slots} <- {clients}")));
        }
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
        let text = format!("{}: mean latency, at most {most} us", printable(&disk.name));
        frame.render_widget(Paragraph::new(text).style(bold()), title);
        frame.render_widget(Sparkline::default().data(shown), chart);
    }

    fn client_table(&self) -> Table<'_> {
        let head = ["CLIENT", "DISK", "ADDRESS", "GROUP", "CLASS", "QUEUE", "IOPS", "kB/s"];
        let row = |client: &ClientLine| {
            let cells = [
                client.name.clone(),
                client.disk.clone(),
                client.address.clone(),
                client.group.clone(),
                client.class.clone(),
                client.hard_queue.clone(),
                format!("{:.0}", client.ios),
                format!("{:.0}", client.kilobytes),
            ];
            Row::new(cells.map(|cell| printable(&cell)))
        };
        let widths = [
            Constraint::Length(14),
            Constraint::Length(10),
            Constraint::Min(16),
            Constraint::Length(14),
            Constraint::Length(14),
            Constraint::Length(5),
            Constraint::Length(9),
            Constraint::Length(10),
        ];
        Table::new(self.scene.clients.iter().map(row), widths).header(Row::new(head).style(bold()))
    }
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

fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

//! A live scheduler's calls as the text of a recording.

use std::fmt::Write as _;

use weir_bio::{Nanos, Rq};

use super::details::{QUEUE, TIMES, direct, flags_text};
use super::recording::{Kind, Range};
use crate::contract::Ended;
use crate::recorder::{Call, Heading, Noted};

/// Writes a recording, line by line.
pub struct Writer {
    heading: Heading,
    /// The header was written.
    is_begun: bool,
    /// The clock at the first event.
    first_us: Option<u64>,
    /// By scheduler tag: what was dispatched under it, and of which context.
    picked: Vec<Option<(Range, u16)>>,
}

impl Writer {
    /// Of a recording that begins like this.
    #[must_use]
    pub fn new(heading: Heading) -> Writer {
        let picked = vec![None; usize::from(heading.setup.nr_requests)];
        Writer { heading, is_begun: false, first_us: None, picked }
    }

    /// Appends the line of a call, before the first one the header.
    pub fn event(&mut self, noted: &Noted, out: &mut String) {
        let Noted { at_us, call } = *noted;
        let first_us = self.first_us.unwrap_or_else(|| {
            self.header(out);
            line(out, format_args!("clock_us {at_us}"));
            at_us
        });
        (self.is_begun, self.first_us) = (true, Some(first_us));
        let at = at_us.saturating_sub(first_us);
        match call {
            Call::Arrived { rq, kind } => arrival(out, at, kind, &rq),
            Call::Picked { range, context, tag, hard_queue } => {
                if let Some(place) = self.picked.get_mut(tag.index()) {
                    *place = Some((range, context.0));
                }
                let hard_queue = OfQueue(hard_queue);
                line(out, format_args!("{at} D {range} - - ctx={}{hard_queue}", context.0));
            }
            Call::Denied { hard_queue } => {
                line(out, format_args!("{at} N - - - - -{}", OfQueue(hard_queue)));
            }
            Call::Ended(end) => self.completion(out, at, first_us, &end),
            Call::Fired => line(out, format_args!("{at} T - - - - -")),
            Call::ContextBegun { context, hard_queue } => {
                let hard_queue = OfQueue(hard_queue);
                line(out, format_args!("{at} B - - - - - ctx={}{hard_queue}", context.0));
            }
            Call::ContextGone { context } => {
                line(out, format_args!("{at} E - - - - - ctx={}", context.0));
            }
            Call::GroupPlaced { group, parent } => {
                line(out, format_args!("{at} P - - - - - group={} parent={}", group.0, parent.0));
            }
            Call::GroupWeighed { group, weight } => {
                line(out, format_args!("{at} G - - - - - group={} weight={weight}", group.0));
            }
        }
    }

    /// Appends the last line, a comment; the header before it if there was no event.
    pub fn end(&mut self, text: &str, out: &mut String) {
        if !self.is_begun {
            self.header(out);
            self.is_begun = true;
        }
        line(out, format_args!("# {text}"));
    }

    fn header(&self, out: &mut String) {
        let Heading { scheduler, setup, settings } = &self.heading;
        line(out, format_args!("scheduler {scheduler}"));
        // The scheduler's clock ran in these while it was recorded.
        line(out, format_args!("tick_us 1"));
        line(out, format_args!("calls all"));
        line(out, format_args!("compat {}", setup.compat));
        for row in &QUEUE {
            line(out, format_args!("queue {} {}", row.name, (row.get)(setup)));
        }
        for (name, value) in settings {
            line(out, format_args!("set {name} {value}"));
        }
    }

    fn completion(&mut self, out: &mut String, at: u64, first_us: u64, end: &Ended) {
        let picked = self.picked.get_mut(end.tag.index()).and_then(Option::take);
        // Every end is of what was dispatched before it.
        let Some((range, context)) = picked else { return };
        put(out, format_args!("{at} C {range} - - ctx={context}"));
        let times = [end.accepted_at, end.issued_at, end.done_at];
        if times != [Nanos::ZERO; 3] {
            for (name, time) in TIMES.iter().zip(times) {
                let time_us = (time.0 / 1000) as i64 - first_us as i64;
                put(out, format_args!(" {name}={time_us}"));
            }
        }
        let handed_back = if end.handed_back { " handed_back=1" } else { "" };
        line(out, format_args!("{handed_back}"));
    }
}

fn arrival(out: &mut String, at: u64, kind: Kind, rq: &Rq) {
    let (range, class, level) = (range_of(rq), rq.ioprio.class() as u8, rq.ioprio.level());
    let context = rq.id.submitter().0;
    put(out, format_args!("{at} {kind} {range} {class} {level} ctx={context}"));
    if rq.group.0 != 0 {
        put(out, format_args!(" group={}", rq.group.0));
    }
    if rq.hint != 0 {
        put(out, format_args!(" hint={}", rq.hint));
    }
    if rq.segments != 0 {
        put(out, format_args!(" segments={}", rq.segments));
    }
    if rq.flags != direct(rq.op) {
        put(out, format_args!(" flags={}", flags_text(rq.flags)));
    }
    out.push('\n');
}

/// The hard queue of an event, where it is not the first.
struct OfQueue(u16);

impl std::fmt::Display for OfQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " hq={}", self.0) }
    }
}

fn range_of(rq: &Rq) -> Range {
    Range { op: rq.op, sector: rq.sector, sectors: rq.sectors }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    put(out, text);
    out.push('\n');
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes what is written to it");
}

#[cfg(test)]
mod tests {
    use weir_bio::{
        Class, Flags, GroupId, IoPrio, Limits, Op, RqId, SchedTag, Status, SubmitterId,
    };

    use super::super::recording::Recording;
    use super::*;
    use crate::contract::Setup;

    fn rq(op: Op, sector: u64, sectors: u32, tag: u16) -> Rq {
        Rq {
            sector,
            sectors,
            id: RqId::new(SubmitterId(3), 1, 0),
            flags: direct(op),
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag(tag),
            op,
            segments: 1,
        }
    }

    fn picked(rq: &Rq, hard_queue: u16) -> Call {
        let (context, tag) = (rq.id.submitter(), rq.tag);
        Call::Picked { range: range_of(rq), context, tag, hard_queue }
    }

    fn writer() -> Writer {
        let limits = Limits { max_hw_sectors: 64, rotational: true, ..Limits::default() };
        let setup = Setup { limits, nr_requests: 8, hard_queues: 2, nomerges: 1, compat: "6.18" };
        Writer::new(Heading { scheduler: "kyber", setup, settings: vec![("read_lat_nsec", 5)] })
    }

    const HEADER: [&str; 18] = [
        "scheduler kyber",
        "tick_us 1",
        "calls all",
        "compat 6.18",
        "queue nr_requests 8",
        "queue hard_queues 2",
        "queue nomerges 1",
        "queue rotational 1",
        "queue max_sectors 64",
        "queue max_segments 128",
        "queue max_discard_sectors 0",
        "queue max_secure_erase_sectors 0",
        "queue chunk_sectors 0",
        "queue virt_boundary_mask 0",
        "queue atomic_write_unit_max_sectors 0",
        "queue atomic_write_boundary_sectors 0",
        "set read_lat_nsec 5",
        "clock_us 1000",
    ];

    #[test]
    fn each_kind_of_call_has_its_line() {
        let write = Rq {
            flags: Flags::BACKGROUND | Flags::META,
            ioprio: IoPrio::new(Class::RealTime, 7),
            group: GroupId(2),
            hint: 4,
            ..rq(Op::Write, 8, 8, 1)
        };
        let end = Ended {
            tag: SchedTag(1),
            status: Status::Ok,
            handed_back: true,
            accepted_at: Nanos(998_000),
            issued_at: Nanos(1_004_000),
            done_at: Nanos(1_009_000),
        };
        let calls = [
            (1000, Call::ContextBegun { context: SubmitterId(3), hard_queue: 1 }),
            (1000, Call::GroupPlaced { group: GroupId(2), parent: GroupId(1) }),
            (1001, Call::GroupWeighed { group: GroupId(2), weight: 300 }),
            (1002, Call::Arrived { rq: write, kind: Kind::Inserted }),
            (1002, Call::Arrived { rq: rq(Op::Read, 0, 8, 2), kind: Kind::Inserted }),
            (1003, picked(&write, 1)),
            (1003, Call::Denied { hard_queue: 0 }),
            (1007, Call::Fired),
            (1010, Call::Ended(end)),
            (1011, picked(&rq(Op::Read, 0, 8, 2), 0)),
            (1012, Call::Ended(Ended::untimed(SchedTag(2)))),
            (1013, Call::ContextGone { context: SubmitterId(3) }),
        ];
        let (mut writer, mut text) = (writer(), String::new());
        for (at_us, call) in calls {
            writer.event(&Noted { at_us, call }, &mut text);
        }
        writer.end("recorded until then", &mut text);
        let events = [
            "0 B - - - - - ctx=3 hq=1",
            "0 P - - - - - group=2 parent=1",
            "1 G - - - - - group=2 weight=300",
            "2 I W 8 8 1 7 ctx=3 group=2 hint=4 segments=1 flags=meta+background",
            "2 I R 0 8 0 0 ctx=3 segments=1",
            "3 D W 8 8 - - ctx=3 hq=1",
            "3 N - - - - -",
            "7 T - - - - -",
            "10 C W 8 8 - - ctx=3 accepted=-2 issued=4 done=9 handed_back=1",
            "11 D R 0 8 - - ctx=3",
            "12 C R 0 8 - - ctx=3",
            "13 E - - - - - ctx=3",
            "# recorded until then",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), [&HEADER[..], &events[..]].concat());
        let recording = Recording::read(text.as_bytes()).expect("a recording");
        assert_eq!(recording.events.len(), calls.len());
        assert_eq!(recording.events[8].details.times_us, [Some(-2), Some(4), Some(9)]);
        assert_eq!(recording.events[3].details.flags, Some(write.flags));
    }

    #[test]
    fn a_recording_without_an_event_has_its_header_and_its_end() {
        let (mut writer, mut text) = (writer(), String::new());
        writer.end("over", &mut text);
        assert!(text.starts_with("scheduler kyber\n") && text.ends_with("\n# over\n"), "{text}");
        assert!(!text.contains("clock_us"), "{text}");
    }
}

//! A model as the text of a file, which says what it was fitted to and what it saw.

use std::fmt::Write;

use weir_sim_disk::measured::{Access, Level};

use super::{Held, Model};
use crate::profile::{Profile, SchedulerPrice};

impl Model {
    /// The text of its file: a disk that `weir_sim_disk::Spec` reads, with the prices of its host
    /// as a table `[host]`. `source` is what it was fitted to; it stands in a comment.
    ///
    /// # Panics
    /// Never: a string takes all text.
    #[must_use]
    pub fn text(&self, source: &str) -> String {
        let mut text = String::new();
        self.write(&mut text, source).expect("a string takes text");
        text
    }

    fn write(&self, text: &mut String, source: &str) -> std::fmt::Result {
        let disk = &self.disk;
        // A name of several lines would be more than a comment.
        let source: String = source.chars().filter(|c| !c.is_control()).collect();
        writeln!(text, "# Fitted by weir sim fit to {source}.")?;
        writeln!(
            text,
            "# What is outside the sizes, shares of reads, places and commands at once"
        )?;
        writeln!(
            text,
            "# of [measured] was not seen, and is not simulated. A model of the part that was"
        )?;
        writeln!(text, "# not held back is off by, on that which was, in percent of it:")?;
        for Held { in_flight, op, commands, rate, p50_us, p99_us } in &self.held_back {
            let [rate, p50, p99] = [rate, p50_us, p99_us].map(|pair| pair.error_pct());
            writeln!(
                text,
                "#   {in_flight} at once, {op}, {commands} commands: rate {rate:+.1}, p50 \
                 {p50:+.1}, p99 {p99:+.1}"
            )?;
        }
        let Model { size, depth, rotational, .. } = self;
        writeln!(text, "size = \"{size}\"\ndepth = {depth}\nrotational = {rotational}\n")?;
        writeln!(text, "[measured]")?;
        for (name, bytes) in [
            ("of_size", disk.of_size),
            ("least_size", disk.least_size),
            ("most_size", disk.most_size),
            ("read_bandwidth", disk.read_bandwidth),
            ("write_bandwidth", disk.write_bandwidth),
        ] {
            writeln!(text, "{name} = \"{bytes}\"")?;
        }
        let access = match disk.access {
            Access::Random => "random",
            Access::Sequential => "sequential",
            Access::Both => "both",
        };
        writeln!(text, "read_percent = {:?}\naccess = \"{access}\"", disk.read_percent)?;
        writeln!(text, "jump = \"{}ns\"", disk.jump)?;
        for Level { in_flight, read, write } in &disk.at {
            writeln!(text, "\n[[measured.at]]\nin_flight = {in_flight}")?;
            for (name, times) in [("read", read), ("write", write)] {
                let times: Vec<String> = times.iter().map(|ns| format!("\"{ns}ns\"")).collect();
                if !times.is_empty() {
                    writeln!(text, "{name} = [{}]", times.join(", "))?;
                }
            }
        }
        self.host.as_ref().map_or(Ok(()), |host| write_host(text, host))
    }
}

fn write_host(text: &mut String, host: &Profile) -> std::fmt::Result {
    writeln!(
        text,
        "\n# ns. What an I/O costs a thread of weir, split evenly over its way in and out:"
    )?;
    writeln!(text, "# submit and end for itself, syscall and interrupt for all that go together.")?;
    writeln!(text, "# Cache lines and locks are not measured.")?;
    for (name, fields) in tables(host) {
        writeln!(text, "[host.{name}]")?;
        fields.iter().try_for_each(|(name, value)| writeln!(text, "{name} = {value}"))?;
        if let Some(paces) = host.machine.paces.filter(|_| name == "machine") {
            writeln!(text, "# Percent of its price that work takes in each eighth of the time.")?;
            writeln!(text, "paces = {paces:?}")?;
        }
    }
    writeln!(
        text,
        "# What a scheduler adds on a null device: own to each I/O, turn once to all that"
    )?;
    writeln!(text, "# are inserted together.")?;
    for (name, SchedulerPrice { lane, own, turn, .. }) in &host.scheduler {
        writeln!(text, "[host.scheduler.{name}]\nlane = {lane}\nown = {own}\nturn = {turn}")?;
    }
    Ok(())
}

/// The tables of a host, each with its fields.
fn tables(host: &Profile) -> [(&'static str, Vec<(&'static str, u64)>); 4] {
    let (machine, path, lock, shared) = (&host.machine, &host.path, &host.lock, &host.shared_queue);
    [
        (
            "machine",
            vec![
                ("sockets", machine.sockets as u64),
                ("cores", machine.cores as u64),
                ("line", machine.line),
                ("far_line", machine.far_line),
                ("slice", machine.slice),
                ("switch", machine.switch),
                ("idle_exit", machine.idle_exit),
            ],
        ),
        (
            "path",
            vec![
                ("syscall", path.syscall),
                ("make", path.make),
                ("submit", path.submit),
                ("issue", path.issue),
                ("doorbell", path.doorbell),
                ("vectors", path.vectors as u64),
                ("interrupt", path.interrupt),
                ("end", path.end),
                ("wake", path.wake),
                ("complete", path.complete),
            ],
        ),
        (
            "lock",
            vec![
                ("near", lock.near),
                ("lines", lock.lines),
                ("crowd_from", lock.crowd_from),
                ("crowd", lock.crowd),
                ("spinners", lock.spinners),
            ],
        ),
        (
            "shared_queue",
            vec![
                ("enter", shared.enter),
                ("start", shared.start),
                ("leave", shared.leave),
                ("look", shared.look),
                ("stall_every", shared.stall_every),
                ("stall", shared.stall),
            ],
        ),
    ]
}

//! The screen of `weir status`: 80 columns, and no more lines than a screen has.

use serde_json::Value;
use weir::units::show_size;
use weir_report::terminal::wrapped;

/// Columns of a line.
const COLUMNS: usize = 80;
/// Disks, listeners and degraded things that are listed; the rest is counted.
const DISKS: usize = 8;
const LISTENERS: usize = 6;
const DEGRADED: usize = 10;

/// The state as text.
pub(super) fn of(state: &Value) -> String {
    let mut lines = vec![head(state)];
    section(&mut lines, "listeners", items(&state["listeners"]), LISTENERS, |one| {
        vec![format!("  {:<8} {}", text(&one["kind"]), text(&one["place"]))]
    });
    let mut disks = items(&state["disks"]);
    // Those that matter most, where there is no room for all; pools stay before their disks.
    if disks.len() > DISKS {
        disks.sort_by_key(|disk| items(&disk["degraded"]).is_empty());
    }
    lines.push(format!(
        "{:<11}{:>8} mode {:<11}{:>8}{:>8}{:>7}  write cache",
        "disks", "size", "scheduler", "queues", "clients", "errors"
    ));
    rest(&mut lines, disks, DISKS, disk);
    let (count, busiest) = (&state["clients"]["count"], items(&state["clients"]["busiest"]));
    lines
        .push(format!("clients {count}{}", if busiest.is_empty() { "" } else { ", the busiest:" }));
    rest(&mut lines, busiest, usize::MAX, |one| vec![client(one)]);
    lines.extend(polling(&state["polling"]));
    lines.push(format!("errors  {} I/Os ended with one since the start", state["errors"]));
    let degraded = items(&state["degraded"]);
    if !degraded.is_empty() {
        // Whole: what is wrong is what this is for.
        section(&mut lines, "degraded", degraded, DEGRADED, |one| {
            let sentence = wrapped(&text(one), COLUMNS - 2);
            sentence.lines().map(|line| format!("  {line}")).collect()
        });
    }
    lines.into_iter().map(|line| fit(&line) + "\n").collect()
}

fn head(state: &Value) -> String {
    let up = uptime(state["uptime_ms"].as_u64().unwrap_or(0) / 1000);
    let health = match items(&state["degraded"]).len() {
        0 => String::from("healthy"),
        count => format!("DEGRADED ({count})"),
    };
    format!("weir {}, process {}, up {up}: {health}", text(&state["version"]), state["pid"])
}

fn section(
    lines: &mut Vec<String>,
    title: &str,
    of: Vec<&Value>,
    most: usize,
    show: impl Fn(&Value) -> Vec<String>,
) {
    lines.push(String::from(title));
    rest(lines, of, most, show);
}

/// So many of them, and how many there are beside.
fn rest(
    lines: &mut Vec<String>,
    of: Vec<&Value>,
    most: usize,
    show: impl Fn(&Value) -> Vec<String>,
) {
    let beyond = of.len().saturating_sub(most);
    let shown = of.into_iter().take(most).flat_map(show);
    lines.extend(shown);
    if beyond > 0 {
        lines.push(format!("  and {beyond} more: weir status --json"));
    }
}

fn disk(one: &Value) -> Vec<String> {
    let size = short_size(one["bytes"].as_u64().unwrap_or(0));
    let of_pool = one["pool"].as_str().map_or_else(String::new, |pool| format!("{pool}: "));
    let read_only = if one["read_only"] == true { ", read-only" } else { "" };
    let is_degraded = !items(&one["degraded"]).is_empty();
    let line = format!(
        "{}{:<9}{size:>8} {:<4} {:<11}{:>8}{:>8}{:>7}  {}",
        if is_degraded { "! " } else { "  " },
        text(&one["name"]),
        text(&one["mode"]),
        text(&one["scheduler"]),
        format!("{}x{}", one["queues"], one["depth"]),
        one["clients"].to_string(),
        one["errors"].to_string(),
        text(&one["write_cache"]),
    );
    let target = text(&one["target"]);
    // A pool has no target of its own.
    let below = (!target.is_empty()).then(|| format!("    {of_pool}{target}{read_only}"));
    [Some(line), below].into_iter().flatten().collect()
}

fn client(one: &Value) -> String {
    let name = format!("{}/{}/{}", text(&one["front"]), text(&one["export"]), one["number"]);
    let bytes = short_size(one["bytes"].as_u64().unwrap_or(0));
    format!("  {name:<20} {bytes:>9} in {} I/Os, {}", one["ios"], text(&one["address"]))
}

/// Exports with a rule of polling that are named.
const POLLING_EXPORTS: usize = 3;

/// How the threads wait, unless they sleep as ever.
fn polling(of: &Value) -> Vec<String> {
    let exports = items(&of["exports"]);
    let mut lines: Vec<String> = cost_of_polling(of, &exports).into_iter().collect();
    rest(&mut lines, exports, POLLING_EXPORTS, |one| {
        let named = format!("{}/{}", text(&one["front"]), text(&one["export"]));
        let poll = match one["poll"].as_str() {
            Some(_) => text(&one["poll"]),
            None => text(&of["poll"]),
        };
        let share = if one["share_pct"].is_null() { &of["share_pct"] } else { &one["share_pct"] };
        vec![format!("  {named:<20} polling {}", rule(&poll, share))]
    });
    lines
}

/// A rule in words.
fn rule(poll: &str, share: &Value) -> String {
    if poll == "adaptive" { format!("{poll} {share} %") } else { String::from(poll) }
}

/// The rule of the daemon, the threads that follow a stronger one now, and the cost of it all.
fn cost_of_polling(of: &Value, exports: &[&Value]) -> Option<String> {
    let poll = text(&of["poll"]);
    let now = items(&of["reactors"]).iter().filter(|one| one["poll"] != "off").count();
    if poll == "off" && exports.is_empty() && now == 0 || poll.is_empty() {
        return None;
    }
    let rule = rule(&poll, &of["share_pct"]);
    let seconds = |us: &Value| us.as_u64().unwrap_or(0) as f64 / 1e6;
    let (polled, vain) = (seconds(&of["polled_us"]), seconds(&of["vain_us"]));
    let (threads, met) = (&of["threads"], &of["met"]);
    // Without rules of exports all threads follow the daemon's.
    let now = if exports.is_empty() { String::new() } else { format!("{now} of ") };
    Some(format!(
        "polling {rule}, {now}{threads} threads: {polled:.1} s of CPU ({vain:.1} in vain), {met} \
         sleeps saved"
    ))
}

fn items(of: &Value) -> Vec<&Value> {
    of.as_array().into_iter().flatten().collect()
}

/// A text for a terminal: names come from users, and a terminal obeys control characters.
fn text(of: &Value) -> String {
    of.as_str().unwrap_or_default().replace(char::is_control, "?")
}

/// A line that fits the screen.
fn fit(line: &str) -> String {
    if line.chars().count() <= COLUMNS {
        return String::from(line.trim_end());
    }
    line.chars().take(COLUMNS - 1).chain(['…']).collect()
}

/// A size in at most seven characters or so.
fn short_size(bytes: u64) -> String {
    let whole = show_size(bytes);
    if whole.len() <= 8 && !whole.ends_with("bytes") {
        return whole.replace(' ', "");
    }
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1}{unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

fn uptime(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60 % 60, seconds / 3600 % 24, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn disk_named(name: &str, degraded: &[&str]) -> Value {
        json!({
            "name": name, "pool": null, "target": "file:/srv/vm.img", "bytes": 10_u64 << 30,
            "read_only": false, "mode": "mq", "scheduler": "mq-deadline", "queues": 2,
            "depth": 128, "clients": 3, "errors": 0, "write_cache": "durability disabled",
            "degraded": degraded,
        })
    }

    fn state(disks: Vec<Value>, degraded: &[&str]) -> Value {
        json!({
            "version": "0.1.0", "pid": 4711, "uptime_ms": 93_784_000,
            "listeners": [{ "kind": "nbd", "place": "unix:/run/weir/nbd.sock" }],
            "disks": disks,
            "clients": { "count": 3, "busiest": [{
                "front": "nbd", "export": "a\u{1b}[2J", "number": 7, "address": "127.0.0.1:5",
                "ios": 50, "bytes": 204_800 }] },
            "errors": 2, "degraded": degraded,
        })
    }

    #[test]
    fn a_healthy_daemon_fits_a_screen_and_says_so() {
        let screen = of(&state(vec![disk_named("vm1", &[])], &[]));
        let expected = "\
weir 0.1.0, process 4711, up 1 d 2 h 3 min: healthy
listeners
  nbd      unix:/run/weir/nbd.sock
disks          size mode scheduler    queues clients errors  write cache
  vm1         10GiB mq   mq-deadline   2x128       3      0  durability disabled
    file:/srv/vm.img
clients 3, the busiest:
  nbd/a?[2J/7             200KiB in 50 I/Os, 127.0.0.1:5
errors  2 I/Os ended with one since the start
";
        assert_eq!(screen, expected, "{screen}");
    }

    #[test]
    fn a_daemon_that_polls_says_what_it_costs_and_what_it_saves() {
        let mut told = state(Vec::new(), &[]);
        let mut line = |poll: &str| {
            told["polling"] = json!({
                "poll": poll, "share_pct": 80, "threads": 2, "polls": 9, "met": 8,
                "polled_us": 93_250_000, "vain_us": 1_240_000,
            });
            let screen = of(&told);
            screen.lines().find(|line| line.starts_with("polling")).map(String::from)
        };
        let said = "2 threads: 93.2 s of CPU (1.2 in vain), 8 sleeps saved";
        assert_eq!(line("off"), None);
        assert_eq!(line("adaptive"), Some(format!("polling adaptive 80 %, {said}")));
        assert_eq!(line("always"), Some(format!("polling always, {said}")));
        told["polling"] = json!({
            "poll": "off", "share_pct": 70, "threads": 2, "polls": 9, "met": 8,
            "polled_us": 93_250_000, "vain_us": 1_240_000,
            "reactors": [{ "poll": "off", "share_pct": 70 }, { "poll": "always", "share_pct": 5 }],
            "exports": [
                { "front": "nbd", "export": "a", "poll": "adaptive", "share_pct": null },
                { "front": "nbd", "export": "b\u{1b}", "poll": null, "share_pct": 30 },
                { "front": "nbd", "export": "c", "poll": "adaptive", "share_pct": 30 },
                { "front": "nbd", "export": "d", "poll": "always", "share_pct": 5 },
            ],
        });
        let screen = of(&told);
        let expected = "\
polling off, 1 of 2 threads: 93.2 s of CPU (1.2 in vain), 8 sleeps saved
  nbd/a                polling adaptive 70 %
  nbd/b?               polling off
  nbd/c                polling adaptive 30 %
  and 1 more: weir status --json
";
        assert!(screen.contains(expected), "{screen}");
    }

    #[test]
    fn of_many_disks_the_degraded_are_shown_and_the_rest_is_counted() {
        let mut disks: Vec<Value> = (0..40).map(|n| disk_named(&format!("d{n}"), &[])).collect();
        disks[39] = disk_named("d39", &["a flush failed"]);
        let screen = of(&state(disks, &["disk d39: a flush failed"; 30]));
        assert!(screen.contains("d39 ") && screen.contains("and 32 more: weir status --json"));
        assert!(screen.contains("DEGRADED (30)") && screen.contains("and 20 more"), "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= COLUMNS), "{screen}");
        assert!(screen.lines().count() <= 48, "{screen}");
    }
}

//! The files of `weir`: what the daemon tells of itself.

use super::Tree;
use super::entry;
use crate::about::ThreadPolled;
use crate::config::Host;

type Attribute = entry::Attribute<Tree>;

/// Every file of `weir`.
pub const ATTRIBUTES: &[Attribute] = &[
    Attribute::tells(
        "clients",
        "",
        "none",
        "A document of all clients with the values of their files, and the weights of all groups.",
        |tree| tree.clients_document().to_string(),
    ),
    Attribute::tells(
        "listeners",
        "",
        "the configuration's",
        "Where the daemon can be reached: the kind and the place, a line each.",
        Tree::listeners,
    ),
    Attribute::tells("pid", "", "the system's", "Its process.", |_| std::process::id().to_string()),
    Attribute::tells(
        "poll",
        "",
        "off",
        "Whether its threads poll before they sleep, but for clients of exports that say \
         otherwise: off, adaptive or always.",
        |tree| {
            tree.about().map_or_else(String::new, |about| (about.polling)().rule.poll.to_string())
        },
    ),
    Attribute::tells(
        "poll_stat",
        "us",
        "0",
        "The cost and gain of polling, a line for each thread: waits that were polled, those that \
         ended meanwhile (sleeps saved), the CPU time it took, of that the part in vain, and the \
         rule that it follows now.",
        |tree| {
            let threads = tree.about().map(|about| (about.polling)().threads).unwrap_or_default();
            let lines = threads.iter().enumerate().map(|(index, thread)| {
                let ThreadPolled { rule, polls, met, polled_us, vain_us } = thread;
                let Host { poll, poll_share } = rule;
                format!(
                    "{index} polls={polls} met={met} polled_us={polled_us} vain_us={vain_us} \
                     poll={poll} poll_share={poll_share}"
                )
            });
            lines.collect::<Vec<_>>().join("\n")
        },
    ),
    Attribute::tells(
        "remarks",
        "",
        "no line",
        "Settings that act on nothing, a line each: the disk or pool, and the reason.",
        |tree| {
            let line = |(disk, remark): (String, String)| format!("{disk}: {remark}");
            tree.remarks().into_iter().map(line).collect::<Vec<_>>().join("\n")
        },
    ),
    Attribute::tells("status", "", "its state", "The document of `weir status --json`.", |tree| {
        tree.status().to_string()
    }),
    Attribute::tells("uptime_ms", "ms", "0", "How long it has run.", |tree| {
        tree.about().map_or(0, |about| (about.uptime_ms)()).to_string()
    }),
    Attribute::tells("version", "", "its own", "Its version.", |tree| {
        tree.about().map_or_else(String::new, |about| String::from(about.version))
    }),
];

/// The text of `proc/uptime`: seconds that the daemon has run, and those that the CPUs of the
/// machine had nothing to do in them. Statistics of disks count from there, and `iostat` divides
/// by it.
pub(crate) fn uptime(tree: &Tree) -> String {
    let ms = tree.about().map_or([0, 0], |about| [(about.uptime_ms)(), (about.idle_ms)()]);
    let [run, idle] = ms.map(|ms| format!("{}.{:02}", ms / 1000, ms % 1000 / 10));
    format!("{run} {idle}")
}

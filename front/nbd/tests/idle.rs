//! The cost of an idle server. Alone in its program, as it looks at the threads of the whole
//! process.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::*;
use weir_proto_nbd::client::Wanted;

/// Reactor threads: how often each has gone to sleep, and its processor time in ticks.
fn sleeps_and_ticks() -> (u64, u64) {
    let (mut sleeps, mut ticks) = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let stat = std::fs::read_to_string(path.join("stat")).unwrap();
        let (name, rest) = stat.rsplit_once(')').unwrap();
        if !name.contains("weir-reactor") {
            continue;
        }
        // User and system time are the 14th and 15th field; the 3rd is the first behind the name.
        let fields: Vec<&str> = rest.split_whitespace().collect();
        ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        sleeps += line.rsplit_once('\t').unwrap().1.parse::<u64>().unwrap();
    }
    (sleeps, ticks)
}

#[test]
fn an_idle_server_with_a_hundred_connections_sleeps() {
    let fixture = Fixture::on(Arc::new(weir_local::Null::new(1 << 30).unwrap()));
    let mut clients: Vec<Client> =
        (0..100).map(|_| fixture.client(Wanted::everything("sda"))).collect();
    clients.iter_mut().for_each(|client| drop(client.read(0, 65536 - 512)));
    // The handshakes' timer and the one that gives memory back run out once; then there is none. So
    // an interval longer than both without a wake-up has to come soon.
    let interval = Duration::from_secs(12);
    let mut seen = Vec::new();
    // A reactor that polls does not sleep either, but takes ticks.
    let slept_through = |(sleeps, ticks): &(u64, u64)| *sleeps == 0 && *ticks <= 1;
    while seen.len() < 4 && !seen.last().is_some_and(slept_through) {
        let before = sleeps_and_ticks();
        std::thread::sleep(interval);
        let after = sleeps_and_ticks();
        seen.push((after.0 - before.0, after.1 - before.1));
    }
    let quiet = seen.last().is_some_and(slept_through);
    assert!(quiet, "wake-ups and ticks of two reactors in each {interval:?}: {seen:?}");
    clients.into_iter().for_each(|client| drop(client.disconnect()));
    fixture.stop();
}

//! A task that awaits an I/O, beside one that has a thread answer it through channels: mpsc there,
//! oneshot back.

use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use weir::{Bio, Buf, Disk};
use weir_bench::cpu::process_time;
use weir_bench::rounds::Figure;

use crate::{Bed, in_turns};

/// Tasks, each with one I/O under way, and what each awaits in a round.
const TASKS: u64 = 64;
const EACH: u64 = 4_000;

/// ns for each I/O, of the clock and of CPU time.
pub fn run(bed: &Bed) {
    let runtime = Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let target = "null:1GiB,queues=1,scheduler=none";
    let disk = Disk::builder(target).reactors(1).open().expect("a disk of nothing");
    let (sender, receiver) = mpsc::channel::<Asked>(4096);
    let thread = std::thread::spawn(move || answer(receiver));
    let each = bed.work(EACH);
    let mut cpu = [Figure::default(), Figure::default()];
    let [weir, hop] = in_turns(bed, |which, counts| {
        let (began, used) = (Instant::now(), process_time());
        match which {
            0 => all(&runtime, |task| reads(disk.clone(), task, each)),
            _ => all(&runtime, |_| hops(sender.clone(), each)),
        }
        let ios = (TASKS * each) as f64;
        if counts {
            cpu[which].add((process_time() - used).as_nanos() as f64 / ios);
        }
        began.elapsed().as_nanos() as f64 / ios
    });
    disk.close().expect("it answers");
    drop(sender);
    thread.join().expect("it does not panic");
    let [weir_cpu, hop_cpu] = cpu;
    println!(
        "future on null, depth {TASKS}: {weir:.0} ns per I/O, channel hop {hop:.0} ns, more {:.0} \
         ns; must 100, aim 0; CPU time {weir_cpu:.0} and {hop_cpu:.0} ns",
        weir.median() - hop.median()
    );
}

/// Runs that many tasks to their end.
fn all<F: Future<Output = ()> + Send + 'static>(runtime: &Runtime, task: impl Fn(u64) -> F) {
    let tasks: Vec<_> = (0..TASKS).map(|number| runtime.spawn(task(number))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("it does not panic");
        }
    });
}

async fn reads(disk: Disk, task: u64, each: u64) {
    let mut buf = Buf::zeroed(4096);
    for number in 0..each {
        let bio = Bio::read((number * TASKS + task) % 65_536 * 16, buf);
        let data = disk.start(bio).await.into_result().expect("nothing fails");
        buf = data.into_spare().expect("what was brought");
    }
}

/// An I/O on its way to the thread.
struct Asked {
    bio: Bio,
    reply: oneshot::Sender<Bio>,
}

async fn hops(sender: mpsc::Sender<Asked>, each: u64) {
    let mut buf = Buf::zeroed(4096);
    for number in 0..each {
        let (reply, answer) = oneshot::channel();
        let asked = Asked { bio: Bio::read(number, buf), reply };
        sender.send(asked).await.expect("the thread is there");
        buf = answer.await.expect("an answer").data.into_spare().expect("what was brought");
    }
}

fn answer(mut asked: mpsc::Receiver<Asked>) {
    while let Some(Asked { bio, reply }) = asked.blocking_recv() {
        // A task that was dropped is not told.
        _ = reply.send(bio);
    }
}

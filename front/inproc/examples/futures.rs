//! Many asynchronous jobs on one thread, with no runtime but the twenty lines below.
//!
//! ```text
//! cargo run --release --example futures -- file:/disk.img,size=64M
//! ```

use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use weir::{Bio, Buf, Completion, Disk, Flags};

/// Jobs under way at one time.
const JOBS: u64 = 64;

/// Blocks each job writes and reads back.
const BLOCKS: u64 = 16;

/// Sectors of a block.
const SECTORS: u64 = 8;

fn main() -> ExitCode {
    let target = std::env::args().nth(1).unwrap_or_else(|| String::from("ram:64MiB"));
    match run(&target) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("futures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all jobs on one disk.
pub fn run(target: &str) -> Result<(), Box<dyn Error>> {
    let disk = Disk::open(target)?;
    let needed = JOBS * BLOCKS * SECTORS * 512;
    if disk.size() < needed {
        return Err(format!("the disk has {} bytes, this takes {needed}", disk.size()).into());
    }
    let jobs: Vec<_> = (0..JOBS).map(|number| Box::pin(job(disk.clone(), number))).collect();
    let done = block_on(all(jobs));
    let mut blocks = 0;
    for result in done {
        blocks += result?;
    }
    println!("{JOBS} jobs wrote, flushed and read back {blocks} blocks");
    disk.close()?;
    Ok(())
}

/// Writes some blocks, the last one durably, flushes, and reads them back.
async fn job(disk: Disk, number: u64) -> Result<u64, String> {
    let byte = |block: u64| (number * BLOCKS + block) as u8;
    let sector = |block: u64| (number * BLOCKS + block) * SECTORS;
    // All of them are under way before the first is waited for.
    let writes: Vec<_> = (0..BLOCKS)
        .map(|block| {
            let buf = Buf::filled(SECTORS as usize * 512, |bytes| bytes.fill(byte(block)));
            let last = if block + 1 == BLOCKS { Flags::FUA } else { Flags::NONE };
            disk.start(Bio::write(sector(block), buf).with(last))
        })
        .collect();
    for write in writes {
        check(&write.await, "write")?;
    }
    check(&disk.start(Bio::flush()).await, "flush")?;
    for block in 0..BLOCKS {
        let buf = Buf::zeroed(SECTORS as usize * 512);
        let read = disk.start(Bio::read(sector(block), buf)).await;
        check(&read, "read")?;
        let mut bytes = [0; SECTORS as usize * 512];
        read.data.copy_to(&mut bytes);
        if bytes.iter().any(|found| *found != byte(block)) {
            return Err(format!("job {number}: block {block} is not what was written"));
        }
    }
    Ok(BLOCKS)
}

fn check(ended: &Completion, what: &str) -> Result<(), String> {
    if ended.status.is_ok() { Ok(()) } else { Err(format!("{what}: {}", ended.status)) }
}

/// Polls a future on this thread, parked in between.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Polls every future that has not ended, whichever was woken, until all have.
async fn all<F: Future>(futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    std::future::poll_fn(move |context| {
        for (future, output) in &mut futures {
            if let Some(running) = future
                && let Poll::Ready(ready) = running.as_mut().poll(context)
            {
                (*future, *output) = (None, Some(ready));
            }
        }
        if futures.iter().any(|(future, _)| future.is_some()) {
            return Poll::Pending;
        }
        Poll::Ready(futures.iter_mut().filter_map(|(_, output)| output.take()).collect())
    })
    .await
}

//! A disk of the program's own behind four blocking calls, served over NBD from this process.
//!
//! ```text
//! cargo run --release --example server -- /tmp/numbers.sock
//! nbdinfo 'nbd+unix:///numbers?socket=/tmp/numbers.sock'
//! ```

use std::error::Error;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::RwLock;

use weir::nbd::{Export, Scope, Server, Settings};
use weir::{Address, Blocking, BlockingDriver, BlockingOptions, Disk};

/// The disk: each word of 8 bytes that was never written is its own number.
struct Numbers(RwLock<Vec<u8>>);

impl Numbers {
    fn new(bytes: u64) -> Numbers {
        Numbers(RwLock::new((0..bytes / 8).flat_map(u64::to_le_bytes).collect()))
    }
}

impl BlockingDriver for Numbers {
    fn size(&self) -> u64 {
        self.0.read().expect("no call panics").len() as u64
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let all = self.0.read().expect("no call panics");
        bytes.copy_from_slice(&all[offset as usize..][..bytes.len()]);
        Ok(bytes.len())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.write().expect("no call panics");
        all[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(()) // Memory: there is nothing more durable to put it into.
    }
}

/// Serves such a disk on a UNIX socket until both are dropped, or better stopped and closed.
pub fn serve(socket: &Path) -> Result<(Server, Disk), Box<dyn Error>> {
    let driver = Blocking::new(Numbers::new(1 << 20), BlockingOptions::new().threads(2))?;
    let disk = Disk::builder(driver).name("numbers").open()?;
    let exports = vec![Export::new("numbers", disk.device().clone())];
    let server = Server::new(disk.host(), exports, Settings::default())?;
    server.listen(&Address::Unix(socket.into()).into(), Scope::All)?;
    Ok((server, disk))
}

/// Lets clients read their replies for a second, then closes the disk.
pub fn stop(server: &Server, disk: &Disk) -> Result<(), Box<dyn Error>> {
    let cut_off = server.stop(1_000_000_000);
    println!("{cut_off} clients did not read their last replies; {}", disk.stats().line());
    Ok(disk.close()?)
}

fn run() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).ok_or("which socket? as in /tmp/numbers.sock")?;
    let (server, disk) = serve(Path::new(&socket))?;
    println!("nbdinfo 'nbd+unix:///numbers?socket={socket}'; a line here ends it");
    io::stdin().read_line(&mut String::new())?;
    stop(&server, &disk)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error}");
            ExitCode::FAILURE
        }
    }
}

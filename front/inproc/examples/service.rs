//! A storage service of tasks (tokio): clients on a socket put and get blocks. A client that is
//! quicker than the disk waits for a place, then for memory, and holds neither meanwhile.
//!
//! ```text
//! cargo run --release --example service -- file:/disk.img,size=64M
//! ```

use std::error::Error;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Builder;
use weir::{Bio, BufPool, Disk, Flags, Status};

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Blocks in memory at one time, whatever the number of clients.
const BUFFERS: usize = 16;

/// Clients of the check, and blocks that each puts and gets.
const CLIENTS: u8 = 24;
const BLOCKS: u8 = 32;

const PUT: u8 = 1;
const GET: u8 = 2;

fn main() -> ExitCode {
    let target = std::env::args().nth(1).unwrap_or_else(|| String::from("ram:64MiB"));
    match run(&target) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("service: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves the disk, and has clients put blocks and compare what they get.
pub fn run(target: &str) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    let socket = std::env::temp_dir().join(format!("weir-service-{}.sock", std::process::id()));
    runtime.block_on(async {
        // Neither of these blocks a worker: opening and closing have threads of their own.
        let disk = Disk::builder(target).open_async().await?;
        let needed = u64::from(CLIENTS) * u64::from(BLOCKS) * BLOCK as u64;
        if disk.size() < needed {
            return Err(format!("the disk has {} bytes, this takes {needed}", disk.size()).into());
        }
        let listener = UnixListener::bind(&socket)?;
        let service = tokio::spawn(serve(listener, disk.clone()));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let socket = socket.clone();
                tokio::spawn(async move { client(&socket, number).await })
            })
            .collect();
        let mut blocks = 0;
        for client in clients {
            blocks += client.await??;
        }
        service.abort();
        std::fs::remove_file(&socket)?;
        println!("{CLIENTS} clients put and got {blocks} blocks through {BUFFERS} buffers");
        Ok(disk.close_async().await?)
    })
}

/// A task for each connection; they share the disk and the memory.
async fn serve(listener: UnixListener, disk: Disk) -> io::Result<()> {
    let pool = BufPool::new(BLOCK, BUFFERS);
    loop {
        let (stream, _) = listener.accept().await?;
        let (disk, pool) = (disk.clone(), pool.clone());
        tokio::spawn(async move {
            if let Err(error) = connection(stream, disk, pool).await {
                eprintln!("a connection: {error}");
            }
        });
    }
}

async fn connection(mut stream: UnixStream, disk: Disk, pool: BufPool) -> io::Result<()> {
    loop {
        let op = match stream.read_u8().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            op => op?,
        };
        let sector = u64::from(stream.read_u32().await?) * (BLOCK / 512) as u64;
        // A place first, then memory: what waits for the disk holds no buffer.
        let permit = disk.reserve().await;
        let mut buf = pool.acquire().await;
        let bio = match op {
            PUT => {
                stream.read_exact(&mut buf).await?;
                Bio::write(sector, buf).with(Flags::FUA)
            }
            GET => Bio::read(sector, buf),
            _ => return Err(io::Error::other(format!("op={op} is neither {PUT} nor {GET}"))),
        };
        let ended = permit.start(bio).await;
        stream.write_i32(ended.status.errno()).await?;
        if op == GET && ended.status == Status::Ok {
            // Blocks that were never written have no memory: they are zeros.
            stream.write_all(&ended.data.to_vec()).await?;
        }
    }
}

/// Puts blocks, then gets them; how many were as they should be, which is all.
async fn client(socket: &Path, number: u8) -> io::Result<u64> {
    let mut stream = UnixStream::connect(socket).await?;
    for op in [PUT, GET] {
        for block in 0..BLOCKS {
            let mut bytes = vec![number ^ block; BLOCK];
            stream.write_u8(op).await?;
            stream.write_u32(u32::from(number) * u32::from(BLOCKS) + u32::from(block)).await?;
            if op == PUT {
                stream.write_all(&bytes).await?;
            }
            match stream.read_i32().await? {
                0 => {}
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
            if op == GET {
                stream.read_exact(&mut bytes).await?;
                if bytes.iter().any(|byte| *byte != number ^ block) {
                    let what = format!("client {number}: block {block} is not what was put");
                    return Err(io::Error::other(what));
                }
            }
        }
    }
    Ok(u64::from(BLOCKS))
}

//! A client of the test's own: every byte of the conversation is in its hands, the wrong ones too.
//!
//! It speaks the fixed newstyle handshake and simple replies, one socket, blocking, with a limit on
//! every wait. Source: the public NBD protocol text.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::PATIENCE;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;

pub const FUA: u16 = 1;

pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const GO: u32 = 7;
const ACK: u32 = 1;

/// A connection in the transmission phase.
pub struct Client {
    pub stream: UnixStream,
    pub size: u64,
    pub flags: u16,
    cookie: u64,
}

/// A connection that has read the greeting and answered it.
pub fn greeted(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    stream.write_all(&3_u32.to_be_bytes())?;
    Ok(stream)
}

/// The bytes of an option.
pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// One answer to an option: its type and its data.
pub fn option_reply(stream: &mut UnixStream) -> io::Result<(u32, Vec<u8>)> {
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    assert_eq!(header[..8], OPTION_REPLY_MAGIC.to_be_bytes());
    let mut data = vec![0; word(&header, 16) as usize];
    stream.read_exact(&mut data)?;
    Ok((word(&header, 12), data))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The bytes of a request's header.
pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

impl Client {
    #[track_caller]
    pub fn connect(socket: &Path, export: &str) -> Client {
        Client::try_connect(socket, export).expect("a connection")
    }

    pub fn try_connect(socket: &Path, export: &str) -> io::Result<Client> {
        let mut stream = greeted(socket)?;
        let mut data = (export.len() as u32).to_be_bytes().to_vec();
        data.extend(export.as_bytes());
        data.extend([0, 0]);
        stream.write_all(&option(GO, &data))?;
        let (mut size, mut flags) = (0, 0);
        loop {
            let (kind, data) = option_reply(&mut stream)?;
            match kind {
                ACK => return Ok(Client { stream, size, flags, cookie: 0 }),
                3 if data[..2] == [0, 0] => {
                    size = u64::from_be_bytes(data[2..10].try_into().expect("eight bytes"));
                    flags = u16::from_be_bytes(data[10..12].try_into().expect("two bytes"));
                }
                3 => {}
                error => panic!("export {export:?} is refused: {error:#x}"),
            }
        }
    }

    /// Sends a request; its cookie.
    pub fn send(
        &mut self,
        flags: u16,
        command: u16,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> io::Result<u64> {
        self.cookie += 1;
        let mut bytes = request(flags, command, self.cookie, offset, length);
        bytes.extend(payload);
        self.stream.write_all(&bytes)?;
        Ok(self.cookie)
    }

    /// The header of the next reply: its cookie and its error.
    pub fn reply(&mut self) -> io::Result<(u64, u32)> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header)?;
        assert_eq!(word(&header, 0), SIMPLE_REPLY_MAGIC, "no reply: {header:x?}");
        let cookie = u64::from_be_bytes(header[8..].try_into().expect("eight bytes"));
        Ok((cookie, word(&header, 4)))
    }

    /// The next reply, with so much data if it is of a read, which have the first two cookies; its
    /// cookie.
    pub fn reply_with(&mut self, length: usize) -> io::Result<u64> {
        let (cookie, error) = self.reply()?;
        assert_eq!(error, 0, "request {cookie}");
        if cookie <= 2 {
            self.stream.read_exact(&mut vec![0; length])?;
        }
        Ok(cookie)
    }

    /// Does one thing without data in its reply; its error.
    pub fn one(&mut self, flags: u16, command: u16, offset: u64, length: u32) -> io::Result<u32> {
        let sent = self.send(flags, command, offset, length, &[])?;
        let (cookie, error) = self.reply()?;
        assert_eq!(cookie, sent);
        Ok(error)
    }

    /// Writes; the error.
    pub fn write(&mut self, flags: u16, offset: u64, payload: &[u8]) -> io::Result<u32> {
        let sent = self.send(flags, WRITE, offset, payload.len() as u32, payload)?;
        let (cookie, error) = self.reply()?;
        assert_eq!(cookie, sent);
        Ok(error)
    }

    /// Reads; the error if there was one.
    pub fn read(&mut self, offset: u64, length: u32) -> io::Result<Result<Vec<u8>, u32>> {
        let sent = self.send(0, READ, offset, length, &[])?;
        let (cookie, error) = self.reply()?;
        assert_eq!(cookie, sent);
        if error != 0 {
            return Ok(Err(error));
        }
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(Ok(data))
    }

    /// Says goodbye and waits until the server has closed.
    pub fn disconnect(mut self) -> io::Result<()> {
        self.send(0, DISC, 0, 0, &[])?;
        let left = self.stream.read(&mut [0])?;
        assert_eq!(left, 0, "bytes after the end");
        Ok(())
    }
}

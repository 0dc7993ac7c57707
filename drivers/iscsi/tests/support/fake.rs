//! Targets on loopback that do as a test says, built of the protocol's target machine.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use weir_proto_iscsi::target::{Asked, Profile, Target};
use weir_proto_iscsi::wire::{NO_TAG, Residual, ScsiCommand};

pub const NAME: &str = "iqn.2024-01.test:hostile";

/// What a target does when it has a command: bytes to send, and whether it then serves it.
pub type Deed = Box<dyn FnMut(&mut Target, &ScsiCommand, &mut Vec<u8>) -> bool + Send>;

/// What becomes of one connection.
pub enum Conduct {
    /// It is a target that does this.
    Target(Box<Profile>, Deed),
    /// It says these bytes at once, and then nothing.
    Says(Vec<u8>),
}

pub fn profile() -> Profile {
    let mut profile = Profile::new(super::name(NAME));
    profile.offer.time2wait_s = 0;
    profile
}

pub fn honest() -> Conduct {
    does(|_, _, _| true)
}

pub fn does(
    deed: impl FnMut(&mut Target, &ScsiCommand, &mut Vec<u8>) -> bool + Send + 'static,
) -> Conduct {
    Conduct::Target(Box::new(profile()), Box::new(deed))
}

/// Listens, and treats each connection as it says, the last one honestly; the port. Connections end
/// with the test.
pub fn target(conducts: Vec<Conduct>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    listens(listener, conducts);
    port
}

/// The same on a socket that listens already.
pub fn listens(listener: TcpListener, conducts: Vec<Conduct>) {
    std::thread::spawn(move || {
        let conducts = conducts.into_iter().chain(std::iter::repeat_with(honest));
        for (stream, conduct) in listener.incoming().zip(conducts) {
            let stream = stream.expect("a connection");
            std::thread::spawn(move || treat(stream, conduct));
        }
    });
}

pub fn treat(mut stream: TcpStream, conduct: Conduct) {
    let mut bytes = vec![0; 64 << 10];
    let (profile, mut deed) = match conduct {
        Conduct::Target(profile, deed) => (profile, deed),
        Conduct::Says(words) => {
            let _ = stream.write_all(&words);
            while stream.read(&mut bytes).is_ok_and(|got| got > 0) {}
            return;
        }
    };
    let mut target = Target::new(*profile);
    loop {
        let Ok(got @ 1..) = stream.read(&mut bytes) else { return };
        let (mut input, mut out, mut over) = (&bytes[..got], Vec::new(), false);
        while !over {
            match target.next(&mut input, &mut out) {
                Ok(Asked::NeedMore) => break,
                Ok(Asked::Command { command, .. }) => {
                    if deed(&mut target, &command, &mut out) {
                        serve(&mut target, &command, &mut out);
                    }
                }
                Ok(Asked::LoggedOut) | Err(_) => over = true,
                Ok(_) => {}
            }
        }
        if stream.write_all(&out).is_err() || over {
            let _ = stream.shutdown(Shutdown::Write);
            return;
        }
    }
}

/// Zeros, or success.
pub fn serve(target: &mut Target, command: &ScsiCommand, out: &mut Vec<u8>) {
    let (itt, expected) = (command.itt, command.expected as usize);
    if command.read {
        target.data_in((itt, 0, 0), &vec![0; expected], Some((0, Residual::None)), out);
    } else {
        target.respond(itt, (0, 0), Residual::None, &[], out);
    }
}

/// A disk of RAM behind one session: it asks for what did not come unasked, and hangs up once it
/// has had so many bytes of the data of writes.
pub struct Disk {
    target: Target,
    bytes: Arc<Mutex<Vec<u8>>>,
    hangs_up_after: usize,
    /// Writes under way, by tag.
    writes: BTreeMap<u32, WriteTask>,
}

struct WriteTask {
    command: ScsiCommand,
    /// Bytes that were asked for or came unasked.
    had: u32,
    /// Requests for data so far.
    asked: u32,
}

/// The first byte of a transfer. Blocks have 512 bytes.
fn start(command: &ScsiCommand) -> usize {
    let cdb = &command.cdb;
    let lba = match cdb[0] {
        0x28 | 0x2a => u64::from(u32::from_be_bytes([cdb[2], cdb[3], cdb[4], cdb[5]])),
        _ => u64::from_be_bytes(*cdb[2..].first_chunk().expect("a CDB of 16 bytes")),
    };
    lba as usize * 512
}

impl Disk {
    pub fn new(profile: Profile, bytes: &Arc<Mutex<Vec<u8>>>, hangs_up_after: usize) -> Disk {
        let (target, bytes) = (Target::new(profile), Arc::clone(bytes));
        Disk { target, bytes, hangs_up_after, writes: BTreeMap::new() }
    }

    /// Serves one connection to its end.
    pub fn serve(mut self, mut stream: TcpStream) {
        let (mut bytes, mut had) = (vec![0; 64 << 10], 0);
        while let Ok(got @ 1..) = stream.read(&mut bytes) {
            let (mut input, mut out) = (&bytes[..got], Vec::new());
            loop {
                match self.target.next(&mut input, &mut out) {
                    Ok(Asked::NeedMore) => break,
                    Ok(Asked::Data { itt, offset, bytes }) => {
                        had += bytes.len();
                        if had > self.hangs_up_after {
                            return;
                        }
                        let at = start(&self.writes[&itt].command) + offset as usize;
                        let mut disk = self.bytes.lock().expect("no panic");
                        disk[at..at + bytes.len()].copy_from_slice(bytes);
                    }
                    Ok(Asked::Command { command, .. }) => self.command(&command, &mut out),
                    Ok(Asked::DataEnd { itt, ttt, last: true, data_sn }) => {
                        // What follows unasked is announced by the command.
                        let unasked = data_sn.is_none() || ttt == NO_TAG;
                        self.goes_on(itt, unasked, &mut out);
                    }
                    Ok(Asked::LoggedOut) | Err(_) => {
                        let _ = stream.write_all(&out);
                        return;
                    }
                    Ok(_) => {}
                }
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    }

    fn command(&mut self, command: &ScsiCommand, out: &mut Vec<u8>) {
        self.target.open(64);
        if command.write {
            self.writes.insert(command.itt, WriteTask { command: *command, had: 0, asked: 0 });
            let agreed = *self.target.agreed().expect("a session");
            if command.last && !agreed.immediate_data {
                self.goes_on(command.itt, false, out);
            }
            return;
        }
        let (itt, at) = (command.itt, start(command));
        let data =
            self.bytes.lock().expect("no panic")[at..at + command.expected as usize].to_vec();
        let segment = 64 << 10;
        let count = data.chunks(segment).count();
        for (number, part) in data.chunks(segment).enumerate() {
            let status = (number + 1 == count).then_some((0, Residual::None));
            let place = (itt, number as u32, (number * segment) as u32);
            self.target.data_in(place, part, status, out);
        }
    }

    /// Asks for the next burst of a write, or ends it.
    fn goes_on(&mut self, itt: u32, unasked: bool, out: &mut Vec<u8>) {
        let agreed = *self.target.agreed().expect("a session");
        let WriteTask { command, had, asked } = self.writes.get_mut(&itt).expect("a write");
        if unasked {
            let most = command.expected.min(agreed.first_burst);
            let immediate = if agreed.immediate_data { most.min(agreed.segment_out) } else { 0 };
            *had = if agreed.initial_r2t { immediate } else { most };
        }
        let left = command.expected - *had;
        if left == 0 {
            self.writes.remove(&itt);
            return self.target.respond(itt, (0, 0), Residual::None, &[], out);
        }
        let (lun, place, number) = (command.lun, (*had, left.min(agreed.burst_max)), *asked);
        (*had, *asked) = (place.0 + place.1, number + 1);
        self.target.ask((itt, 7, number), lun, place, out);
    }
}

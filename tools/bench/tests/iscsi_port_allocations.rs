//! A port of the iSCSI initiator allocates nothing for a command once it is warm, whatever way the
//! data goes: copied, sent from where it lies, or received into the memory of a read.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use weir_bench::core::alloc::{Counting, is_counting, of_this_thread};
use weir_bio::{Buf, Data, Nanos};
use weir_driver_iscsi::{Iscsi, IscsiName, Options, Portal};
use weir_driver_scsi::{Command, Direction, Ends, Port, Transport};
use weir_proto_iscsi::target::{Asked, Profile, Target};
use weir_proto_iscsi::wire::{NO_TAG, Residual};
use weir_proto_scsi::Lun;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NAME: &str = "iqn.2001-04.com.example:disk";
const DEPTH: u16 = 32;
const SMALL: u32 = 4 << 10;
const LARGE: u32 = 96 << 10;

/// Serves one session: zeros, or success when all data of a write is there.
fn serve(mut client: TcpStream) -> std::io::Result<()> {
    let mut profile = Profile::new(IscsiName::new(NAME).expect("a name"));
    profile.offer.initial_r2t = true;
    profile.offer.first_burst = 8 << 10;
    let mut target = Target::new(profile);
    let (mut input, mut out, mut write) = (vec![0; 64 << 10], Vec::new(), None);
    loop {
        let got = client.read(&mut input)?;
        let (mut bytes, mut over) = (&input[..got], got == 0);
        while !over {
            match target.next(&mut bytes, &mut out) {
                Ok(Asked::NeedMore) => break,
                Ok(Asked::Command { command, .. }) if command.write => {
                    target.open(64);
                    write = Some(command);
                }
                Ok(Asked::Command { command, .. }) => {
                    target.open(64);
                    let zeros = vec![0; command.expected as usize];
                    let status = Some((0, Residual::None));
                    target.data_in((command.itt, 0, 0), &zeros, status, &mut out);
                }
                Ok(Asked::DataEnd { itt, data_sn: None, .. }) => {
                    let command = write.take().expect("its write");
                    if command.expected > 8 << 10 {
                        let rest = (8 << 10, command.expected - (8 << 10));
                        target.ask((itt, 1, 0), command.lun, rest, &mut out);
                    } else {
                        target.respond(itt, (0, 0), Residual::None, &[], &mut out);
                    }
                }
                Ok(Asked::DataEnd { itt, ttt, last: true, .. }) if ttt != NO_TAG => {
                    target.respond(itt, (0, 0), Residual::None, &[], &mut out);
                }
                Ok(Asked::LoggedOut) | Err(_) => over = true,
                Ok(_) => {}
            }
        }
        client.write_all(&out)?;
        out.clear();
        if over {
            return Ok(());
        }
    }
}

/// Memory of each command, and the lists that go down and come up with it.
struct Bed {
    memory: Vec<Option<Data>>,
    lent: Vec<Data>,
    ends: Ends,
    now: u64,
}

impl Bed {
    /// One round of commands, to their ends: allocations of this thread in the port's calls.
    fn round(&mut self, port: &mut dyn Port) -> u64 {
        let before = of_this_thread();
        for slot in 0..DEPTH {
            self.now += 1;
            let length = if slot % 4 < 2 { SMALL } else { LARGE };
            let direction =
                if slot % 2 == 0 { Direction::In(length) } else { Direction::Out(length) };
            self.lent.push(self.memory[usize::from(slot)].take().expect("it came back"));
            let command = Command { slot, lun: Lun::ZERO, cdb: &[0; 10], direction };
            port.send(&command, &mut self.lent, Nanos(self.now)).expect("room");
        }
        port.commit(Nanos(self.now));
        let mut done = 0;
        while done < DEPTH {
            port.reap(Nanos(self.now), &mut self.ends);
            let mut memory = self.ends.memory.drain(..);
            for end in &self.ends.commands {
                assert_eq!(end.memory, 1, "{end:?}");
                self.memory[usize::from(end.slot)] = memory.next();
            }
            drop(memory);
            done += self.ends.commands.len() as u16;
            self.ends.clear();
        }
        of_this_thread() - before
    }
}

#[test]
fn an_iscsi_port_allocates_nothing_for_a_command() {
    assert!(is_counting());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let target = std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("the initiator comes");
        client.set_nodelay(true).and_then(|()| serve(client)).expect("a sound initiator");
    });
    let portal = Portal::new(&format!("127.0.0.1:{port}")).expect("a portal");
    let name = IscsiName::new(NAME).expect("a name");
    let transport = Iscsi::new(name, Options::new(vec![portal])).expect("a target");
    let mut port = transport.open(0).expect("a session");
    let memory = |slot: u16| {
        let length = if slot % 4 < 2 { SMALL } else { LARGE };
        Some(Data::One(Buf::zeroed(length as usize)))
    };
    let mut bed = Bed {
        memory: (0..DEPTH).map(memory).collect(),
        lent: Vec::new(),
        ends: Ends::default(),
        now: 1,
    };
    // Buffers grow to what the load needs.
    (0..50).for_each(|_| _ = bed.round(&mut *port));
    let allocations: u64 = (0..50).map(|_| bed.round(&mut *port)).sum();
    assert_eq!(allocations, 0, "in 50 rounds of {DEPTH} commands");
    drop(port);
    target.join().expect("it was left");
}

//! From weir's words to the protocol's and back. Pure.

use weir_bio::{Flags, Op, Status};
use weir_proto_nbd::NbdError;
use weir_proto_nbd::wire::{Command, CommandFlags, TransmissionFlags as Offer};

/// The commands and flags a server takes, and how far durability was given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) flags: Offer,
    /// The longest range of a CACHE: servers treat it like the payload it is the forerunner of.
    pub(crate) payload_max: u32,
    pub(crate) barriers_off: bool,
}

/// The command for a request, or how it ends without asking the server.
pub(crate) fn command(
    op: Op,
    flags: Flags,
    length: u64,
    terms: &Terms,
) -> Result<(Command, CommandFlags), Status> {
    let offers = |flag| terms.flags.contains(flag);
    let fua = match flags.has(Flags::FUA) {
        true if offers(Offer::SEND_FUA) => CommandFlags::FUA,
        true if !terms.barriers_off => return Err(Status::NotSupp),
        _ => CommandFlags::EMPTY,
    };
    match op {
        Op::Read => Ok((Command::READ, CommandFlags::EMPTY)),
        Op::Write => Ok((Command::WRITE, fua)),
        Op::Flush if offers(Offer::SEND_FLUSH) => Ok((Command::FLUSH, CommandFlags::EMPTY)),
        // Nothing was written, or barriers are off: the device was accepted on these terms only.
        Op::Flush => Err(Status::Ok),
        Op::Discard if offers(Offer::SEND_TRIM) => Ok((Command::TRIM, fua)),
        Op::WriteZeroes if offers(Offer::SEND_WRITE_ZEROES) => {
            let mut wire = fua;
            if flags.has(Flags::NOUNMAP) {
                wire = wire | CommandFlags::NO_HOLE;
            }
            if flags.has(Flags::NOFALLBACK) {
                if !offers(Offer::SEND_FAST_ZERO) {
                    return Err(Status::NotSupp);
                }
                wire = wire | CommandFlags::FAST_ZERO;
            }
            Ok((Command::WRITE_ZEROES, wire))
        }
        Op::Prefetch if offers(Offer::SEND_CACHE) && length <= u64::from(terms.payload_max) => {
            Ok((Command::CACHE, CommandFlags::EMPTY))
        }
        // Doing nothing is a correct answer to a prefetch.
        Op::Prefetch => Err(Status::Ok),
        Op::Discard | Op::WriteZeroes | Op::SecureErase | Op::DrvIn | Op::DrvOut => {
            Err(Status::NotSupp)
        }
    }
}

/// The status of a request that the server answered with this error.
pub(crate) fn status(error: NbdError) -> Status {
    match error {
        // Permission and memory are the server's affair: asking again changes nothing.
        NbdError::Perm | NbdError::Io | NbdError::NoMem => Status::IoErr,
        NbdError::Inval | NbdError::Overflow => Status::Inval,
        NbdError::NoSpc => Status::NoSpc,
        NbdError::NotSup => Status::NotSupp,
        // The server goes away; another way to the data may stay.
        NbdError::Shutdown => Status::Transport,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Terms = Terms { flags: Offer::KNOWN, payload_max: 1 << 20, barriers_off: false };
    const NONE: Terms = Terms { flags: Offer::EMPTY, ..ALL };

    #[test]
    fn every_flag_reaches_the_wire() {
        let all = Flags::FUA | Flags::NOUNMAP | Flags::NOFALLBACK;
        let (zeroes, wire) = command(Op::WriteZeroes, all, 512, &ALL).unwrap();
        assert_eq!(zeroes, Command::WRITE_ZEROES);
        assert_eq!(wire, CommandFlags::FUA | CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO);
        let fua = Ok((Command::WRITE, CommandFlags::FUA));
        assert_eq!(command(Op::Write, Flags::FUA, 512, &ALL), fua);
        assert_eq!(
            command(Op::Discard, Flags::FUA, 512, &ALL),
            Ok((Command::TRIM, CommandFlags::FUA))
        );
    }

    #[test]
    fn fua_is_never_dropped_while_barriers_are_on() {
        assert_eq!(command(Op::Write, Flags::FUA, 512, &NONE), Err(Status::NotSupp));
        let off = Terms { barriers_off: true, ..NONE };
        let plain = Ok((Command::WRITE, CommandFlags::EMPTY));
        assert_eq!(command(Op::Write, Flags::FUA, 512, &off), plain);
    }

    #[test]
    fn what_the_server_lacks_is_answered_here() {
        for op in [Op::Discard, Op::WriteZeroes, Op::SecureErase, Op::DrvIn, Op::DrvOut] {
            assert_eq!(command(op, Flags::NONE, 512, &NONE), Err(Status::NotSupp), "{op:?}");
        }
        for op in [Op::Flush, Op::Prefetch] {
            assert_eq!(command(op, Flags::NONE, 0, &NONE), Err(Status::Ok), "{op:?}");
        }
        assert_eq!(command(Op::Prefetch, Flags::NONE, 2 << 20, &ALL), Err(Status::Ok));
        let slow = Terms { flags: Offer::SEND_WRITE_ZEROES, ..ALL };
        assert_eq!(command(Op::WriteZeroes, Flags::NOFALLBACK, 512, &slow), Err(Status::NotSupp));
    }
}

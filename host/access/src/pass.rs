//! Descriptors on their way to another process, over a UNIX socket: SCM_RIGHTS, unix(7).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::Address;

/// Descriptors in one message; the system takes 253 (unix(7)).
const AT_A_TIME: usize = 64;

/// The byte that goes with each message: one without any would not be sent.
const CARRIER: &[u8] = b".";

/// A socket that listens, on its way from one daemon to the next.
#[derive(Debug)]
pub struct Inherited {
    /// The address as the configuration states it, so perhaps with port 0.
    pub address: Address,
    /// It came from a service supervisor, which has it open too.
    pub passed: bool,
    /// The socket.
    pub fd: OwnedFd,
}

/// Sends descriptors, which stay open here.
///
/// # Errors
/// The system's.
pub fn send_descriptors(socket: &impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    for some in descriptors.chunks(AT_A_TIME) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_A_TIME))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(some)), "there is space for them");
        let sent = sendmsg(socket, &[IoSlice::new(CARRIER)], &mut control, SendFlags::NOSIGNAL)?;
        assert_eq!(sent, CARRIER.len(), "a stream takes one byte or none");
    }
    Ok(())
}

/// Receives so many descriptors, sent by [`send_descriptors`]; they are closed in a program that
/// is started from here.
///
/// # Errors
/// The system's; `UnexpectedEof` when the stream ends, `InvalidData` when it carries others.
pub fn receive_descriptors(socket: &impl AsFd, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut received = Vec::new();
    while received.len() < count {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_A_TIME))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let message = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = received.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                received.extend(descriptors);
            }
        }
        if byte != *CARRIER || received.len() == before || received.len() > count {
            let what = format!("{} descriptors came where {count} were told", received.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn any_number_of_descriptors_arrives_in_order_and_usable() {
        for count in [0, 1, AT_A_TIME, AT_A_TIME + 1, 3 * AT_A_TIME] {
            let (here, there) = UnixStream::pair().expect("a pair");
            let pairs: Vec<_> = (0..count).map(|_| UnixStream::pair().expect("a pair")).collect();
            let sent: Vec<_> = pairs.iter().map(|(ours, _)| ours.as_fd()).collect();
            send_descriptors(&here, &sent).expect("they are sent");
            let received = receive_descriptors(&there, count).expect("they arrive");
            assert_eq!(received.len(), count);
            for (number, (fd, (_, theirs))) in received.into_iter().zip(&pairs).enumerate() {
                UnixStream::from(fd).write_all(&[number as u8]).expect("it is open");
                let mut byte = [0];
                (&*theirs).read_exact(&mut byte).expect("a byte");
                assert_eq!(byte, [number as u8]);
            }
        }
    }

    #[test]
    fn an_end_and_other_bytes_are_told_apart_from_descriptors() {
        let (here, there) = UnixStream::pair().expect("a pair");
        (&here).write_all(b".").expect("a byte");
        let error = receive_descriptors(&there, 1).expect_err("no descriptor came");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        send_descriptors(&here, &[here.as_fd(), here.as_fd()]).expect("they are sent");
        let error = receive_descriptors(&there, 1).expect_err("one too many");
        assert!(error.to_string().contains("2 descriptors came where 1 were told"), "{error}");
        drop(here);
        let error = receive_descriptors(&there, 1).expect_err("the end");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

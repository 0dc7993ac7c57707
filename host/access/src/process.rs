//! What the kernel tells of a client's process.

/// The I/O priority that was given to a process or thread of this machine, as ioprio_get(2) has it:
/// the class in the upper three bits, 0 if nothing was given. `None` for one that is not there, and
/// for the number 0, which is that of a process that is not seen from here.
#[must_use]
pub fn io_priority(process: u32) -> Option<u16> {
    // For 0 the kernel would tell of the thread that asks.
    let process = i32::try_from(process).ok().filter(|process| *process > 0)?;
    // Of what was given, bits above 15 mean nothing.
    u16::try_from(ioprio_get(process)).ok()
}

/// The system call, for which the C library has no function; negative if it fails.
#[expect(unsafe_code)]
fn ioprio_get(process: i32) -> i64 {
    const OF_A_PROCESS: i32 = 1;
    // SAFETY: the call takes two numbers, and reads and writes no memory of this process.
    unsafe { libc::syscall(libc::SYS_ioprio_get, OF_A_PROCESS, process) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_of_a_process_that_is_not_seen() {
        assert!(io_priority(std::process::id()).is_some());
        assert_eq!(io_priority(0), None);
        assert_eq!(io_priority(i32::MAX as u32), None);
        assert_eq!(io_priority(u32::MAX), None);
    }
}

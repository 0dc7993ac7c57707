//! `cargo xtask without-uring COMMAND`: a command to which the kernel refuses io_uring with EPERM,
//! as the system call filters (seccomp) of many containers do. What it starts is refused it too.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use crate::workspace::Error;

/// `io_uring_setup`, which has this number wherever the filter's library runs.
const IO_URING_SETUP: i64 = 425;

/// The operation is not permitted: this number there too.
const EPERM: u32 = 1;

/// Becomes the command; comes back only if that cannot be started.
pub fn run(command: &[String]) -> Result<bool, Error> {
    let Err(error) = become_refused(command);
    Err(error)
}

fn become_refused(command: &[String]) -> Result<Infallible, Error> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let filter = filter().map_err(|error| format!("a filter of system calls: {error}"))?;
    seccompiler::apply_filter(&filter)
        .map_err(|error| format!("a filter of system calls is not taken: {error}"))?;
    let error = Command::new(program).args(arguments).exec();
    Err(format!("{program}: {error}"))
}

fn filter() -> Result<BpfProgram, seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // No condition: whatever the arguments.
    let refused = BTreeMap::from([(IO_URING_SETUP, Vec::new())]);
    let (others, these) = (SeccompAction::Allow, SeccompAction::Errno(EPERM));
    Ok(SeccompFilter::new(refused, others, these, arch)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_refused_io_uring_and_nothing_else() {
        // The filter is that of the thread that takes it, and of what it starts.
        let taken = std::thread::spawn(|| {
            seccompiler::apply_filter(&filter().unwrap()).unwrap();
            let refused = io_uring::IoUring::new(1).err().expect("a ring was given");
            (refused.raw_os_error(), Command::new("true").status().unwrap().success())
        });
        assert_eq!(taken.join().unwrap(), (Some(EPERM as i32), true));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let taken = std::thread::spawn(|| run(&["no-such-program".to_owned(), "-x".to_owned()]));
        let error = taken.join().unwrap().unwrap_err();
        assert!(error.starts_with("no-such-program: "), "{error}");
    }
}

//! The exported functions of a queue: the header says what each does.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use libc::{iovec, timespec};
use weir::{Op, Segment};

use crate::call::{Failure, Outcome, guarded};
use crate::queue::{Ended, Queue, SEGMENTS_MAX, TRANSFER_MAX};
use crate::slots::Ask;

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_read(
    queue: *mut Queue,
    start: u64,
    buf: *mut c_void,
    len: usize,
    user_data: *mut c_void,
    flags: u32,
) -> c_int {
    let pieces = [iovec { iov_base: buf, iov_len: len }];
    // SAFETY: a queue and memory that stay, by the header.
    unsafe { transfer(queue, ask(Op::Read, start, user_data, flags), || Ok(&pieces)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_write(
    queue: *mut Queue,
    start: u64,
    buf: *const c_void,
    len: usize,
    user_data: *mut c_void,
    flags: u32,
) -> c_int {
    // A write only reads it.
    let pieces = [iovec { iov_base: buf.cast_mut(), iov_len: len }];
    // SAFETY: as in `weirq_read`.
    unsafe { transfer(queue, ask(Op::Write, start, user_data, flags), || Ok(&pieces)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_readv(
    queue: *mut Queue,
    start: u64,
    pieces: *const iovec,
    count: c_int,
    user_data: *mut c_void,
    flags: u32,
) -> c_int {
    // SAFETY: a table of so many pieces, by the header.
    let pieces = || unsafe { table(pieces, count) };
    // SAFETY: as in `weirq_read`.
    unsafe { transfer(queue, ask(Op::Read, start, user_data, flags), pieces) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_writev(
    queue: *mut Queue,
    start: u64,
    pieces: *const iovec,
    count: c_int,
    user_data: *mut c_void,
    flags: u32,
) -> c_int {
    // SAFETY: as in `weirq_readv`.
    let pieces = || unsafe { table(pieces, count) };
    // SAFETY: as in `weirq_read`.
    unsafe { transfer(queue, ask(Op::Write, start, user_data, flags), pieces) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_write_zeroes(
    queue: *mut Queue,
    start: u64,
    len: u64,
    user_data: *mut c_void,
    flags: u32,
) -> c_int {
    let ask = Ask { len, ..ask(Op::WriteZeroes, start, user_data, flags) };
    // SAFETY: a queue, by the header.
    unsafe { bare(queue, ask) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_discard(
    queue: *mut Queue,
    start: u64,
    len: u64,
    user_data: *mut c_void,
    flags: u32,
) -> c_int {
    let ask = Ask { len, ..ask(Op::Discard, start, user_data, flags) };
    // SAFETY: a queue, by the header.
    unsafe { bare(queue, ask) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_flush(queue: *mut Queue, user_data: *mut c_void, flags: u32) -> c_int {
    // SAFETY: a queue, by the header.
    unsafe { bare(queue, ask(Op::Flush, 0, user_data, flags)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_do_io(
    queue: *mut Queue,
    completions: *mut Ended,
    min_completions: c_int,
    max_completions: c_int,
    timeout: *const timespec,
) -> c_int {
    guarded(|| {
        // SAFETY: a queue, by the header.
        let queue = unsafe { of(queue) }?;
        let (least, most) = (min_completions, max_completions);
        if least < 0 || most < least {
            let what = format!("min_completions={least} is outside 0..=max_completions={most}");
            return Err(Failure::invalid(what));
        }
        if completions.is_null() && most > 0 {
            return Err(Failure::null("completions"));
        }
        // SAFETY: null, or a time, by the header.
        let time = unsafe { timeout.as_ref() }.map(ns_of).transpose()?;
        let out: &mut [MaybeUninit<Ended>] = if most == 0 {
            &mut []
        } else {
            // SAFETY: places for `most` completions, by the header; they are written only.
            unsafe { std::slice::from_raw_parts_mut(completions.cast(), most as usize) }
        };
        queue.lock()?.do_io(out, least as usize, time).map(|count| count as c_int)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_get_completion_fd(queue: *mut Queue) -> c_int {
    // SAFETY: a queue, by the header.
    guarded(|| Ok(unsafe { of(queue) }?.lock()?.fd()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weirq_set_completion_fd_enabled(queue: *mut Queue, enable: bool) -> c_int {
    guarded(|| {
        // SAFETY: a queue, by the header.
        unsafe { of(queue) }?.lock()?.set_telling(enable);
        Ok(0)
    })
}

fn ask(op: Op, offset: u64, user_data: *mut c_void, flags: u32) -> Ask {
    Ask { op, offset, len: 0, flags, user_data: user_data.expose_provenance() }
}

fn ns_of(time: &timespec) -> Outcome<u64> {
    let (seconds, ns) = (time.tv_sec, time.tv_nsec);
    if seconds < 0 || !(0..1_000_000_000).contains(&ns) {
        let what = format!(
            "timeout={{{seconds} s, {ns} ns}}: seconds below 0, or ns outside \
                            0..1000000000"
        );
        return Err(Failure::invalid(what));
    }
    // What has no place is 584 years.
    Ok((seconds as u64).saturating_mul(1_000_000_000).saturating_add(ns as u64))
}

/// A read or write of these pieces of memory.
///
/// # Safety
/// The pointer is null or a queue whose disk is not destroyed before the call ends. The memory of
/// the pieces is as the header has it: it stays, and for a read may be written, until the
/// completion, or as long as `memory-held` counts it.
unsafe fn transfer<'a>(
    queue: *mut Queue,
    ask: Ask,
    pieces: impl FnOnce() -> Outcome<&'a [iovec]>,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let queue = unsafe { of(queue) }?;
        let pieces = pieces()?;
        let mut queue = queue.lock()?;
        let mut segments = std::mem::take(&mut queue.segments);
        let taken = take_segments(pieces, &mut segments);
        // SAFETY: the caller's promise is that of `start`.
        let started = taken.and_then(|len| unsafe { queue.start(Ask { len, ..ask }, &segments) });
        queue.segments = segments;
        started.map(|()| 0)
    })
}

/// # Safety
/// As [`of`].
unsafe fn bare(queue: *mut Queue, ask: Ask) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise, and there is no memory.
        unsafe { of(queue)?.lock()?.start(ask, &[]) }.map(|()| 0)
    })
}

/// Makes segments of the memory, and says how long they are together.
fn take_segments(pieces: &[iovec], segments: &mut Vec<Segment>) -> Outcome<u64> {
    segments.clear();
    let mut len = 0_u64;
    for (index, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.iov_len > 0) {
        let Some(start) = NonNull::new(piece.iov_base.cast::<u8>()) else {
            let bytes = piece.iov_len;
            return Err(Failure::invalid(format!("piece {index} of {bytes} bytes is at NULL")));
        };
        len = len.saturating_add(piece.iov_len as u64);
        if len > TRANSFER_MAX {
            let what = format!("length={len} is above max-transfer={TRANSFER_MAX}");
            return Err(Failure::invalid(what));
        }
        segments.push(Segment { start, len: piece.iov_len as u32 });
    }
    Ok(len)
}

/// # Safety
/// The pointer is null, or a table of so many pieces that does not change before the call ends.
unsafe fn table<'a>(pieces: *const iovec, count: c_int) -> Outcome<&'a [iovec]> {
    let places = usize::try_from(count).ok().filter(|count| *count <= SEGMENTS_MAX);
    let Some(places) = places else {
        let what = format!("count={count} of pieces is outside 0..=max-segments={SEGMENTS_MAX}");
        return Err(Failure::invalid(what));
    };
    if places == 0 {
        return Ok(&[]);
    }
    if pieces.is_null() {
        return Err(Failure::null("pieces"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pieces, places) })
}

/// # Safety
/// The pointer is null, or one of `weir_get_queue` whose disk is not destroyed before the call
/// ends.
unsafe fn of<'a>(queue: *mut Queue) -> Outcome<&'a Queue> {
    // SAFETY: the caller's promise; all that is in it is behind a lock.
    unsafe { queue.as_ref() }.ok_or_else(|| Failure::null("queue"))
}

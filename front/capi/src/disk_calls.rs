//! The exported functions of a disk: the header says what each does.

use std::ffi::{CStr, c_char, c_int};

use crate::call::{Failure, Outcome, guarded, guarded_or, message, words};
use crate::disk::Weir;
use crate::property::{self, Value};
use crate::queue::Queue;

/// `WEIR_ABI` of the header.
const ABI: c_int = 0;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version without a zero byte"),
    };

#[unsafe(no_mangle)]
extern "C" fn weir_version() -> *const c_char {
    VERSION.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn weir_abi() -> c_int {
    ABI
}

#[unsafe(no_mangle)]
extern "C" fn weir_get_error_msg() -> *const c_char {
    message()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_create(target: *const c_char, disk: *mut *mut Weir) -> c_int {
    guarded(|| {
        if disk.is_null() {
            return Err(Failure::null("disk"));
        }
        // SAFETY: a pointer for a handle, by the header; what it points to is not looked at.
        unsafe { disk.write(std::ptr::null_mut()) };
        // SAFETY: a text that ends with a zero, by the header.
        let made = Weir::create(unsafe { text("target", target) }?)?;
        // SAFETY: as above.
        unsafe { disk.write(Box::into_raw(Box::new(made))) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_destroy(disk: *mut *mut Weir) -> c_int {
    guarded(|| {
        if disk.is_null() {
            return Err(Failure::null("disk"));
        }
        // SAFETY: it points to a handle, by the header.
        let handle = unsafe { disk.read() };
        if handle.is_null() {
            return Ok(0);
        }
        // SAFETY: the handle is one of `weir_create` that was not destroyed, by the header.
        unsafe { &*handle }.check_idle()?;
        // SAFETY: as above.
        unsafe { disk.write(std::ptr::null_mut()) };
        // SAFETY: it came from `Box::into_raw` in `weir_create`, and no other call has it: by the
        // header, and as far as `check_idle` has seen.
        let made = unsafe { Box::from_raw(handle) };
        made.destroy().map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_connect(disk: *mut Weir) -> c_int {
    // SAFETY: a handle, by the header.
    guarded(|| unsafe { handle(disk) }?.lock()?.connect().map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_start(disk: *mut Weir) -> c_int {
    // SAFETY: a handle, by the header.
    guarded(|| unsafe { handle(disk) }?.lock()?.start().map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_get_queue(disk: *mut Weir, index: c_int) -> *mut Queue {
    let find = || {
        // SAFETY: a handle, by the header.
        let state = unsafe { handle(disk) }?.lock()?;
        let queue: *const Queue = state.queue(index.into())?;
        Ok(queue.cast_mut())
    };
    guarded_or(find, |_| std::ptr::null_mut())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_get_bool(disk: *mut Weir, name: *const c_char, to: *mut bool) -> c_int {
    let pick = |value: &Value| if let Value::Bool(value) = value { Some(*value) } else { None };
    // SAFETY: a handle, a text and a place for the value, by the header.
    unsafe { get(disk, name, to, "bool", pick) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_get_int(disk: *mut Weir, name: *const c_char, to: *mut c_int) -> c_int {
    let pick = |value: &Value| if let Value::Int(value) = value { Some(*value) } else { None };
    // SAFETY: as in `weir_get_bool`.
    unsafe { get(disk, name, to, "int", pick) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_get_uint64(disk: *mut Weir, name: *const c_char, to: *mut u64) -> c_int {
    let pick = |value: &Value| if let Value::Uint64(value) = value { Some(*value) } else { None };
    // SAFETY: as in `weir_get_bool`.
    unsafe { get(disk, name, to, "uint64", pick) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_get_str(
    disk: *mut Weir,
    name: *const c_char,
    to: *mut *mut c_char,
) -> c_int {
    let pick = |value: &Value| match value {
        // Of the C library's memory, as it is its caller's to free.
        // SAFETY: the text ends with a zero.
        Value::Str(value) => Some(unsafe { libc::strdup(value.as_ptr()) }),
        _ => None,
    };
    // SAFETY: as in `weir_get_bool`.
    let ended = unsafe { get(disk, name, to, "str", pick) };
    // SAFETY: it was written if the call has succeeded.
    if ended == 0 && unsafe { (*to).is_null() } {
        return guarded(|| Err(Failure::new(libc::ENOMEM, "no memory for a text")));
    }
    ended
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_set_bool(disk: *mut Weir, name: *const c_char, value: bool) -> c_int {
    // SAFETY: a handle and a text, by the header.
    unsafe { set(disk, name, || Ok(Value::Bool(value))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_set_int(disk: *mut Weir, name: *const c_char, value: c_int) -> c_int {
    // SAFETY: as in `weir_set_bool`.
    unsafe { set(disk, name, || Ok(Value::Int(value))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_set_uint64(disk: *mut Weir, name: *const c_char, value: u64) -> c_int {
    // SAFETY: as in `weir_set_bool`.
    unsafe { set(disk, name, || Ok(Value::Uint64(value))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn weir_set_str(
    disk: *mut Weir,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: a text, by the header.
    let value = || Ok(Value::Str(unsafe { text("value", value) }?.to_owned()));
    // SAFETY: as in `weir_set_bool`.
    unsafe { set(disk, name, value) }
}

/// # Safety
/// As [`handle`] and [`text`] have it, and `to` is null or a place for a value.
unsafe fn get<T>(
    disk: *mut Weir,
    name: *const c_char,
    to: *mut T,
    asked: &str,
    pick: impl Fn(&Value) -> Option<T>,
) -> c_int {
    guarded(|| {
        if to.is_null() {
            return Err(Failure::null("value"));
        }
        // SAFETY: the caller's promise.
        let (disk, name) = unsafe { (handle(disk)?, text("name", name)?) };
        let name = words("name", name)?;
        let value = property::get(&*disk.lock()?, name)?;
        let picked = pick(&value).ok_or_else(|| value.mismatch(name, asked))?;
        // SAFETY: the caller's promise; what it points to is not looked at.
        unsafe { to.write(picked) };
        Ok(0)
    })
}

/// # Safety
/// As [`handle`] and [`text`] have it.
unsafe fn set(disk: *mut Weir, name: *const c_char, value: impl Fn() -> Outcome<Value>) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (disk, name) = unsafe { (handle(disk)?, text("name", name)?) };
        let value = value()?;
        property::set(&mut *disk.lock()?, words("name", name)?, &value).map(|()| 0)
    })
}

/// # Safety
/// The pointer is null, or a handle of `weir_create` that is not destroyed before the call ends.
unsafe fn handle<'a>(disk: *mut Weir) -> Outcome<&'a Weir> {
    // SAFETY: the caller's promise; all that is in it is behind a lock.
    unsafe { disk.as_ref() }.ok_or_else(|| Failure::null("disk"))
}

/// # Safety
/// The pointer is null, or a text that ends with a zero and does not change before the call ends.
unsafe fn text<'a>(name: &str, text: *const c_char) -> Outcome<&'a CStr> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

//! The environment that makes a program use the library: LD_PRELOAD and the variables of `uncork run`. Servers clear
//! theirs, for themselves or for the programs that they start (Postfix, Dovecot, `systemd-socket-activate`). So it is
//! remembered as it was at the start, and a program that inherits a listener on the stack gets these variables, too:
//! without the library it would wait for ever for connections that come to the stack. Other programs have the environment
//! that they are given.

use core::cell::{Cell, RefCell};
use core::ffi::CStr;
use core::mem::ManuallyDrop;
use core::ptr;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;

use libc::{c_char, c_int};
use uncork_guardian::VARIABLE;

use super::calls::{closes_on_exec, is_listening};
use super::{SOCKETS, is_bad, is_on, is_vfork_child};
use crate::jump::Registers;
use crate::{POSIX, start};

const PRELOAD: &str = "LD_PRELOAD";
/// The prefix of the variables of `uncork run`.
const OURS: &str = "UNCORK_";

/// An environment as execve(2) takes it: pointers to strings, and a null pointer after the last.
type Environment = *const *const c_char;

/// The environment at the start.
struct Heritage {
    /// The path of this library, if it was preloaded by its name.
    own_path: Option<CString>,
    /// `NAME=value`.
    variables: Vec<CString>,
}

static HERITAGE: OnceLock<Heritage> = OnceLock::new();

/// An environment that was made, kept for as long as the program that gets it is being started.
#[derive(Default)]
struct Made {
    entries: Vec<*const c_char>,
    preload: CString,
}

thread_local! {
    /// Whether a listener was duplicated for the program that this thread is about to start.
    static GIVES_DUPLICATE: Cell<bool> = const { Cell::new(false) };
    /// The environment of the program that this thread, or its child of vfork(2), starts in its memory.
    static MADE: RefCell<Made> = RefCell::default();
}

/// Remembers the environment that `uncork run` has made, if it has.
pub(super) fn remember() {
    if std::env::var_os(VARIABLE).is_some() {
        HERITAGE.get_or_init(|| Heritage { own_path: preloaded(), variables: variables() });
    }
}

fn preloaded() -> Option<CString> {
    let list = std::env::var_os(PRELOAD)?;
    let path = start::own_path()?;
    let is_listed = entries(list.as_bytes()).any(|entry| entry == path.to_bytes());
    (is_listed && path.to_bytes().starts_with(b"/")).then(|| path.to_owned())
}

/// Splits the list as the loader does (ld.so(8)).
fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|octet| matches!(octet, b' ' | b':'))
}

fn variables() -> Vec<CString> {
    let ours = std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(OURS.as_bytes()));
    ours.filter_map(|(name, value)| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
    })
    .collect()
}

/// Returns the value that a variable of ours had at the start.
pub(super) fn value_of(name: &str) -> Option<&'static str> {
    let all = &HERITAGE.get()?.variables;
    let value =
        |entry: &'static CString| entry.to_str().ok()?.strip_prefix(name)?.strip_prefix('=');
    all.iter().find_map(value)
}

/// Notes that a descriptor is duplicated for a program about to be started: by a child of vfork(2), or by posix_spawn(3).
pub(crate) fn gives_duplicate(fd: c_int) {
    if SOCKETS.is_listener(fd) {
        GIVES_DUPLICATE.set(true);
    }
}

/// Returns whether the program that is about to be started inherits a listener on the stack.
pub(crate) fn gives_listener() -> bool {
    let is_ours = is_vfork_child() || is_on() && !POSIX.is_other_process();
    let is_given = |fd: c_int| !closes_on_exec(fd) && is_listening(fd);
    is_ours && (GIVES_DUPLICATE.take() || SOCKETS.listeners().into_iter().any(is_given))
}

/// Completes the environment, which is this argument of a posix_spawn(3).
pub(crate) fn add_to_spawn(call: &mut Registers, position: usize) {
    add_at(call, position, till_next);
}

/// Completes the environment, which is this argument of an exec.
pub(crate) fn add_to_exec(call: &mut Registers, position: usize) {
    add_at(call, position, till_exec);
}

fn add_at(call: &mut Registers, position: usize, keep: fn(Made) -> Environment) {
    let argument = call.argument(position);
    // SAFETY: the program's own environment, passed to a function that reads it.
    if let Some(made) = unsafe { completed(*argument as Environment) } {
        *argument = keep(made) as usize;
    }
}

/// As [`add_to_exec`], for an environment that follows the program's arguments (execle(3)).
pub(crate) fn add_behind_arguments(call: &mut Registers) {
    let end = (1..).find(|&position| *call.argument(position) == 0);
    if let Some(end) = end {
        add_to_exec(call, end + 1);
    }
}

/// As [`add_to_exec`], for this process's own environment and a function that has none as its argument (execv(3)).
/// Returns whether the function that takes it there must be called instead.
pub(crate) fn add_as_argument(call: &mut Registers, position: usize) -> bool {
    // SAFETY: the program is about to have it read.
    let made = unsafe { completed(environ) };
    let is_made = made.is_some();
    if let Some(made) = made {
        *call.argument(position) = till_exec(made) as usize;
    }
    is_made
}

/// As [`add_to_exec`], for a function whose arguments have no known end (execl(3)). A child of vfork(2) shares `environ`
/// with its parent, and leaves it as it is.
pub(crate) fn add_to_own() {
    if is_vfork_child() {
        return;
    }
    // SAFETY: the program is about to have it read.
    unsafe {
        if let Some(made) = completed(environ) {
            environ = till_exec(made);
        }
    }
}

unsafe extern "C" {
    static mut environ: Environment;
}

/// Returns an environment with the variables that are remembered, if some of them are missing in this one.
///
/// # Safety
/// The caller passes an environment, or null, which the kernel takes for an empty one.
unsafe fn completed(given: Environment) -> Option<Made> {
    let heritage = HERITAGE.get()?;
    if is_bad(given) {
        // The kernel reports that.
        return None;
    }
    // SAFETY: as promised by the caller.
    let given = unsafe { strings_of(given) };
    let lacking: Vec<_> =
        heritage.variables.iter().filter(|one| !has_variable(&given, name_of(one))).collect();
    let preload = heritage.own_path.as_deref().and_then(|path| preload_with(path, &given));
    if lacking.is_empty() && preload.is_none() {
        return None;
    }
    let mut made = Made::default();
    // If a name has two entries, some programs use the first, others the last.
    let is_kept = |one: &&&CStr| preload.is_none() || name_of(one) != PRELOAD.as_bytes();
    made.entries.extend(given.iter().filter(is_kept).map(|one| one.as_ptr()));
    made.entries.extend(lacking.iter().map(|one| one.as_ptr()));
    if let Some(preload) = preload {
        made.preload = preload;
        made.entries.push(made.preload.as_ptr());
    }
    made.entries.push(ptr::null());
    Some(made)
}

/// Keeps the environment until this thread starts another program: by then the previous one has started.
fn till_next(made: Made) -> Environment {
    let entries = made.entries.as_ptr();
    // A thread whose own variables are gone already (a destructor that starts a program) leaves it behind.
    let mut made = ManuallyDrop::new(Some(made));
    let _ = MADE.try_with(|kept| made.take().map(|made| kept.replace(made)));
    entries
}

/// Keeps the environment until exec, after which nothing has to be freed; a child of fork(2) must not ask for locks that
/// another thread of its parent may have held.
fn till_exec(made: Made) -> Environment {
    if is_vfork_child() {
        return till_next(made);
    }
    let entries = made.entries.as_ptr();
    core::mem::forget(made);
    entries
}

/// # Safety
/// The caller passes pointers to strings, and a null pointer after the last; or null.
unsafe fn strings_of<'a>(given: Environment) -> Vec<&'a CStr> {
    let mut all = Vec::new();
    let mut next = given;
    // SAFETY: as promised by the caller.
    unsafe {
        while !next.is_null() && !(*next).is_null() {
            all.push(CStr::from_ptr(*next));
            next = next.add(1);
        }
    }
    all
}

fn name_of(entry: &CStr) -> &[u8] {
    entry.to_bytes().split(|octet| *octet == b'=').next().unwrap_or_default()
}

fn has_variable(all: &[&CStr], name: &[u8]) -> bool {
    all.iter().any(|one| name_of(one) == name)
}

/// Returns LD_PRELOAD with this library in front; None if it is in the list.
fn preload_with(path: &CStr, given: &[&CStr]) -> Option<CString> {
    let entry = given.iter().find(|one| name_of(one) == PRELOAD.as_bytes());
    let list = entry.and_then(|entry| entry.to_bytes().get(PRELOAD.len() + 1..)).unwrap_or(b"");
    if entries(list).any(|one| one == path.to_bytes()) {
        return None;
    }
    let between: &[u8] = if list.is_empty() { b"" } else { b":" };
    CString::new([PRELOAD.as_bytes(), b"=", path.to_bytes(), between, list].concat()).ok()
}

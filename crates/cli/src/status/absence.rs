//! Reasons why the library is not in a process, as far as /proc can tell.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::inspect::{Unloaded, unloaded};
use crate::library::{NAME, SECOND_NAME};

/// Says that the loader ran in secure-execution mode (`<elf.h>`; ld.so(8)). It is set by execve and
/// not changed by what the program does later, such as giving up privileges.
const AT_SECURE: u64 = 23;

/// Returns what follows "it is not in this process: "; `None` if nothing prevented it, as for a
/// program that nothing was preloaded into.
pub(super) fn reason(pid: i32) -> Option<String> {
    let of_process = |name: &str| format!("/proc/{pid}/{name}");
    if let Some(unloaded) = unloaded(of_process("exe").as_ref()) {
        return Some(static_program(unloaded).to_owned());
    }
    if fs::read(of_process("auxv")).is_ok_and(|vector| is_secure(&vector)) {
        return Some(
            "it was executed with privileges that its caller lacks (set-user-ID, set-group-ID or \
             file capabilities, or real and effective ids that differ), and then the loader takes \
             no preloaded library; where its configuration can keep it from changing its ids, let \
             it, and start it as that user"
                .to_owned(),
        );
    }
    let environment = fs::read(of_process("environ")).ok()?;
    let library = preloaded(&environment)?;
    Some(format!(
        "it was started with {library} in LD_PRELOAD, which its loader could not open or load: see \
         that the file is there as the process sees it (containers and chroot have roots of their \
         own), that the process may read it, and that it is built for the same architecture and libc"
    ))
}

fn static_program(kind: Unloaded) -> &'static str {
    match kind {
        Unloaded::Static => {
            "it is statically linked, so that no loader runs that could preload a library"
        }
        Unloaded::Go => {
            "it is a Go program without the C library, so that no loader runs that could preload \
             a library"
        }
    }
}

/// Returns whether the auxiliary vector, pairs of words, says so.
fn is_secure(vector: &[u8]) -> bool {
    let (words, _) = vector.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    words.chunks_exact(2).any(|pair| pair[0] == AT_SECURE && pair[1] != 0)
}

/// Returns the path of our library in LD_PRELOAD, whose entries are separated by spaces and colons.
fn preloaded(environment: &[u8]) -> Option<String> {
    let entry = environment.split(|&byte| byte == 0);
    let list = entry.filter_map(|entry| entry.strip_prefix(b"LD_PRELOAD=")).next()?;
    let path = list.split(|byte| matches!(byte, b':' | b' ')).find(|path| {
        let name = Path::new(OsStr::from_bytes(path)).file_name();
        name.is_some_and(|name| name == NAME || name == SECOND_NAME)
    })?;
    Some(String::from_utf8_lossy(path).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(secure: u64) -> Vec<u8> {
        let words = [6, 4096, AT_SECURE, secure, 0, 0];
        words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect()
    }

    #[test]
    fn secure_execution_is_read_from_the_auxiliary_vector() {
        assert!(is_secure(&vector(1)));
        assert!(!is_secure(&vector(0)));
        // 23 as the value of another entry, and a vector that is cut off.
        let other: Vec<u8> = [6, AT_SECURE, 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(!is_secure(&other));
        assert!(!is_secure(&[]));
    }

    #[test]
    fn our_library_is_found_among_what_is_preloaded() {
        let found = |list: &str| preloaded(format!("A=1\0LD_PRELOAD={list}\0B=2\0").as_bytes());
        assert_eq!(found("/a/x.so /b/libuncork.so").as_deref(), Some("/b/libuncork.so"));
        assert_eq!(found("libautocork.so:/a/x.so").as_deref(), Some("libautocork.so"));
        assert_eq!(found("/a/notlibuncork.so"), None);
        assert_eq!(preloaded(b"XLD_PRELOAD=libuncork.so\0"), None);
    }
}

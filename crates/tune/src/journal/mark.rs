//! The mark in bpffs that says to which journal an entry belongs: the journal's path, as a file name.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// File names are at most 255 octets long, and something precedes this one.
const LONGEST_BYTES: usize = 240;

/// Returns the mark of the journal in this directory, whether that exists or not.
#[must_use]
pub fn mark(directory: &Path) -> String {
    let place = fs::canonicalize(directory).or_else(|_| std::path::absolute(directory));
    let place = place.unwrap_or_else(|_| directory.to_owned());
    let mut mark = String::new();
    for byte in place.as_os_str().as_bytes() {
        // bpffs allows no dots.
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            mark.push(char::from(*byte));
        } else {
            let _ = write!(mark, "+{byte:02x}");
        }
    }
    if mark.len() <= LONGEST_BYTES { mark } else { format!("{:016x}", hash(mark.as_bytes())) }
}

/// Returns the path of a journal by its mark; `None` if its name was too long.
#[must_use]
pub fn place(mark: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let mut rest = mark.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'+' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = rest.get(2..)?;
        } else {
            bytes.push(*first);
        }
    }
    Some(PathBuf::from(OsString::from_vec(bytes))).filter(|place| place.is_absolute())
}

/// Computes FNV-1a (Fowler, Noll and Vo), which is the same in every version.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_the_place_of_the_journal() {
        let place_of = |text: &str| place(&mark(Path::new(text)));
        for path in ["/var/lib/uncork/tune", "/nowhere/a b.c/d+e-f", "/nowhere/\u{fc}"] {
            assert_eq!(place_of(path).as_deref(), Some(Path::new(path)));
        }
        let long = format!("/nowhere/{}", "x".repeat(300));
        assert!(mark(Path::new(&long)).len() == 16 && place_of(&long).is_none());
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(place(&mark(&directory.path().join("."))).unwrap(), directory.path());
    }

    #[test]
    fn a_hash_is_as_its_authors_have_it() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}

//! Finding the library in /proc/PID/maps.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::library::{NAME, SECOND_NAME};

/// The first mapping of the library in a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Address of its ELF header.
    pub(super) start: u64,
    /// The file, as the process sees it.
    pub(super) path: PathBuf,
}

/// Returns the first mappings of the library: more than one where it was preloaded from two places.
pub(super) fn libraries(maps: &[u8]) -> impl Iterator<Item = Mapping> {
    maps.split(|&byte| byte == b'\n').filter_map(mapping)
}

/// Parses a line: `START-END PERMISSIONS OFFSET DEVICE INODE          PATH[ (deleted)]`.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let path = &line[line.iter().position(|&byte| byte == b'/')?..];
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    if ![NAME, SECOND_NAME].iter().any(|ours| is_version_of(name, ours.as_bytes())) {
        return None;
    }
    let mut fields = line.split(|&byte| byte == b' ');
    let (start, _) = std::str::from_utf8(fields.next()?).ok()?.split_once('-')?;
    let offset = std::str::from_utf8(fields.nth(1)?).ok()?;
    if u64::from_str_radix(offset, 16).ok()? != 0 {
        return None;
    }
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        path: OsString::from_vec(unescaped(path)).into(),
    })
}

/// Returns whether the name is `libuncork.so`, or `libuncork.so.0.1`.
fn is_version_of(name: &[u8], ours: &[u8]) -> bool {
    name.strip_prefix(ours).is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

/// Decodes a path, in which the kernel writes a line feed as `\012`.
fn unescaped(path: &[u8]) -> Vec<u8> {
    const LINE_FEED: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, others)) = rest.split_first() {
        match rest.strip_prefix(LINE_FEED) {
            Some(after) => {
                plain.push(b'\n');
                rest = after;
            }
            None => {
                plain.push(first);
                rest = others;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str) -> Option<Mapping> {
        let maps = format!(
            "5581a0000000-5581a0001000 r--p 00000000 fe:00 12       /usr/bin/env\n\
             7f0000001000-7f0000002000 rw-p 00000000 00:00 0 \n\
             7f0000010000-7f0000020000 r-xp 00010000 fe:00 42       {path}\n\
             7f0000000000-7f0000010000 r--p 00000000 fe:00 42       {path}\n"
        );
        libraries(maps.as_bytes()).next()
    }

    #[test]
    fn the_library_is_known_by_both_names_and_by_where_its_file_begins() {
        for name in ["libuncork.so", "libautocork.so", "libuncork.so.0.1"] {
            let path = format!("/opt/with space/{name}");
            let mapping = found(&path).unwrap();
            assert_eq!(mapping, Mapping { start: 0x7f00_0000_0000, path: path.into() });
        }
    }

    #[test]
    fn a_deleted_file_and_a_line_feed_in_the_path_are_read_back() {
        let mapping = found("/opt/a\\012b/libuncork.so (deleted)").unwrap();
        assert_eq!(mapping.path, PathBuf::from("/opt/a\nb/libuncork.so"));
    }

    #[test]
    fn other_files_are_not_taken_for_it() {
        for path in
            ["/lib/libuncork.so/data", "/lib/libuncork.sox", "/lib/mylibuncork.so", "[vdso]"]
        {
            assert_eq!(found(path), None, "{path}");
        }
    }
}

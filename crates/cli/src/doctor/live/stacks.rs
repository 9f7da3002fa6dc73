//! Names for return addresses: the function from the symbol table of the file that is mapped
//! there, else the file and the offset in it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

/// Calls of a stack that are shown.
const SHOWN: usize = 6;
/// A larger file is not read for its symbols.
const LARGEST_BYTES: u64 = 512 << 20;

/// The symbols of all files that were met.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    files: HashMap<String, Option<File>>,
}

/// Functions of a file, by where they begin.
#[derive(Debug, Default)]
struct File {
    /// Address, length in octets, name; in order.
    functions: Vec<(u64, u64, String)>,
    /// Parts of the file, by offset and length, and the address that each is meant for.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    /// The innermost calls of a stack, by name.
    pub(super) fn name(&mut self, pid: u32, stack: &[u64]) -> Vec<String> {
        if stack.is_empty() {
            return Vec::new();
        }
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let maps: Vec<_> = maps.lines().filter_map(mapping).collect();
        let mut named: Vec<_> = stack.iter().map(|at| self.one(pid, *at, &maps)).collect();
        // What the C library adds says nothing about the program; but without frame pointers it
        // is all there is.
        let of_libc = |name: &String| name.contains("libc.so") || name.contains("ld-linux");
        let own = named.iter().position(|name| !of_libc(name)).unwrap_or(0);
        named.drain(..own);
        named.truncate(SHOWN);
        named
    }

    fn one(&mut self, pid: u32, address: u64, maps: &[Mapping<'_>]) -> String {
        let Some(map) = maps.iter().find(|map| (map.from..map.to).contains(&address)) else {
            return format!("{address:#x}");
        };
        let offset = address - map.from + map.offset;
        let short =
            Path::new(map.path).file_name().map_or(map.path.into(), |n| n.to_string_lossy());
        // As the process sees it: its root may be another one.
        let seen = format!("/proc/{pid}/root{}", map.path);
        let file = self.files.entry(map.path.to_owned()).or_insert_with(|| File::read(&seen));
        // A return address is behind the call.
        let function = file.as_ref().and_then(|file| file.function(offset.saturating_sub(1)));
        match function {
            Some(function) => format!("{function} ({short})"),
            None => format!("{short}+{offset:#x}"),
        }
    }
}

struct Mapping<'a> {
    from: u64,
    to: u64,
    offset: u64,
    path: &'a str,
}

/// A line of /proc/PID/maps (proc_pid_maps(5)): range, rights, offset, device, inode, path.
fn mapping(line: &str) -> Option<Mapping<'_>> {
    let mut fields = line.splitn(6, ' ');
    let (from, to) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let path = fields.nth(2)?.trim_start();
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let code = rights.contains('x') && path.starts_with('/');
    code.then_some(Mapping { from: hex(from)?, to: hex(to)?, offset, path })
}

impl File {
    fn read(path: &str) -> Option<Self> {
        if fs::metadata(path).ok()?.len() > LARGEST_BYTES {
            return None;
        }
        let bytes = fs::read(path).ok()?;
        let parsed = object::File::parse(&*bytes).ok()?;
        let symbols = parsed.symbols().chain(parsed.dynamic_symbols());
        let mut functions: Vec<_> = symbols
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
            .filter_map(|s| Some((s.address(), s.size(), s.name().ok()?.to_owned())))
            .collect();
        functions.sort_unstable();
        functions.dedup_by_key(|function| function.0);
        let segments = parsed.segments().map(|segment| {
            let (offset, bytes) = segment.file_range();
            (offset, bytes, segment.address())
        });
        Some(Self { functions, segments: segments.collect() })
    }

    fn function(&self, offset: u64) -> Option<&str> {
        let inside =
            |(from, bytes, _): &&(u64, u64, u64)| (*from..*from + *bytes).contains(&offset);
        let (from, _, meant) = self.segments.iter().find(inside)?;
        let address = offset - from + meant;
        let next = self.functions.partition_point(|(begin, _, _)| *begin <= address);
        let (begin, bytes, name) = self.functions.get(next.checked_sub(1)?)?;
        // Functions written in assembly have no length.
        (*bytes == 0 || address < begin + bytes).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_our_own_is_found_by_its_address() {
        let address = File::function as *const () as u64;
        let names = Symbols::default().name(std::process::id(), &[address + 1]);
        assert!(names[0].contains("function"), "{names:?}");
        let nowhere = Symbols::default().name(std::process::id(), &[1]);
        assert_eq!(nowhere, ["0x1"]);
    }

    #[test]
    fn only_code_is_taken_from_the_table() {
        let map = mapping("55d0-55f0 r-xp 00001000 08:01 42                     /usr/bin/a b");
        let map = map.unwrap();
        assert_eq!(
            (map.from, map.to, map.offset, map.path),
            (0x55d0, 0x55f0, 0x1000, "/usr/bin/a b")
        );
        assert!(mapping("55d0-55f0 rw-p 00001000 08:01 42 /usr/bin/a").is_none());
        assert!(mapping("7ffd-7fff r-xp 00000000 00:00 0 [vdso]").is_none());
    }
}

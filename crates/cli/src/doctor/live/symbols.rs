//! Resolves an address of a process: its mapping, the function by the symbol table of the file that
//! is mapped there or by the process's own perf map, and the unwind tables.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::Rc;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

use super::unwind::Tables;
use crate::output::shown;
use crate::pids;

/// The symbols of a larger file are not read.
const LARGEST_BYTES: u64 = 512 << 20;
/// Nor is a larger perf map.
const LARGEST_MAP_BYTES: u64 = 64 << 20;

/// The symbols of all files so far.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// Files by device, inode and change time: the same path is another file in another container,
    /// and after an upgrade.
    files: HashMap<(u64, u64, i64), Option<Rc<File>>>,
}

/// An executable file or a library.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Address, length in octets, name; sorted.
    functions: Vec<(u64, u64, String)>,
    /// Parts of the file, by offset and length, and the address at which each is to be loaded.
    segments: Vec<(u64, u64, u64)>,
    pub(super) tables: Tables,
}

/// A mapping of code in a process's memory.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) offset: u64,
    path: String,
    pub(super) file: Option<Rc<File>>,
}

/// A process's code, as it was mapped when it was read.
#[derive(Debug, Default)]
pub(super) struct Image {
    pub(super) mappings: Vec<Mapping>,
    /// Code that the process generated, from its perf map.
    made: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// Reads the code of a process; it is empty if the process is gone.
    pub(super) fn image(&mut self, pid: u32) -> Image {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mut mappings: Vec<_> = maps.lines().filter_map(mapping).collect();
        for mapping in &mut mappings {
            // By the process's own root directory, which may be another one.
            mapping.file = self.file(&format!("/proc/{pid}/root{}", mapping.path));
        }
        Image { mappings, made: made(pid) }
    }

    fn file(&mut self, path: &str) -> Option<Rc<File>> {
        let meta = fs::metadata(path).ok()?;
        let key = (meta.dev(), meta.ino(), meta.mtime());
        self.files.entry(key).or_insert_with(|| File::read(path).map(Rc::new)).clone()
    }
}

impl Image {
    /// Returns a name for this address. A return address follows the call: pass it less one.
    pub(super) fn name(&self, address: u64) -> String {
        let inside = |map: &&Mapping| (map.from..map.to).contains(&address);
        let Some(map) = self.mappings.iter().find(inside) else {
            let made = find(&self.made, address);
            return made.map_or_else(|| format!("{address:#x}"), ToOwned::to_owned);
        };
        let offset = address - map.from + map.offset;
        let short = Path::new(&map.path)
            .file_name()
            .map_or(map.path.as_str().into(), |n| n.to_string_lossy());
        match map.file.as_ref().and_then(|file| file.function(offset)) {
            Some(function) => shown(&format!("{function} ({short})")).into_owned(),
            None => format!("{}+{offset:#x}", shown(&short)),
        }
    }
}

/// Parses a line of /proc/PID/maps (proc_pid_maps(5)): range, permissions, offset, device, inode, path.
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (from, to) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let path = fields.nth(2)?.trim_start();
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let code = rights.contains('x') && path.starts_with('/');
    let path = path.to_owned();
    code.then_some(Mapping { from: hex(from)?, to: hex(to)?, offset, path, file: None })
}

/// Reads the map that programs with generated code write for perf (perf-PID.map; `python -X perf`,
/// `node --perf-basic-prof`). Like perf, it trusts none that another user has written.
fn made(pid: u32) -> Vec<(u64, u64, String)> {
    // The map is named by the number of the process in its own namespace.
    let own = pids::in_namespaces(pid).last().copied().unwrap_or(pid);
    let path = format!("/proc/{pid}/root/tmp/perf-{own}.map");
    let owner =
        |path: &str| fs::metadata(path).map(|meta| (meta.uid(), meta.len(), meta.is_file()));
    let (Ok((uid, ..)), Ok((writer, octets, true))) =
        (owner(&format!("/proc/{pid}")), owner(&path))
    else {
        return Vec::new();
    };
    if (writer != uid && writer != 0) || octets > LARGEST_MAP_BYTES {
        return Vec::new();
    }
    let text = fs::read(&path).unwrap_or_default();
    let mut made: Vec<_> = String::from_utf8_lossy(&text).lines().filter_map(made_line).collect();
    made.sort_unstable();
    made
}

/// Parses a line: begin and length in hexadecimal, then the name.
fn made_line(line: &str) -> Option<(u64, u64, String)> {
    let mut fields = line.splitn(3, ' ');
    let mut hex = || u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok();
    let (from, octets) = (hex()?, hex()?);
    Some((from, octets, shown(fields.next()?).into_owned()))
}

/// Returns the last function that begins at or before the address, if it extends that far.
fn find(functions: &[(u64, u64, String)], address: u64) -> Option<&str> {
    let next = functions.partition_point(|(begin, _, _)| *begin <= address);
    let (begin, octets, name) = functions.get(next.checked_sub(1)?)?;
    // Functions written in assembly have no length.
    (*octets == 0 || address - begin < *octets).then_some(name)
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
        let section = |name: &str| {
            let section = parsed.section_by_name(name)?;
            let data: Rc<[u8]> = section.uncompressed_data().ok()?.into_owned().into();
            Some((section.address(), data))
        };
        let tables = Tables {
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            debug_frame: section(".debug_frame").map(|(_, data)| data),
            got: parsed
                .section_by_name(".got")
                .map(|got| got.address()..got.address() + got.size()),
        };
        Some(Self { functions, segments: segments.collect(), tables })
    }

    /// Returns the address at which an offset in the file is to be loaded.
    pub(super) fn meant(&self, offset: u64) -> Option<u64> {
        let inside =
            |(from, bytes, _): &&(u64, u64, u64)| (*from..*from + *bytes).contains(&offset);
        let (from, _, meant) = self.segments.iter().find(inside)?;
        Some(offset - from + meant)
    }

    fn function(&self, offset: u64) -> Option<&str> {
        find(&self.functions, self.meant(offset)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_our_own_is_found_by_its_address() {
        let address = File::function as *const () as u64;
        let image = Symbols::default().image(std::process::id());
        let name = image.name(address);
        assert!(name.contains("function"), "{name}");
        assert_eq!(image.name(1), "0x1");
    }

    #[test]
    fn only_code_is_taken_from_the_table() {
        let map = mapping("55d0-55f0 r-xp 00001000 08:01 42                     /usr/bin/a b");
        let map = map.unwrap();
        let read = (map.from, map.to, map.offset, map.path.as_str());
        assert_eq!(read, (0x55d0, 0x55f0, 0x1000, "/usr/bin/a b"));
        assert!(mapping("55d0-55f0 rw-p 00001000 08:01 42 /usr/bin/a").is_none());
        assert!(mapping("7ffd-7fff r-xp 00000000 00:00 0 [vdso]").is_none());
    }

    #[test]
    fn code_that_a_process_makes_has_the_names_that_it_told_perf() {
        let own = std::process::id();
        let path = format!("/tmp/perf-{own}.map");
        fs::write(&path, "10 20 py::answer:/srv/a.py\n40 8 odd\x1b[2J\nnonsense\n").unwrap();
        let image = Symbols::default().image(own);
        fs::remove_file(&path).unwrap();
        assert_eq!(image.name(0x2f), "py::answer:/srv/a.py");
        assert_eq!(image.name(0x30), "0x30");
        assert_eq!(image.name(0x41), "odd\u{fffd}[2J");
    }
}

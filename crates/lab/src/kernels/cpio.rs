//! A writer for the archive that the kernel unpacks as its first file system: cpio's "newc" format
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

const MAGIC: &str = "070701";
/// The name that ends an archive.
const TRAILER: &str = "TRAILER!!!";
/// File types of st_mode (inode(7)).
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive that is being written. All its paths are absolute; parent directories are created as
/// needed, because the kernel does not create them.
#[derive(Debug)]
pub(super) struct Archive<W> {
    out: W,
    written_bytes: u64,
    /// Inode number of the next file. Two files with one number would be taken for hard links.
    inode: u32,
    directories: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, written_bytes: 0, inode: 1, directories: BTreeSet::new() }
    }

    /// Adds a directory and its parents.
    pub(super) fn directory(&mut self, path: &Path) -> io::Result<()> {
        let mut above = PathBuf::new();
        for part in path.components() {
            let Component::Normal(part) = part else { continue };
            above.push(part);
            if self.directories.insert(above.clone()) {
                self.entry(&above.clone(), DIRECTORY | 0o755, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    /// Adds an executable file.
    pub(super) fn program(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.below(path, FILE | 0o755, (0, 0), content)
    }

    /// Adds a character device with its numbers.
    pub(super) fn device(&mut self, path: &Path, numbers: (u32, u32)) -> io::Result<()> {
        self.below(path, CHARACTER_DEVICE | 0o600, numbers, &[])
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.entry(Path::new(TRAILER), 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn below(&mut self, path: &Path, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        self.entry(path.strip_prefix("/").unwrap_or(path), mode, device, data)
    }

    fn entry(&mut self, name: &Path, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        let name = name.as_os_str().as_encoded_bytes();
        let length = u32::try_from(data.len())
            .map_err(|_| io::Error::other("a file is too large for the archive"))?;
        let name_length = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        // Inode, mode, user, group, links, time, length, the device that holds it, the device that
        // it is, length of the name with its NUL, checksum (of another format).
        let fields =
            [self.inode, mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, name_length, 0];
        self.inode += 1;
        let mut header = MAGIC.to_owned();
        for field in fields {
            header += &format!("{field:08x}");
        }
        self.put(header.as_bytes())?;
        self.put(name)?;
        self.put(&[0])?;
        self.align()?;
        self.put(data)?;
        self.align()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written_bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Pads names and contents so that what follows begins at a multiple of four.
    fn align(&mut self) -> io::Result<()> {
        let missing = self.written_bytes.next_multiple_of(4) - self.written_bytes;
        for _ in 0..missing {
            self.put(&[0])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Entry {
        inode: u32,
        mode: u32,
        device: (u32, u32),
        name: String,
        data: Vec<u8>,
    }

    /// Reads an archive as the format's description says.
    fn read(mut bytes: &[u8]) -> Vec<Entry> {
        let whole = bytes.len();
        let mut entries = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |number: usize| {
                let at = 6 + 8 * number;
                let text = std::str::from_utf8(&bytes[at..at + 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let name_end = 110 + field(11) as usize;
            assert_eq!(bytes[name_end - 1], 0);
            let data_begin = name_end.next_multiple_of(4);
            let data_end = data_begin + field(6) as usize;
            entries.push(Entry {
                inode: field(0),
                mode: field(1),
                device: (field(9), field(10)),
                name: String::from_utf8(bytes[110..name_end - 1].to_vec()).unwrap(),
                data: bytes[data_begin..data_end].to_vec(),
            });
            bytes = &bytes[data_end.next_multiple_of(4)..];
            if entries.last().unwrap().name == TRAILER {
                assert_eq!(bytes, [0_u8; 0], "of {whole}");
                return entries;
            }
        }
    }

    #[test]
    fn files_of_any_length_stand_behind_their_directories() {
        let mut archive = Archive::new(Vec::new());
        for length in 0..6 {
            let path = PathBuf::from(format!("/lib/deep{}/f", "x".repeat(length)));
            archive.program(&path, &vec![7; length]).unwrap();
        }
        archive.device(Path::new("/dev/console"), (5, 1)).unwrap();
        let entries = read(&archive.finish().unwrap());
        let mut seen = BTreeSet::from([String::new()]);
        for entry in &entries {
            let parent = entry.name.rsplit_once('/').map_or("", |(parent, _)| parent);
            assert!(seen.contains(parent), "{} comes before its directory", entry.name);
            assert!(seen.insert(entry.name.clone()), "{} is there twice", entry.name);
        }
        let find = |name: &str| entries.iter().find(|entry| entry.name == name).unwrap();
        assert_eq!(find("lib/deepxxx/f").data, [7, 7, 7]);
        assert_eq!(find("lib/deepxxx/f").mode, 0o100_755);
        assert_eq!(find("lib").mode, 0o040_755);
        assert_eq!(find("dev/console").mode, 0o020_600);
        assert_eq!(find("dev/console").device, (5, 1));
        let numbers: BTreeSet<u32> = entries.iter().map(|entry| entry.inode).collect();
        assert_eq!(numbers.len(), entries.len());
    }

    #[test]
    fn an_empty_archive_is_its_trailer() {
        let bytes = Archive::new(Vec::new()).finish().unwrap();
        assert_eq!(read(&bytes).len(), 1);
        assert_eq!(bytes.len(), 124);
    }
}

//! What an ELF file says about how it will be started. Only the pages that contain the headers are
//! read, however large the file is.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::read::{Error, ReadCache, ReadRef};

/// The properties that must be the same in the program, the library and uncork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// 32 or 64 bits (`EI_CLASS`).
    class: u8,
    /// Byte order (`EI_DATA`).
    data: u8,
    /// `e_machine`.
    machine: u16,
}

impl Identity {
    /// Reads the identity of an ELF file.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let mut head = [0; 20];
        file.read_exact_at(&mut head, 0)?;
        if !head.starts_with(&elf::ELFMAG) {
            return Err(io::Error::new(ErrorKind::InvalidData, "not an ELF file"));
        }
        let (class, data) = (head[4], head[5]);
        let machine = [head[18], head[19]];
        let machine = if data == elf::ELFDATA2MSB.0 {
            u16::from_be_bytes(machine)
        } else {
            u16::from_le_bytes(machine)
        };
        Ok(Self { class, data, machine })
    }

    /// Returns the machine's common name.
    pub(crate) fn name(self) -> String {
        let known = match (elf::Machine(self.machine), self.class == elf::ELFCLASS64.0) {
            (elf::EM_X86_64, true) => "x86-64",
            (elf::EM_X86_64, false) => "x32",
            (elf::EM_386, _) => "32-bit x86",
            (elf::EM_AARCH64, _) => "64-bit ARM",
            (elf::EM_ARM, _) => "32-bit ARM",
            (elf::EM_RISCV, true) => "64-bit RISC-V",
            (elf::EM_RISCV, false) => "32-bit RISC-V",
            (elf::EM_PPC64, _) => "64-bit PowerPC",
            (elf::EM_S390, true) => "s390x",
            (elf::EM_LOONGARCH, _) => "LoongArch",
            (elf::EM_MIPS, _) => "MIPS",
            _ => return format!("ELF machine {}", self.machine),
        };
        known.to_owned()
    }
}

/// The properties that decide whether a library can be preloaded.
#[derive(Debug)]
pub(super) struct Program {
    /// Whether it can be started, unlike an object file or a core dump.
    pub(super) is_executable: bool,
    /// Whether it was built by the Go tool chain, with or without libc.
    pub(super) is_go: bool,
    /// The loader that the program asks for (PT_INTERP).
    pub(super) interpreter: Option<PathBuf>,
}

impl Program {
    /// Reads the headers of a file that has uncork's own [`Identity`].
    pub(super) fn read(file: File) -> Result<Self, Error> {
        let cache = ReadCache::new(file);
        let data = &cache;
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let mut interpreter = None;
        let mut is_go = false;
        for segment in header.program_headers(endian, data)? {
            if let Some(path) = segment.interpreter(endian, data)? {
                interpreter = Some(PathBuf::from(OsStr::from_bytes(path)));
            }
            if let Some(mut notes) = segment.notes(endian, data)? {
                while let Ok(Some(note)) = notes.next() {
                    is_go |= note.name() == b"Go";
                }
            }
        }
        let kind = header.e_type(endian);
        Ok(Self {
            is_executable: kind == elf::ET_EXEC || kind == elf::ET_DYN,
            // The kernel needs no sections: without them, or with damaged ones, only the note above
            // can tell.
            is_go: is_go || has_go_section(header, endian, data).unwrap_or(false),
            interpreter,
        })
    }
}

/// Why a program is started without a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unloaded {
    /// It is statically linked.
    Static,
    /// It is statically linked by the Go tool chain.
    Go,
}

/// Returns why no loader runs for the program in this file; `None` if one does, if the file is the
/// loader, to which the program was given as an argument, or if it cannot be determined.
pub(crate) fn unloaded(file: &Path) -> Option<Unloaded> {
    let program = Program::read(File::open(file).ok()?).ok()?;
    if own().is_ok_and(|own| own.is_loader(file)) {
        return None;
    }
    match (program.interpreter, program.is_go) {
        (Some(_), _) => None,
        (None, true) => Some(Unloaded::Go),
        (None, false) => Some(Unloaded::Static),
    }
}

/// Returns whether all that the loader would map of a file is present.
pub(crate) fn is_whole(file: File) -> bool {
    let Ok(length) = file.metadata().map(|metadata| metadata.len()) else { return false };
    let cache = ReadCache::new(file);
    let whole = || {
        let header = FileHeader64::<Endianness>::parse(&cache)?;
        let endian = header.endian()?;
        let segments = header.program_headers(endian, &cache)?;
        Ok::<_, Error>(segments.iter().all(|segment| {
            let (offset, size) = segment.file_range(endian);
            offset.checked_add(size).is_some_and(|end| end <= length)
        }))
    };
    whole().unwrap_or(false)
}

/// Sections that the Go linker leaves in every program, stripped or not, and that the C linker
/// keeps in programs that use cgo.
const GO_SECTIONS: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];

fn has_go_section<'a, R: ReadRef<'a>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
) -> Result<bool, Error> {
    let sections = header.section_headers(endian, data)?;
    if sections.is_empty() {
        return Ok(false);
    }
    let index = header.section_strings_index(endian, data)?;
    let names = match sections.get(index.0) {
        Some(section) => section.data(endian, data)?,
        None => return Ok(false),
    };
    Ok(sections.iter().any(|section| {
        let name = names.get(section.sh_name(endian) as usize..).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        GO_SECTIONS.contains(&name)
    }))
}

/// How this program itself was built: the library is built in the same way.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) identity: Identity,
    /// The loader of the C library that uncork and the library use.
    pub(super) loader: PathBuf,
}

/// Reads /proc/self/exe.
pub(super) fn own() -> io::Result<Own> {
    let file = File::open("/proc/self/exe")?;
    let identity = Identity::of(&file)?;
    let program = Program::read(file).map_err(|error| io::Error::other(error.to_string()))?;
    let loader = program.interpreter.ok_or_else(|| {
        io::Error::new(ErrorKind::Unsupported, "uncork itself is statically linked")
    })?;
    Ok(Own { identity, loader })
}

impl Own {
    /// Returns whether `file` is the loader, under any of its names.
    pub(super) fn is_loader(&self, file: &Path) -> bool {
        match (fs::canonicalize(file), fs::canonicalize(&self.loader)) {
            (Ok(file), Ok(loader)) => file == loader,
            _ => false,
        }
    }
}

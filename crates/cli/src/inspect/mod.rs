//! Tests whether a library can be preloaded into a program, before that is started.
//!
//! The loader silently ignores LD_PRELOAD where it cannot or may not follow it. Running the program all
//! the same would be an unnoticed fallback, so it is refused with the reason and with what works instead.

mod elf;
mod privilege;
mod remedy;
mod script;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

pub(crate) use elf::{Identity, Unloaded, is_whole, unloaded};

use crate::command;
use crate::failure::Failure;

/// How many bytes the kernel reads to determine the kind of a program (BINPRM_BUF_SIZE).
const HEAD_BYTES: usize = 256;
/// How many nested interpreters the kernel follows (fs/exec.c, `exec_binprm`).
const MAX_INTERPRETERS: usize = 5;
/// Runs what is neither ELF nor names an interpreter, as in execvp (`_PATH_BSHELL`).
pub(crate) const SHELL: &str = "/bin/sh";

/// The purpose of the preloading, which decides what works instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// To hold small writes.
    Writes,
    /// To move its TCP to a stack in user space.
    Stack,
}

/// Refuses `program` unless a library can be preloaded into it. A script is judged by its
/// interpreter; `path` is the PATH in which `/usr/bin/env` would look that up.
pub(crate) fn inspect(program: &Path, path: Option<&OsStr>, what: For) -> Result<(), Failure> {
    let mut file = program.to_owned();
    for _ in 0..=MAX_INTERPRETERS {
        let subject = Subject { command: program, file: &file, what };
        let next = match look(&file) {
            // Executable but not readable: the kernel runs it, and the loader preloads into it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(error) => {
                return Err(Failure::not_executable(format!("{subject} cannot be read: {error}")));
            }
            Ok(Kind::Elf(opened)) => return suitable(&subject, opened),
            Ok(Kind::Script(line)) => interpreter(&subject, &line, path)?,
            Ok(Kind::Other) => PathBuf::from(SHELL),
        };
        file = next;
    }
    let program = program.display();
    Err(Failure::not_executable(format!("{program} cannot be executed: too many interpreters")))
}

/// The file that is inspected, and the command for which it is: the two differ for a script.
struct Subject<'a> {
    command: &'a Path,
    file: &'a Path,
    what: For,
}

impl core::fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.command == self.file {
            write!(f, "{}", self.file.display())
        } else {
            write!(f, "{}, which runs {},", self.file.display(), self.command.display())
        }
    }
}

/// The kind of a program, by its first bytes.
enum Kind {
    Elf(File),
    Script(script::Line),
    Other,
}

fn look(file: &Path) -> io::Result<Kind> {
    let opened = File::open(file)?;
    let mut head = [0; HEAD_BYTES];
    let mut length = 0;
    while length < head.len() {
        match opened.read_at(&mut head[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    let head = &head[..length];
    if head.starts_with(&object::elf::ELFMAG) {
        return Ok(Kind::Elf(opened));
    }
    Ok(script::first_line(head).map_or(Kind::Other, Kind::Script))
}

/// Returns the interpreter that the kernel would start or, after `env`, the one that it would find.
fn interpreter(
    subject: &Subject<'_>,
    line: &script::Line,
    path: Option<&OsStr>,
) -> Result<PathBuf, Failure> {
    let absent = |name: &OsStr| {
        if name.as_bytes().ends_with(b"\r") {
            return Failure::not_executable(remedy::carriage_return(subject));
        }
        let name = name.display();
        Failure::not_executable(format!("{subject} needs the interpreter {name}, which is missing"))
    };
    let found = match script::through_env(line) {
        script::Behind::Nothing => {
            let interpreter = PathBuf::from(&line.interpreter);
            command::executable(&interpreter).map_err(|_| absent(&line.interpreter))?;
            interpreter
        }
        script::Behind::Name(name) => command::find(&name, path).map_err(|_| absent(&name))?,
        script::Behind::EmptyEnvironment => {
            return Err(Failure::own(format!(
                "{subject} clears the environment in its first line (env -i), and LD_PRELOAD \
                 with it; remove the -i, or run its interpreter under uncork by name"
            )));
        }
    };
    Ok(found)
}

fn suitable(subject: &Subject<'_>, opened: File) -> Result<(), Failure> {
    let damaged = |error: object::read::Error| {
        Failure::not_executable(format!("{subject} is a damaged ELF file: {error}"))
    };
    let identity = Identity::of(&opened).map_err(|error| {
        Failure::not_executable(format!("{subject} is a damaged ELF file: {error}"))
    })?;
    let own = elf::own().map_err(|error| {
        Failure::own(format!("/proc/self/exe cannot be read, is /proc mounted? {error}"))
    })?;
    if identity != own.identity {
        return Err(Failure::own(remedy::other_architecture(subject, identity, own.identity)));
    }
    let metadata = opened.metadata().map_err(|error| Failure::own(error.to_string()))?;
    let program = elf::Program::read(opened).map_err(damaged)?;
    if !program.is_executable {
        return Err(Failure::not_executable(format!("{subject} is an ELF file but no program")));
    }
    if program.is_go {
        return Err(Failure::own(remedy::go(subject)));
    }
    match &program.interpreter {
        // The loader itself, given the program as an argument, honours LD_PRELOAD.
        None if own.is_loader(subject.file) => return Ok(()),
        None => return Err(Failure::own(remedy::statically_linked(subject))),
        Some(loader) => same_library(subject, loader, &own)?,
    }
    match privilege::gained(subject.file, &metadata) {
        Some(gained) => Err(Failure::own(remedy::privileged(subject, gained))),
        None => Ok(()),
    }
}

/// Refuses another C library's loader, which may know LD_PRELOAD but cannot load a library of this one.
fn same_library(subject: &Subject<'_>, loader: &Path, own: &elf::Own) -> Result<(), Failure> {
    if loader.file_name() != own.loader.file_name() {
        return Err(Failure::own(remedy::other_library(subject, loader)));
    }
    if !loader.exists() {
        let loader = loader.display();
        return Err(Failure::not_executable(format!(
            "{subject} needs the loader {loader}, which is missing"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

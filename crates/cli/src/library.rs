//! The choice of the library that is preloaded, and whether the loader will open it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::environment::PRELOAD_SEPARATORS;
use crate::failure::Failure;
use crate::inspect::{Identity, is_whole};
use crate::{loader, output};

/// The library's file name.
pub(crate) const NAME: &str = "libuncork.so";
/// Its second name, under which it behaves like the library of 2007.
pub(crate) const SECOND_NAME: &str = "libautocork.so";
/// Names the library to be used.
const VARIABLE: &str = "UNCORK_LIBRARY";
/// Where it may be, relative to the directory of the uncork program.
const PLACES: [&str; 3] = ["", "../lib/uncork", "../lib"];

/// `uncork library`.
pub(crate) fn print() -> Result<i32, Failure> {
    let library = find()?;
    output::print(&format!("{}\n", library.display()))?;
    Ok(0)
}

/// Returns the absolute path of a library that the loader has been seen to open.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    let library = match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(named) => named_by_variable(&named)?,
        None => beside(&own_directory()?)?,
    };
    check(&library)?;
    Ok(library)
}

/// Returns whether the library acts under its second name.
pub(crate) fn is_autocork(library: &Path) -> bool {
    library.file_name() == Some(OsStr::new(SECOND_NAME))
}

/// Resolves the named library: a relative name would be searched from wherever the program happens to
/// be. Symbolic links are kept, as the library's behaviour depends on the name under which it is loaded.
fn named_by_variable(named: &OsString) -> Result<PathBuf, Failure> {
    // The loader itself then takes no library from the caller (ld.so(8), secure-execution mode).
    if is_privileged_by_its_file() {
        return Err(Failure::own(format!(
            "{VARIABLE} is not for an uncork that has privileges of its own (setcap, setuid), with which \
             the library would be tried out: put {NAME} beside it"
        )));
    }
    std::path::absolute(named).map_err(|error| {
        Failure::own(format!("{VARIABLE}={} cannot be used: {error}", named.display()))
    })
}

/// Returns whether this process has more privileges than its starter (AT_SECURE, getauxval(3)).
fn is_privileged_by_its_file() -> bool {
    const AT_SECURE: usize = 23;
    match fs::read("/proc/self/auxv") {
        Ok(pairs) => {
            let (words, _) = pairs.as_chunks();
            let words: Vec<_> = words.iter().map(|word| usize::from_ne_bytes(*word)).collect();
            words.chunks_exact(2).any(|pair| pair[0] == AT_SECURE && pair[1] != 0)
        }
        // The file of such a process belongs to root.
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    }
}

fn own_directory() -> Result<PathBuf, Failure> {
    let exe = fs::read_link("/proc/self/exe").map_err(|error| {
        Failure::own(format!(
            "/proc/self/exe cannot be read, so {NAME} cannot be found beside uncork; mount \
             /proc or set {VARIABLE} to its path: {error}"
        ))
    })?;
    Ok(exe.parent().unwrap_or(Path::new("/")).to_owned())
}

fn beside(directory: &Path) -> Result<PathBuf, Failure> {
    for place in PLACES {
        let library = match place.strip_prefix("../") {
            // Written without "..": the path will be seen in /proc/PID/maps.
            Some(place) => directory.parent().unwrap_or(directory).join(place).join(NAME),
            None => directory.join(NAME),
        };
        if library.exists() {
            return Ok(library);
        }
    }
    Err(Failure::own(format!(
        "{NAME} is neither in {} nor in ../lib/uncork or ../lib from there; build it with \
         `make` (or `cargo build --release`), or set {VARIABLE} to its path",
        directory.display()
    )))
}

/// Refuses what the loader would ignore silently or with a line that is easily missed.
fn check(library: &Path) -> Result<(), Failure> {
    let shown = library.display();
    refuse_characters(library)?;
    let file = open(library)
        .map_err(|error| Failure::own(format!("{shown} cannot be preloaded: {error}")))?;
    let mount = fstatvfs(&file).map_err(|error| Failure::own(format!("{shown}: {error}")))?;
    if mount.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(Failure::own(format!(
            "{shown} cannot be preloaded: it is on a file system mounted noexec; copy it to \
             another one and set {VARIABLE} to that copy"
        )));
    }
    let unfit = |why: String| Failure::own(format!("{shown} cannot be preloaded: {why}"));
    let its = Identity::of(&file).map_err(|_| unfit("it is not an ELF file".to_owned()))?;
    let ours = File::open("/proc/self/exe").and_then(|own| Identity::of(&own));
    if ours.is_ok_and(|ours| ours != its) {
        return Err(unfit(format!("it is built for {}", its.name())));
    }
    // The loader would map the missing part all the same, and crash when reading it.
    if !is_whole(file) {
        return Err(unfit("a part of the file is missing; install it again".to_owned()));
    }
    loader::load(library).map_err(|message| {
        Failure::own(format!("{shown} cannot be preloaded; the loader says: {message}"))
    })
}

/// Refuses characters at which the loader splits LD_PRELOAD, and `$ORIGIN` and the like, which it
/// expands: such a path would never be opened as written.
fn refuse_characters(library: &Path) -> Result<(), Failure> {
    let special = |byte: &u8| PRELOAD_SEPARATORS.contains(byte) || *byte == b'$';
    let Some(&byte) = library.as_os_str().as_bytes().iter().find(|byte| special(byte)) else {
        return Ok(());
    };
    let name = match byte {
        b' ' => "a space",
        b':' => "a colon",
        _ => "a dollar sign",
    };
    Err(Failure::own(format!(
        "{:?} cannot be preloaded: the loader does not take {name} in a path of LD_PRELOAD; \
         move the library, or set {VARIABLE} to a copy or link elsewhere",
        library
    )))
}

fn open(library: &Path) -> io::Result<File> {
    let file = File::open(library)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::IsADirectory.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(library: &Path) -> String {
        let failure = check(library).unwrap_err();
        assert_eq!(failure.code(), Failure::OWN);
        failure.to_string()
    }

    #[test]
    fn each_place_is_looked_at_in_turn() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        fs::create_dir_all(root.path().join("lib/uncork")).unwrap();
        fs::create_dir_all(&bin).unwrap();
        let nowhere = beside(&bin).unwrap_err().to_string();
        assert!(nowhere.contains("make") && nowhere.contains(VARIABLE), "{nowhere}");
        for place in ["lib", "lib/uncork", "bin"] {
            let library = root.path().join(place).join(NAME);
            fs::write(&library, "").unwrap();
            assert_eq!(beside(&bin).unwrap(), library);
        }
    }

    #[test]
    fn a_path_that_ld_preload_cannot_hold_is_refused_by_the_character() {
        for (path, name) in [
            ("/tmp/a b/libuncork.so", "a space"),
            ("/tmp/a:b/libuncork.so", "a colon"),
            ("/tmp/$LIB/libuncork.so", "a dollar sign"),
        ] {
            assert!(refusal(Path::new(path)).contains(name), "{path}");
        }
    }

    #[test]
    fn what_is_no_library_is_refused_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(NAME);
        assert!(refusal(&file).contains("No such file"), "{}", refusal(&file));
        fs::write(&file, "not a library").unwrap();
        assert!(refusal(&file).contains("not an ELF file"));
        assert!(refusal(root.path()).contains("directory"));
        let own = fs::read("/proc/self/exe").unwrap();
        fs::write(&file, &own[..4096]).unwrap();
        assert!(refusal(&file).contains("a part of the file is missing"));
        let mut foreign = own[..4096].to_vec();
        foreign[18] ^= 0xff;
        fs::write(&file, foreign).unwrap();
        assert!(refusal(&file).contains("it is built for ELF machine"), "{}", refusal(&file));
    }

    #[test]
    fn the_second_name_is_known() {
        assert!(is_autocork(Path::new("/usr/lib/libautocork.so")));
        assert!(!is_autocork(Path::new("/usr/lib/libuncork.so")));
    }
}

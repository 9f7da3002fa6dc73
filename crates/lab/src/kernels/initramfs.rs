//! The file system of a guest: this program itself with the libraries that it needs, and three devices.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::cpio::Archive;

/// Path of the program in a guest.
pub(super) const PROGRAM: &str = "/uncork";

/// The archive that was written.
#[derive(Debug)]
pub(super) struct Initramfs {
    pub(super) file: PathBuf,
    pub(super) bytes: u64,
    /// The directories of its libraries, for LD_LIBRARY_PATH.
    pub(super) loader_path: String,
}

/// Writes the archive into `directory`.
///
/// # Errors
/// If a file cannot be read, or the archive cannot be written.
pub(super) fn write(directory: &Path) -> Result<Initramfs> {
    let libraries = libraries(&told_by_the_loader()?);
    let file = directory.join("initramfs");
    let name = file.display().to_string();
    let out = File::create(&file).with_context(|| format!("{name} cannot be written"))?;
    fill(Archive::new(BufWriter::new(out)), &libraries)
        .with_context(|| format!("the guest's file system cannot be written to {name}"))?;
    let bytes = fs::metadata(&file)?.len();
    let directories: BTreeSet<_> = libraries.iter().filter_map(|file| file.parent()).collect();
    let directories: Vec<_> = directories.iter().map(|it| it.display().to_string()).collect();
    Ok(Initramfs { file, bytes, loader_path: directories.join(":") })
}

fn fill(mut archive: Archive<BufWriter<File>>, libraries: &BTreeSet<PathBuf>) -> Result<()> {
    for directory in ["/proc", "/tmp"] {
        archive.directory(Path::new(directory))?;
    }
    // Numbers of Documentation/admin-guide/devices.txt. The kernel opens the console for init.
    for (name, numbers) in [("console", (5, 1)), ("null", (1, 3)), ("urandom", (1, 9))] {
        archive.device(&Path::new("/dev").join(name), numbers)?;
    }
    // Through /proc: the file may have been replaced by a newer one since the program was started.
    archive.program(Path::new(PROGRAM), &fs::read("/proc/self/exe")?)?;
    for library in libraries {
        let content = fs::read(library).with_context(|| library.display().to_string())?;
        archive.program(library, &content)?;
    }
    archive.finish()?;
    Ok(())
}

/// Returns what the loader would load for this program: with this variable it does not run it
/// (ld.so(8)), which is how ldd(1) works. A statically linked program has no loader, and prints
/// something else instead.
fn told_by_the_loader() -> Result<String> {
    let told = Command::new("/proc/self/exe")
        .arg("--version")
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output()
        .context("uncork's own file cannot be run")?;
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}

/// Returns the files in that list: `name => file (address)`, and the loader, without a name, as the
/// program names it.
fn libraries(told: &str) -> BTreeSet<PathBuf> {
    let file = |line: &str| {
        let file = line.split_once(" => ").map_or(line, |(_, file)| file).trim();
        let file = file.rsplit_once(" (0x").map(|(file, _)| file)?;
        file.starts_with('/').then(|| PathBuf::from(file))
    };
    told.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "\
\tlinux-vdso.so.1 (0x00007f7ebf6db000)
\tlibelf.so.1 => /opt/my libs/libelf.so.1 (0x00007f7ebf6ae000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f7ebeb3e000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f7ebf6dd000)
";

    #[test]
    fn libraries_are_named_as_they_are_looked_for() {
        let found = libraries(TOLD);
        let names: Vec<_> = found.iter().map(|file| file.display().to_string()).collect();
        let libc = "/lib/x86_64-linux-gnu/libc.so.6";
        assert_eq!(names, [libc, "/lib64/ld-linux-x86-64.so.2", "/opt/my libs/libelf.so.1"]);
        assert_eq!(libraries("uncork 0.1.0\n"), BTreeSet::new());
    }
}

//! The kernel that the user names, as a file that QEMU can boot.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};

/// How many meta-packages are followed to the package that contains the kernel.
const DEEPEST: usize = 4;

/// Finds the kernel that `named` stands for: an image, a Debian package of one, or the name of an
/// installed package. What has to be unpacked is put into `directory`.
///
/// # Errors
/// A sentence for the user if there is none.
pub(super) fn find(named: &str, directory: &Path, number: usize) -> Result<PathBuf> {
    let path = Path::new(named);
    let mut begin = Vec::new();
    match File::open(path) {
        Ok(file) => {
            file.take(0x400).read_to_end(&mut begin).with_context(|| named.to_owned())?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound && is_package_name(named) => {
            return installed(named);
        }
        Err(error) => bail!("{named}: {error}"),
    }
    // Every ar(5) archive begins like this, and a .deb is one (deb(5)).
    if begin.starts_with(b"!<arch>\n") {
        return unpack(path, &directory.join(format!("vmlinuz-{number}")));
    }
    match refuse(&begin) {
        Some(reason) => bail!("{named}: {reason}"),
        None => Ok(path.to_owned()),
    }
}

/// Returns why this is no kernel for this machine, by its first bytes (Documentation/x86/boot.rst).
fn refuse(begin: &[u8]) -> Option<&'static str> {
    const HEADER: std::ops::Range<usize> = 0x202..0x206;
    const VERSION: usize = 0x206;
    const XLOADFLAGS: usize = 0x236;
    const XLF_KERNEL_64: u16 = 1;
    let word = |at: usize| Some(u16::from_le_bytes([*begin.get(at)?, *begin.get(at + 1)?]));
    if begin.starts_with(b"\x7fELF") {
        return Some(
            "an ELF file: what a build calls vmlinux. Give the image that is made of it, \
             arch/x86/boot/bzImage",
        );
    }
    if begin.get(HEADER) != Some(b"HdrS") {
        return Some("neither an x86 kernel image (vmlinuz, bzImage) nor a Debian package of one");
    }
    // The flags exist since version 2.12 of the boot protocol (Linux 3.8).
    let is_64_bit = match (word(VERSION), word(XLOADFLAGS)) {
        (Some(version), Some(flags)) if version >= 0x20c => flags & XLF_KERNEL_64 != 0,
        _ => true,
    };
    (!is_64_bit).then_some("a 32-bit kernel, on which this program does not run")
}

/// Returns whether it can be a package name (Debian policy 5.6.1).
fn is_package_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    name.len() > 1
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(legal)
}

/// Extracts the kernel, and nothing else, from a package.
fn unpack(package: &Path, to: &Path) -> Result<PathBuf> {
    let name = package.display();
    let out = File::create(to).with_context(|| format!("{} cannot be written", to.display()))?;
    let mut files = started(
        Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()),
        "dpkg",
    )?;
    let archive = files.stdout.take().context("dpkg-deb has no output")?;
    let taken = Command::new("tar")
        .args(["--extract", "--to-stdout", "--file=-", "--wildcards", "./boot/vmlinuz-*"])
        .stdin(archive)
        .stdout(out)
        .stderr(Stdio::null())
        .status();
    // tar may have ended before the archive was read to its end.
    let said = files.wait_with_output()?;
    let taken = taken.map_err(|error| missing("tar", "tar", &error))?;
    if taken.success() && fs::metadata(to)?.len() > 0 {
        let mut begin = Vec::new();
        File::open(to)?.take(0x400).read_to_end(&mut begin)?;
        return match refuse(&begin) {
            Some(reason) => bail!("{name}: its kernel is {reason}"),
            None => Ok(to.to_owned()),
        };
    }
    if !said.status.success() {
        let said = String::from_utf8_lossy(&said.stderr);
        bail!("{name}: dpkg-deb cannot read it: {}", said.trim().replace('\n', ", "));
    }
    let depends =
        output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"), "dpkg");
    let depends = depends.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    match depends.ok().as_deref().and_then(image_in) {
        Some(other) => bail!(
            "{name}: a package without a kernel, which depends on {other}: give that one's file \
             (apt-get download {other})"
        ),
        None => bail!("{name}: a package without a kernel (there is no /boot/vmlinuz-* in it)"),
    }
}

/// Returns the kernel of an installed package, or of the package that it depends on.
fn installed(named: &str) -> Result<PathBuf> {
    let mut package = named.to_owned();
    for _ in 0..DEEPEST {
        let listed = output(Command::new("dpkg-query").args(["--listfiles", &package]), "dpkg")?;
        if !listed.status.success() {
            bail!(
                "{named}: neither a file nor an installed package; a package's file is had by \
                 `apt-get download {named}`, and need not be installed"
            );
        }
        let files = String::from_utf8_lossy(&listed.stdout).into_owned();
        if let Some(kernel) = files.lines().find(|file| file.starts_with("/boot/vmlinuz-")) {
            return Ok(kernel.into());
        }
        let asked = ["--show", "--showformat=${Depends}", &package];
        let depends = output(Command::new("dpkg-query").args(asked), "dpkg")?;
        match image_in(&String::from_utf8_lossy(&depends.stdout)) {
            Some(other) => package = other,
            None => break,
        }
    }
    bail!("{named}: a package without a kernel (it has no /boot/vmlinuz-*)")
}

/// Returns the kernel's package among dependencies (Debian policy 7.1).
fn image_in(depends: &str) -> Option<String> {
    let names = depends.split([',', '|']).filter_map(|one| one.split_whitespace().next());
    names.into_iter().find(|name| name.starts_with("linux-image-")).map(str::to_owned)
}

fn started(command: &mut Command, package: &str) -> Result<std::process::Child> {
    let name = command.get_program().display().to_string();
    command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| missing(&name, package, &error))
}

fn output(command: &mut Command, package: &str) -> Result<Output> {
    let child = started(command.stdout(Stdio::piped()), package)?;
    Ok(child.wait_with_output()?)
}

fn missing(program: &str, package: &str, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => anyhow::anyhow!(
            "{program} is needed to read a Debian package, and is not in PATH: install the package \
             {package}, or give the kernel's own file"
        ),
        _ => anyhow::anyhow!("{program} cannot be run: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_package_is_found_among_dependencies() {
        let depends = "initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool, \
                       linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)";
        assert_eq!(image_in(depends).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(image_in("kmod, linux-base (>= 4.3~)"), None);
        assert_eq!(image_in(""), None);
    }

    /// A header of the boot protocol's version 2.15.
    fn header(flags: u8) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x206..0x208].copy_from_slice(&[0x0f, 0x02]);
        bytes[0x236] = flags;
        bytes
    }

    #[test]
    fn what_cannot_be_booted_is_told_by_its_first_bytes() {
        assert_eq!(refuse(&header(0x3f)), None);
        assert!(refuse(&header(0)).unwrap().contains("32-bit"));
        assert!(refuse(b"\x7fELF\x02").unwrap().contains("bzImage"));
        for begin in [b"".as_slice(), b"MZ", &[0; 0x400]] {
            assert!(refuse(begin).unwrap().starts_with("neither"), "{begin:?}");
        }
    }

    #[test]
    fn files_and_packages_that_are_not_there_are_named() {
        let directory = Path::new("/nonexistent");
        let say = |name: &str| format!("{:#}", find(name, directory, 0).unwrap_err());
        assert!(say("/no/such/vmlinuz").starts_with("/no/such/vmlinuz: "));
        assert!(say("/proc/version").contains("neither an x86 kernel image"));
        assert!(
            say("linux-image-of-nobody").starts_with("linux-image-of-nobody: neither a file nor")
        );
        assert!(is_package_name("linux-image-6.12.117+deb12-cloud-amd64"));
        assert!(!is_package_name("vmlinuz_x") && !is_package_name("a/b") && !is_package_name("-x"));
    }
}

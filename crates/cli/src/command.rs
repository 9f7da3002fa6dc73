//! Command lookup as in execvp(3).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, eaccess};

use crate::failure::Failure;

/// Where execvp looks when PATH is not set (glibc's `confstr(_CS_PATH)`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Finds the file that execvp would execute for `name`. `path` is the value of PATH.
pub(crate) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match executable(&file) {
            Ok(()) => Ok(file),
            Err(error) => Err(cannot_execute(&file, &error)),
        };
    }
    // It is found nowhere, not even in an empty element of PATH.
    if name.is_empty() {
        return Err(Failure::not_found(
            "the command is an empty word: name one (a variable in its place may not be set)",
        ));
    }
    let mut denied = None;
    for directory in path.unwrap_or(OsStr::new(DEFAULT_PATH)).as_bytes().split(|&b| b == b':') {
        let file = join(directory, name);
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(error) if is_absent(&error) => {}
            // A directory that may not be searched: whether it contains the file cannot be known.
            Err(_) if fs::metadata(&file).is_err() => {}
            // A later directory may contain one that can be executed.
            Err(error) => denied = denied.or(Some((file, error))),
        }
    }
    match denied {
        Some((file, error)) => Err(cannot_execute(&file, &error)),
        None => Err(Failure::not_found(format!("{}: not found in PATH", name.display()))),
    }
}

/// Joins as execvp does: an empty element is the current directory, without "./".
fn join(directory: &[u8], name: &OsStr) -> PathBuf {
    let mut file = directory.to_vec();
    if !file.is_empty() {
        file.push(b'/');
    }
    file.extend_from_slice(name.as_bytes());
    OsString::from_vec(file).into()
}

/// Checks whether execve would get as far as reading the file.
pub(crate) fn executable(file: &Path) -> io::Result<()> {
    let metadata = fs::metadata(file)?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    // The effective ids count for execve, and a mount with noexec is noticed as well.
    eaccess(file, AccessFlags::X_OK)?;
    Ok(())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn cannot_execute(file: &Path, error: &io::Error) -> Failure {
    let file = file.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Failure::not_found(format!("{file}: no such file"))
        }
        ErrorKind::IsADirectory => Failure::not_executable(format!("{file} is a directory")),
        ErrorKind::PermissionDenied => Failure::not_executable(format!(
            "{file} cannot be executed: it has no execute permission for this user, \
             or is on a file system mounted noexec"
        )),
        _ => Failure::not_executable(format!("{file} cannot be executed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(directory: &Path, name: &str, mode: u32) {
        fs::create_dir_all(directory).unwrap();
        let file = directory.join(name);
        fs::write(&file, "").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_executable_in_path_is_taken_and_others_are_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| root.path().join(name));
        file(&a, "tool", 0o644);
        fs::create_dir_all(b.join("tool")).unwrap();
        file(&c, "tool", 0o755);
        let path = std::env::join_paths([&a, &b, Path::new("/nowhere"), &c]).unwrap();
        assert_eq!(find(OsStr::new("tool"), Some(&path)).unwrap(), c.join("tool"));

        let path = std::env::join_paths([&a, &b]).unwrap();
        let failure = find(OsStr::new("tool"), Some(&path)).unwrap_err();
        assert_eq!(failure.code(), Failure::NOT_EXECUTABLE);
        assert!(failure.to_string().contains("a/tool cannot be executed"), "{failure}");
    }

    #[test]
    fn a_missing_command_a_directory_and_an_empty_name_have_their_codes() {
        for (name, code) in [
            ("no-such-command-here", Failure::NOT_FOUND),
            ("", Failure::NOT_FOUND),
            ("/no/such/file", Failure::NOT_FOUND),
            ("/etc/passwd/file", Failure::NOT_FOUND),
            ("/etc", Failure::NOT_EXECUTABLE),
            ("/etc/passwd", Failure::NOT_EXECUTABLE),
            ("/dev/null", Failure::NOT_EXECUTABLE),
        ] {
            let failure = find(OsStr::new(name), Some(OsStr::new("/usr/bin:"))).unwrap_err();
            assert_eq!(failure.code(), code, "{name:?}: {failure}");
            assert!(!failure.to_string().starts_with(':'), "{failure}");
        }
    }

    #[test]
    fn without_a_path_the_default_one_is_searched() {
        assert_eq!(find(OsStr::new("sh"), None).unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn an_empty_element_of_path_is_the_current_directory() {
        assert_eq!(join(b"", OsStr::new("tool")), Path::new("tool"));
        assert_eq!(join(b"/usr/bin", OsStr::new("tool")), Path::new("/usr/bin/tool"));
    }
}

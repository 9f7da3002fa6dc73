//! Helpers that the tests of the command share.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

pub(crate) mod capture;
pub(crate) mod live;
pub(crate) mod real;
pub(crate) mod service;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The uncork that was built for this test.
pub(crate) const UNCORK: &str = env!("CARGO_BIN_EXE_uncork");

/// A stand-in for the library that says when it is loaded, and reports at exit.
const LIBRARY_SOURCE: &str = include_str!("library.c");

/// Returns `uncork` with the stand-in library and without the caller's settings.
pub(crate) fn uncork() -> Command {
    let mut command = Command::new(UNCORK);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNCORK_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD").env("UNCORK_LIBRARY", library());
    command
}

/// Returns `uncork run` with these arguments.
pub(crate) fn run(arguments: &[&str]) -> Command {
    let mut command = uncork();
    command.arg("run").args(arguments);
    command
}

/// Runs a command and returns its output.
pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Asserts the exit status, and a single sentence that names `what`.
pub(crate) fn refused(command: &mut Command, code: i32, what: &str) {
    let output = output(command);
    let sentence = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{sentence}");
    assert!(sentence.starts_with("uncork: ") && sentence.contains(what), "{sentence}");
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    assert!(output.stdout.is_empty());
}

/// The stand-in library, compiled once.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        // Some tests run programs as unprivileged users, which must reach it.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("libuncork.so");
        compile(LIBRARY_SOURCE, &path, &["-shared", "-fPIC"]);
        (directory, path)
    });
    path
}

/// Compiles a C program or library.
pub(crate) fn compile(source: &str, output: &Path, flags: &[&str]) {
    let input = output.with_extension("c");
    fs::write(&input, source).unwrap();
    let compiled =
        Command::new("cc").args(flags).arg("-o").arg(output).arg(&input).status().unwrap();
    assert!(compiled.success());
}

/// Builds a Go program, or says that `test` is skipped because Go is missing; where everything has
/// to run, that is a failure (`scripts/setup test` installs Go).
pub(crate) fn compile_go(test: &str, source: &Path, output: &Path) -> bool {
    let mut command = Command::new("go");
    // Compiled parts of the standard library are kept for the next test and the next run.
    command.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "").arg("build");
    match command.arg("-o").arg(output).arg(source).output() {
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
        Err(error) => {
            let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
            assert!(!in_ci, "{test} may not be skipped in CI, but go cannot be run: {error}");
            eprintln!("skipped: {test}: go cannot be run: {error}");
            return false;
        }
    }
    true
}

/// Writes an executable file.
pub(crate) fn executable(path: &Path, content: impl AsRef<[u8]>) {
    let draft = path.with_extension("draft");
    fs::write(&draft, content).unwrap();
    copy_executable(&draft, path);
}

/// Copies a program, by another process: if this one had the copy open for writing, a child that
/// another thread starts meanwhile would inherit the descriptor, and exec would fail.
pub(crate) fn copy_executable(from: &Path, to: &Path) {
    let copied = Command::new("install").args(["-m", "755"]).args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Returns whether this test runs as root; says so if not, and fails where everything has to run.
pub(crate) fn needs_root(test: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "{test} needs root");
    eprintln!("skipped: {test} needs root");
    false
}

/// Returns an uncork that an unprivileged user can execute, and its directory, which must be kept.
pub(crate) fn uncork_of_nobody() -> (tempfile::TempDir, Command) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("uncork");
    copy_executable(Path::new(UNCORK), &copy);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
    command.env("UNCORK_LIBRARY", library());
    (directory, command)
}

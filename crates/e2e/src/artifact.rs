//! Locations of build products: the library under test, and C programs compiled for a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};

use crate::run;

/// Returns Cargo's target directory, found from the path of the running test.
pub fn target_dir() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    // target/PROFILE/deps/TEST
    let target = test.ancestors().nth(3);
    Ok(target.with_context(|| format!("{} is in no target directory", test.display()))?.to_owned())
}

/// Returns the library under test: `UNCORK_E2E_LIBRARY`, or the one that `make build` leaves.
pub fn library() -> Result<PathBuf> {
    let path = match std::env::var_os("UNCORK_E2E_LIBRARY") {
        Some(path) => PathBuf::from(path),
        None => target_dir()?.join("release/libuncork.so"),
    };
    ensure!(path.exists(), "{} is missing: run make build first", path.display());
    Ok(path)
}

/// Returns the `uncork` command, as it was built beside the running test.
pub fn uncork() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let path = test.ancestors().nth(2).map(|built| built.join("uncork"));
    let path = path.with_context(|| format!("{} is in no target directory", test.display()))?;
    ensure!(
        path.exists(),
        "{} is missing: run cargo build --profile ci -p uncork first",
        path.display()
    );
    Ok(path)
}

/// Returns the path of a file of this package.
pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compiles `c/NAME.c`, unless it has not changed since it was last compiled.
pub fn compiled(name: &str) -> Result<PathBuf> {
    compiled_with(name, name, &["-pthread"])
}

/// Compiles `c/NAME.c` as a library, for dlopen(3).
pub fn compiled_module(name: &str) -> Result<PathBuf> {
    compiled_with(name, &format!("{name}.so"), &["-shared", "-fPIC"])
}

fn compiled_with(name: &str, file: &str, flags: &[&str]) -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = target_dir()?.join("tmp/uncork-e2e");
    let program = directory.join(file);
    let code = source(&format!("c/{name}.c"));
    let headers = modified(&source("c/common.h"))?.max(modified(&source("c/far.h"))?);
    let newest = modified(&code)?.max(headers);
    if modified(&program).is_ok_and(|built| built > newest) {
        return Ok(program);
    }
    fs::create_dir_all(&directory)?;
    let fresh = directory.join(format!("{file}.new"));
    // Fortified, because distributions build this way: read becomes __read_chk and the like.
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-O2", "-g", "-w", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"])
        .args(flags)
        .arg("-o")
        .arg(&fresh)
        .arg(&code);
    run(&mut compiler, Duration::from_secs(60))
        .context("cc (Debian: gcc libc6-dev)")?
        .successful()?;
    fs::rename(&fresh, &program)?;
    Ok(program)
}

fn modified(path: &Path) -> Result<SystemTime> {
    Ok(fs::metadata(path).with_context(|| path.display().to_string())?.modified()?)
}

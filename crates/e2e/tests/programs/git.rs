//! git over its own protocol: the daemon hands its socket to a child as standard input and output.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use uncork_e2e::skip::{find, skip};
use uncork_e2e::{Daemon, Mode, beside_others, daemon, run, same_as_plain};

use crate::programs::Scratch;

const LIMIT: Duration = Duration::from_secs(60);

/// Returns git without this user's configuration.
fn git(mode: &Mode, directory: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = mode.command("git")?;
    command.current_dir(directory).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "A").env(format!("GIT_{role}_EMAIL"), "a@b");
        command.env(format!("GIT_{role}_DATE"), "2020-01-01T00:00:00Z");
    }
    Ok(command)
}

fn repository(scratch: &Scratch) -> Result<()> {
    let plain = Mode::plain();
    let origin = scratch.path("origin");
    fs::create_dir(&origin)?;
    let in_origin = |arguments: &[&str]| -> Result<String> {
        Ok(run(&mut git(&plain, &origin, arguments)?, LIMIT)?.successful()?.stdout)
    };
    in_origin(&["init", "-q", "-b", "main"])?;
    for number in 0..30 {
        scratch.file(&format!("origin/file{number}"), number * 7_000 + 10)?;
        in_origin(&["add", "."])?;
        in_origin(&["commit", "-q", "-m", &format!("change {number}")])?;
    }
    Ok(())
}

#[test]
fn git_clone_fails_or_gets_another_history() -> Result<()> {
    if find("git").is_none() {
        return skip("git is not installed (Debian: git)");
    }
    let _shared = beside_others();
    let origin = Scratch::new()?;
    repository(&origin)?;
    same_as_plain(&Mode::both_and_spinning(), |mode| {
        let scratch = Scratch::new()?;
        let port = daemon::free_port()?;
        let reporting = scratch.reporting(mode);
        let mut serve = git(&reporting, origin.root(), &["daemon", "--export-all", "--reuseaddr"])?;
        serve.args(["--listen=127.0.0.1", &format!("--port={port}"), "--enable=receive-pack"]);
        serve.arg(format!("--base-path={}", origin.root().display()));
        let server = Daemon::serving(serve, &scratch.path("log"), port)?;
        let url = format!("git://127.0.0.1:{port}/origin");
        let said = |directory: &Path, arguments: &[&str]| -> Result<String> {
            Ok(run(&mut git(&reporting, directory, arguments)?, LIMIT)?.successful()?.stdout)
        };
        said(scratch.root(), &["clone", "-q", &url, "copy"])?;
        let copy = scratch.path("copy");
        let mut facts = vec![
            said(&copy, &["rev-parse", "HEAD", "HEAD^{tree}"])?,
            said(&copy, &["fsck", "--strict"])?,
            said(&copy, &["ls-remote", "origin"])?,
        ];
        scratch.file("copy/another", 50_000)?;
        said(&copy, &["add", "."])?;
        said(&copy, &["commit", "-q", "-m", "pushed"])?;
        said(&copy, &["push", "-q", "origin", "HEAD:refs/heads/pushed"])?;
        facts.push(said(&origin.path("origin"), &["rev-parse", "pushed^{tree}"])?);
        said(&copy, &["push", "-q", "origin", ":refs/heads/pushed"])?;
        let status = server.stop(Signal::SIGTERM)?;
        scratch.check_helped(mode)?;
        Ok((facts, status))
    })
}

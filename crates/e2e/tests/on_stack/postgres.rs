//! PostgreSQL, not as root: a child for each client gets a connection that the server closes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nix::unistd::User;
use uncork_e2e::hosts::OURS;
use uncork_e2e::skip::skip;
use uncork_e2e::{Daemon, Hosts, artifact, run};

use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 5499;
const LIMIT: Duration = Duration::from_secs(30);
/// A script of pgbench(1).
const CHECKS: &str = r"\set wanted random(1, 100000)
SELECT aid AS account, length(repeat('x', aid % 3000)) AS long FROM pgbench_accounts WHERE aid = :wanted \gset
\if :account <> :wanted OR :long <> :wanted % 3000
SELECT 1 / 0;
\endif
";
/// Rows of an answer that takes many segments.
const ROWS: usize = 20_000;
const LONG_ANSWER: &str = "SELECT n, repeat('x', n % 100) FROM generate_series(0, 19999) AS n";

/// Finds the programs: Debian keeps each version's in a directory of its own.
fn binaries() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let found = versions.map(|version| version.path().join("bin"));
    found.filter(|path| path.join("pgbench").exists()).max()
}

/// Makes a command run as the user that PostgreSQL requires.
fn as_postgres(mut command: Command, program: PathBuf) -> Command {
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

#[test]
fn postgresql_loses_a_client_that_connects_for_each_transaction() -> Result<()> {
    if lacks(&[("setpriv", "util-linux")])? {
        return Ok(());
    }
    let Some(binaries) = binaries() else {
        return skip("PostgreSQL is not installed (Debian: postgresql)");
    };
    let hosts = Hosts::new("postgres")?;
    let scratch = Scratch::new()?;
    fs::set_permissions(scratch.root(), fs::Permissions::from_mode(0o755))?;
    let (data, library) = (scratch.path("data"), scratch.path("libuncork.so"));
    fs::copy(artifact::library()?, &library)?;
    fs::create_dir(&data)?;
    let owner = User::from_name("postgres")?.context("there is no user postgres")?;
    chown(&data, Some(owner.uid.as_raw()), Some(owner.gid.as_raw()))?;
    let mut initdb = as_postgres(Command::new("setpriv"), binaries.join("initdb"));
    initdb.args(["-A", "trust", "-U", "postgres", "-N", "--locale=C", "-D"]).arg(&data);
    run(initdb.current_dir(scratch.root()), LIMIT)?.successful()?;
    let access = fs::read_to_string(data.join("pg_hba.conf"))? + "\nhost all all all trust\n";
    fs::write(data.join("pg_hba.conf"), access)?;
    let mut server = as_postgres(hosts.on_stack("setpriv")?, binaries.join("postgres"));
    server.arg("-D").arg(&data).args(["-p", &PORT.to_string(), "-c", "listen_addresses=*"]);
    server.args(["-c", "unix_socket_directories=", "-c", "fsync=off"]);
    server.current_dir(scratch.root()).env("UNCORK_LIBRARY", &library);
    let server = Daemon::on_stack(server, &scratch.path("log"), &hosts, PORT)?;
    // Each answer is compared; the first wrong one ends its client, and so the run.
    let script = scratch.path("checks.sql");
    fs::write(&script, CHECKS)?;
    let script = script.to_str().context("a path in UTF-8")?;
    let checks = format!("-n -f {script} -c 16 -j 2 -t 100");
    let client = |words: &str| {
        let mut command = hosts.beside(binaries.join("pgbench"))?;
        command.args(["-h", OURS, "-U", "postgres", "-p", &PORT.to_string()]);
        let done =
            run(command.args(words.split(' ')), LIMIT).and_then(uncork_e2e::Finished::successful);
        done.with_context(|| format!("pgbench {words}\n{}", server.said()))
    };
    wait_until("the database has started", || Ok(client("-i -s 1 -q postgres").is_ok()))?;
    let opens = hosts.counted()?;
    let said = client("-c 8 -j 2 -t 20 -C postgres")?.stdout;
    ensure!(said.contains("processed: 160/160"), "{said}");
    // They go over to the kernel; hardly any may have begun there.
    let opened = hosts.opened_since(opens)?;
    ensure!(opened <= 8, "{opened} of 160 connections never were the stack's");
    let opens = hosts.counted()?;
    for (words, transactions) in [("-S -c 16 -j 2 -t 500", 8000), (&checks, 1600)] {
        let said = client(&format!("{words} postgres"))?.stdout;
        let all = format!("processed: {transactions}/{transactions}\n");
        ensure!(said.contains(&all) && said.contains("failed transactions: 0 "), "{said}");
    }
    let opened = hosts.opened_since(opens)?;
    ensure!(opened <= 2, "{opened} of 32 connections that stay never were the stack's");
    let mut asks = hosts.beside(binaries.join("psql"))?;
    asks.args(["-h", OURS, "-U", "postgres", "-p", &PORT.to_string(), "-AtXc", LONG_ANSWER]);
    let rows = run(asks.arg("postgres"), LIMIT)?.successful()?.stdout;
    let is_right = |(at, row): (usize, &str)| row == format!("{at}|{}", "x".repeat(at % 100));
    let wrong = rows.lines().enumerate().position(|row| !is_right(row));
    ensure!(wrong.is_none() && rows.lines().count() == ROWS, "another row, at {wrong:?}");
    server.stop(Signal::SIGINT)?;
    hosts.check_nothing_left(PORT)
}

//! PostgreSQL: a server that forks a process for each client, pgbench, and COPY both ways.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nix::unistd::User;
use uncork_e2e::skip::{find, root, skip};
use uncork_e2e::{Daemon, Finished, Mode, artifact, beside_others, daemon, run, same_as_plain};

use crate::programs::Scratch;

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn postgresql_fails_transactions_or_copies_other_rows() -> Result<()> {
    let Some(binaries) = binaries() else {
        return skip("PostgreSQL is not installed (Debian: postgresql)");
    };
    let _shared = beside_others();
    // Made only once: the cluster itself is not under test.
    let cluster = Cluster::new(binaries)?;
    same_as_plain(&Mode::both(), |mode| cluster.session(mode))
}

/// Finds the programs: Debian keeps each version's in a directory of its own.
fn binaries() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|path| path.join("postgres").exists() && path.join("pgbench").exists())
        .collect();
    versions.sort();
    versions.pop()
}

struct Cluster {
    binaries: PathBuf,
    scratch: Scratch,
}

impl Cluster {
    fn new(binaries: PathBuf) -> Result<Self> {
        let cluster = Self { binaries, scratch: Scratch::new()? };
        if root() {
            // PostgreSQL refuses to run as root, and so runs as its own user, which must be able to
            // reach the directory and the library.
            let owner = User::from_name("postgres")?.context("there is no user postgres")?;
            let root = cluster.scratch.root();
            fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
            fs::copy(artifact::library()?, cluster.copy_of_library())?;
            fs::create_dir(cluster.data())?;
            fs::write(cluster.scratch.path("stats"), "")?;
            for path in [cluster.data(), cluster.scratch.path("stats")] {
                chown(&path, Some(owner.uid.as_raw()), Some(owner.gid.as_raw()))?;
            }
        }
        let mut initdb = cluster.command(&Mode::plain(), "initdb")?;
        initdb.args(["-A", "trust", "-U", "postgres", "-N", "--locale=C", "-D"]);
        run(initdb.arg(cluster.data()), LIMIT)?.successful()?;
        Ok(cluster)
    }

    fn data(&self) -> PathBuf {
        self.scratch.path("data")
    }

    fn copy_of_library(&self) -> PathBuf {
        self.scratch.path("libuncork.so")
    }

    /// Returns one of PostgreSQL's programs, as the user that it requires.
    fn command(&self, mode: &Mode, name: &str) -> Result<Command> {
        let program = self.binaries.join(name);
        if !root() {
            return self.scratch.reporting(mode).command(program);
        }
        let mode = self.scratch.reporting(mode).with_library(&self.copy_of_library());
        let setpriv = find("setpriv").context("no setpriv (Debian: util-linux)")?;
        let mut command = Command::new(setpriv);
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "env"]);
        command.args(mode.variables()?.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(program).current_dir(self.scratch.root());
        command.env_remove("LD_PRELOAD");
        Ok(command)
    }

    fn client(&self, mode: &Mode, port: u16, name: &str, arguments: &[&str]) -> Result<Finished> {
        let mut command = self.command(mode, name)?;
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port.to_string()]);
        run(command.args(arguments), LIMIT)?.successful()
    }

    fn session(&self, mode: &Mode) -> Result<(Vec<String>, ExitStatus)> {
        let port = daemon::free_port()?;
        let stats = self.scratch.path("stats");
        fs::OpenOptions::new().write(true).truncate(true).create(true).open(&stats)?;
        let mut server = self.command(mode, "postgres")?;
        server.arg("-D").arg(self.data()).args(["-p", &port.to_string()]);
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"] {
            server.args(["-c", setting]);
        }
        let server = Daemon::serving(server, &self.scratch.path("log"), port)?;
        let ready = || self.client(mode, port, "psql", &["-c", "select 1"]);
        for _ in 0..50 {
            if ready().is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100)); // "the database is starting up"
        }
        mode.check_loaded(server.pid())?;
        let facts = self.facts(mode, port).with_context(|| server.said())?;
        let status = server.stop(Signal::SIGINT)?; // PostgreSQL's "fast" shutdown
        mode.check_helped(&stats)?;
        Ok((facts, status))
    }

    fn facts(&self, mode: &Mode, port: u16) -> Result<Vec<String>> {
        self.client(mode, port, "pgbench", &["-i", "-q", "-s", "1", "postgres"])?;
        for load in [["-c", "1", "-t", "300"], ["-c", "8", "-t", "200"]] {
            for options in [&["-S"][..], &["-S", "-M", "prepared"], &["-N"]] {
                let arguments = [&load[..], &["-n"], options, &["postgres"]].concat();
                let said = self.client(mode, port, "pgbench", &arguments)?.stdout;
                check_all_processed(&said)?;
            }
        }
        let rows = self.scratch.path("rows");
        let copies = [
            "create temp table t (n int, s text)",
            "insert into t select i, repeat(md5(i::text), i % 50) from generate_series(1, 5000) i",
            "\\copy t to pstdout",
            "select count(*), sum(length(s)), md5(string_agg(s, ',' order by n)) from t",
        ];
        let arguments: Vec<&str> = copies.iter().flat_map(|sql| ["-c", sql]).collect();
        let out = self.client(mode, port, "psql", &[&["-At", "-q"], &arguments[..]].concat())?;
        let mut facts = vec![out.stdout];
        let data: String = (0..20_000).map(|n| format!("{n}\tvalue {n}\n")).collect();
        fs::write(&rows, data)?;
        fs::set_permissions(&rows, fs::Permissions::from_mode(0o644))?;
        let copy = format!("\\copy u from '{}'", path_text(&rows)?);
        let sums = "select count(*), sum(n), md5(string_agg(s, ',' order by n)) from u";
        let words = ["-At", "-q", "-c", "create temp table u (n int, s text)", "-c", &copy];
        facts.push(self.client(mode, port, "psql", &[&words[..], &["-c", sums]].concat())?.stdout);
        Ok(facts)
    }
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}

fn check_all_processed(said: &str) -> Result<()> {
    let processed = said
        .lines()
        .find_map(|line| line.strip_prefix("number of transactions actually processed: "))
        .with_context(|| format!("pgbench says nothing of transactions:\n{said}"))?;
    let (done, wanted) = processed.split_once('/').context(processed.to_owned())?;
    ensure!(done == wanted, "pgbench: {processed}");
    let failed = said.lines().find_map(|line| line.strip_prefix("number of failed transactions: "));
    ensure!(failed.is_some_and(|text| text.starts_with("0 ")), "pgbench:\n{said}");
    Ok(())
}

//! Programs of unprivileged users, whose guardian is a service (`uncork stack guard`).

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::cpython::PYTHON;
use uncork_e2e::http::{Answer, Connection};
use uncork_e2e::late::{ensure_soon, in_time};
use uncork_e2e::{Alone, Daemon, Hosts, alone, artifact, run};
use uncork_guardian::VERSION;

use crate::on_stack::instances::{end_of, is_echoed};
use crate::on_stack::{Scratch, lacks, wait_until};

const NEEDED: [(&str, &str); 2] = [("python3", "python3"), ("setpriv", "util-linux")];
/// Users with one program each.
const USERS: [(u32, u16); 2] = [(65_534, 7110), (1, 7111)];
/// A group that both users are in during the test.
const GROUP: u32 = 4711;
/// The file to download: more than buffers hold.
const FILE: &str = "/file";
const SIZE: usize = 10_000_000;
const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);
/// The unit in systemd/uncorkd.service.
const UNIT: &str = include_str!("../../../../systemd/uncorkd.service");

/// A guardian, and what its users need: uncork with its library, where every user may go.
struct Service<'a> {
    hosts: &'a Hosts,
    scratch: &'a Scratch,
    name: String,
    guardian: Daemon,
}

impl<'a> Service<'a> {
    fn start(hosts: &'a Hosts, scratch: &'a Scratch) -> Result<Self> {
        fs::set_permissions(scratch.root(), fs::Permissions::from_mode(0o755))?;
        let files = [
            (artifact::uncork()?, "uncork"),
            (artifact::library()?, "libuncork.so"),
            (artifact::source("py/instance.py"), "instance.py"),
            (artifact::source("py/look.py"), "look.py"),
        ];
        for (from, to) in files {
            run(Command::new("install").args(["-m", "755"]).arg(from).arg(scratch.path(to)), LONG)?
                .successful()?;
        }
        let name = format!("e2e-{}", hosts.ours.name());
        let mut command = hosts.ours.command("setpriv");
        let allowed = capabilities()?;
        command.args([format!("--bounding-set={allowed}"), format!("--inh-caps={allowed}")]);
        command.arg("--no-new-privs").arg(scratch.path("uncork"));
        command.args(["stack", "guard", "--dev", "eth0", "--name", &name]);
        command.args(["--group", &GROUP.to_string()]);
        // As its unit starts it (Type=notify).
        let manager = UnixDatagram::bind(scratch.path("notify"))?;
        manager.set_read_timeout(Some(LONG))?;
        command.env("NOTIFY_SOCKET", scratch.path("notify"));
        let guardian = Daemon::start(command, &scratch.path("guardian.log"))?;
        let service = Self { hosts, scratch, name, guardian };
        let mut heard = [0; 64];
        let count = manager.recv(&mut heard).with_context(|| service.guardian.said())?;
        ensure!(&heard[..count] == b"READY=1" && service.place().exists(), "it is not ready");
        fs::remove_file(scratch.path("notify"))?;
        Ok(service)
    }

    fn place(&self) -> PathBuf {
        Path::new("/run/uncork/guard").join(&self.name)
    }

    fn as_user(&self, uid: u32, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.hosts.ours.command("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={GROUP}")]);
        command.arg("--clear-groups").arg(program);
        command
    }

    fn uncork(&self, uid: u32) -> Command {
        self.as_user(uid, self.scratch.path("uncork"))
    }

    /// Starts one of the servers of `py/instance.py`, as a user.
    fn python(&self, how: &str, (uid, port): (u32, u16)) -> Result<Daemon> {
        let mut command = self.uncork(uid);
        command.args(["run", "--stack", "--guardian", &self.name, "--", PYTHON]);
        command.arg(self.scratch.path("instance.py")).args([how, &port.to_string()]);
        Daemon::on_stack(command, &self.scratch.path(&format!("{uid}.log")), self.hosts, port)
    }

    /// Starts Python's web server, with a file.
    fn web(&self, (uid, port): (u32, u16)) -> Result<Daemon> {
        self.scratch.file(&FILE[1..], SIZE)?;
        let mut command = self.uncork(uid);
        command.args(["run", "--stack", "--guardian", &self.name, "--", PYTHON, "-m"]);
        command.args(["http.server", &port.to_string(), "--directory"]).arg(self.scratch.root());
        Daemon::on_stack(command, &self.scratch.path("web.log"), self.hosts, port)
    }

    /// Returns what `uncork stack stat` tells this user of a program, and whether it succeeds.
    fn asked_by(&self, uid: u32, program: &Daemon) -> Result<(String, bool)> {
        let mut command = self.uncork(uid);
        let said = run(command.args(["stack", "stat", &program.pid().to_string()]), LONG)?;
        Ok((said.stdout + &said.stderr, said.status.success()))
    }

    /// Returns what the guardian answers this user who asks it directly about a program.
    fn looked_at_by(&self, uid: u32, program: &Daemon) -> Result<String> {
        let place = fs::read_to_string(self.place())?;
        let place = place.lines().next().context("no place")?;
        let mut command = self.as_user(uid, PYTHON);
        command.arg(self.scratch.path("look.py")).args([place, &VERSION.to_string()]);
        Ok(run(command.arg(program.pid().to_string()), LONG)?.successful()?.stdout)
    }
}

/// Returns the capabilities that the unit leaves its service, in setpriv(1)'s form.
fn capabilities() -> Result<String> {
    let line = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.context("no capabilities in the unit")?.split_whitespace();
    let allowed = names.map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()));
    Ok("-all".to_owned() + &allowed.collect::<String>())
}

#[test]
fn users_without_privileges_harm_each_other_or_have_no_stack() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("the end of a user's program", || users_are_apart(&alone))
}

fn users_are_apart(alone: &Alone) -> Result<()> {
    let hosts = alone.hosts("service")?;
    hosts.stop_instances()?;
    let scratch = Scratch::new()?;
    let service = Service::start(&hosts, &scratch)?;
    let [first, second] = USERS.map(|user| service.python("echo", user));
    let (first, second) = (first?, second?);
    let [(uid, port), (other_uid, other_port)] = USERS;
    let (mut peer, mut other) = (hosts.connect(port)?, hosts.connect(other_port)?);
    for stream in [&mut peer, &mut other] {
        is_echoed(stream, 2000)?;
        hosts.check_on_stack(stream)?;
    }
    let (said, is_told) = service.asked_by(uid, &first)?;
    ensure!(is_told && said.contains("ESTAB"), "its own user is told: {said}");
    let (said, is_told) = service.asked_by(other_uid, &first)?;
    ensure!(!is_told && !said.contains("ESTAB"), "another one is not: {said}");
    let said = service.looked_at_by(uid, &first)?;
    ensure!(said.contains("\"looked\""), "its own user may ask the guardian: {said}");
    let said = service.looked_at_by(other_uid, &first)?;
    ensure!(said.contains("another user's"), "another one may not: {said}");
    // One program dies: its peer hears of that, and the other program's peer of nothing.
    let killed = Instant::now();
    first.signal(Signal::SIGKILL)?;
    let late = end_of(peer) - killed;
    ensure_soon(late, SOON, || format!("a peer has heard of its end after {late:?}"))?;
    is_echoed(&mut other, 2000)?;
    hosts.check_on_stack(&other)?;
    drop(first);
    // Another program of that user finds the same guardian.
    let first = service.python("echo", USERS[0])?;
    let again = hosts.connect(port)?;
    hosts.check_on_stack(&again)?;
    // Told to end, the guardian lets programs take their connections to the kernel.
    let place = service.place();
    let mut again = again;
    is_echoed(&mut again, 2000)?;
    ensure!(service.guardian.stop(Signal::SIGTERM)?.success(), "the guardian ends well");
    ensure!(!place.exists(), "{} is left", place.display());
    for stream in [&mut again, &mut other] {
        is_echoed(stream, 2000).context("through the end of the guardian")?;
        ensure!(hosts.kernel_has(stream.local_addr()?)?, "nobody has it");
    }
    // The programs go on with kernel sockets.
    is_echoed(&mut hosts.connect(other_port)?, 2000).context("programs serve on by the kernel")?;
    for program in [first, second] {
        program.stop(Signal::SIGTERM)?;
    }
    hosts.check_nothing_left(port)
}

#[test]
fn a_guardian_that_is_told_to_end_loses_somebody() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("servend")?;
    hosts.stop_instances()?;
    let scratch = Scratch::new()?;
    let service = Service::start(&hosts, &scratch)?;
    let web = service.web(USERS[0])?;
    let port = USERS[0].1;
    let wanted = Answer::of(200, &crate::on_stack::noise(SIZE));
    let slow: Vec<_> =
        (0..8).map(|_| slow_download(&hosts, port).context("begun")).collect::<Result<_>>()?;
    // Connections in the accept queue of a program that sleeps, with data already sent.
    let late = service.python("late", USERS[1])?;
    let mut begins = hosts.connect(USERS[1].1)?;
    begins.write_all(b"!")?;
    wait_until("it sleeps", || Ok(late.said().contains("late")))?;
    let mut waiting: Vec<_> = (0..8).map(|_| hosts.connect(USERS[1].1)).collect::<Result<_>>()?;
    for one in &mut waiting {
        one.write_all(b"said before")?;
        hosts.check_on_stack(one)?;
    }
    ensure!(service.guardian.stop(Signal::SIGTERM)?.success(), "the guardian ends well");
    // All at once: a sender probes a shut window less often each time.
    thread::scope(|scope| {
        let read = |mut one: Connection| move || one.answer().context("a download");
        let all: Vec<_> = slow.into_iter().map(|one| scope.spawn(read(one))).collect();
        all.into_iter().try_for_each(|one| {
            let got = one.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            ensure!(got == wanted, "another file");
            Ok(())
        })
    })?;
    for mut one in waiting {
        let mut said = [0; 11];
        one.read_exact(&mut said).context("one that waited")?;
        ensure!(said == *b"said before", "another echo");
        is_echoed(&mut one, 2000)?;
    }
    late.stop(Signal::SIGTERM)?;
    web.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(port)
}

#[test]
fn a_guardian_that_is_told_to_end_resets_who_has_said_nothing() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("servdefer")?;
    hosts.stop_instances()?;
    let scratch = Scratch::new()?;
    let service = Service::start(&hosts, &scratch)?;
    let (_, port) = USERS[0];
    let server = service.python("defers", USERS[0])?;
    let mut silent: Vec<_> = (0..4).map(|_| hosts.connect(port)).collect::<Result<_>>()?;
    thread::sleep(SOON);
    ensure!(service.guardian.stop(Signal::SIGTERM)?.success(), "the guardian ends well");
    for one in &mut silent {
        is_echoed(one, 2000).context("said behind the end of the guardian")?;
    }
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(port)
}

/// A download that has begun, and that the client does not read.
fn slow_download(hosts: &Hosts, port: u16) -> Result<Connection> {
    let mut one = hosts.http(port)?;
    one.request(FILE, "")?;
    one.stream().peek(&mut [0])?;
    Ok(one)
}

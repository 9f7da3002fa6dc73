//! OpenSSH: a server that forks for each connection, executes itself anew, and has one of its
//! children talk in a system-call sandbox (seccomp); and its client.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OURS, THEIRS};
use uncork_e2e::{Daemon, Hosts, run};

use crate::on_stack::{Scratch, lacks, noise, wait_until};

const PORT: u16 = 2222;
const NEEDED: [(&str, &str); 2] = [("sshd", "openssh-server"), ("ssh", "openssh-client")];
const LONG: Duration = Duration::from_secs(60);
const OCTETS: usize = 3_000_000;
const SESSIONS: usize = 4;

/// Makes keys for the server and for all clients, and the server's configuration. Returns its
/// command line; the directory that it requires (`/run/sshd`) is in a /run of its own.
fn prepare(scratch: &Scratch) -> Result<Vec<String>> {
    for key in ["host", "user"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(scratch.path(key));
        run(&mut command, LONG)?.successful()?;
    }
    let at = scratch.root().display();
    let configuration = format!(
        "Port {PORT}\nHostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nPidFile none\nUsePAM no\n\
         StrictModes no\nPermitRootLogin prohibit-password\nMaxStartups 100\n"
    );
    fs::write(scratch.path("sshd_config"), configuration)?;
    let script = format!(
        "mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -e -f {at}/sshd_config"
    );
    Ok(vec!["-c".to_owned(), script])
}

/// Runs one session: the data sent comes back, and the exit status is that of the remote command.
fn session(mut ssh: Command, key: &Path, to: &str, sent: &Path) -> Result<()> {
    ssh.args(["-p", &PORT.to_string(), "-i"]).arg(key).args(
        ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
            .iter()
            .flat_map(|option| ["-o", option]),
    );
    ssh.args(["-F", "none", &format!("root@{to}"), "cat; exit 7"]);
    ssh.stdin(File::open(sent)?).stdout(Stdio::piped());
    let output = ssh.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(7), "{}\n{said}", output.status);
    let sent = fs::read(sent)?;
    ensure!(output.stdout == sent, "{} of {} came back", output.stdout.len(), sent.len());
    Ok(())
}

#[test]
fn sshd_loses_a_session_or_a_part_of_it() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("sshd")?;
    let scratch = Scratch::new()?;
    let arguments = prepare(&scratch)?;
    let mut command = hosts.on_stack("sh")?;
    command.args(arguments);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let before = hosts.counted()?;
    let key = scratch.path("user");
    hosts
        .crowd(SESSIONS, |who| {
            let sent = scratch.path(&format!("sent-{who}"));
            fs::write(&sent, noise(OCTETS + who))?;
            session(Command::new("ssh"), &key, OURS, &sent)
        })
        .map_err(|error| error.context(server.said()))?;
    let opened = hosts.opened_since(before)?;
    ensure!(opened == 0, "{opened} connections were the kernel's from the beginning");
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn ssh_loses_a_part_of_what_it_sends_or_gets() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("ssh")?;
    let scratch = Scratch::new()?;
    let arguments = prepare(&scratch)?;
    let mut command = hosts.beside("sh")?;
    command.args(arguments);
    let server = Daemon::start(command, &scratch.path("log"))?;
    wait_until("the other host listens", || Ok(hosts.theirs.listens(PORT)))?;
    let before = hosts.counted()?;
    let sent = scratch.file("sent", OCTETS)?;
    let ssh = hosts.on_stack("ssh")?;
    session(ssh, &scratch.path("user"), THEIRS, &sent).with_context(|| server.said())?;
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

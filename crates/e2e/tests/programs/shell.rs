//! Scripts whose standard output is a socket: what inetd, systemd sockets and bash do.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};
use uncork_e2e::skip::{find, skip};
use uncork_e2e::{Mode, beside_others, run, same_as_plain};

const SCRIPT: &str = r#"
exec 3<>"/dev/tcp/127.0.0.1/$1"
echo first >&3
printf '%s ' second third >&3
(echo from a subshell; exec sh -c 'echo from exec') >&3
seq 1 2000 | sort -n | cat >&3
head -c 100000 /dev/zero | tr '\0' z >&3
date -u -d @0 +%Y >&3
{ echo last; exit 3; } >&3
"#;

#[test]
fn output_of_a_shell_script_is_lost_or_reordered() -> Result<()> {
    if find("bash").is_none() {
        return skip("bash is not installed (Debian: bash)");
    }
    let _shared = beside_others();
    same_as_plain(&Mode::both(), |mode| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port().to_string();
        let reader = std::thread::spawn(move || -> Result<Vec<u8>> {
            let (mut stream, _) = listener.accept()?;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        let mut script = mode.command("bash")?;
        script.args(["-c", SCRIPT, "bash", &port]);
        script.env("LC_ALL", "C");
        let script = run(&mut script, Duration::from_secs(30))?;
        let bytes = reader.join().ok().context("the reader panicked")??;
        Ok((script.status, script.stdout, script.stderr, String::from_utf8(bytes)?))
    })
}

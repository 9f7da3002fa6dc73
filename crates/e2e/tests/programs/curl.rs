//! curl, up and down, against Python's server, both ends under the library.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::skip::{find, skip};
use uncork_e2e::{Finished, Mode, beside_others, run, same_as_plain};

use crate::programs::{Scratch, python};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn curl_transfers_are_damaged() -> Result<()> {
    if find("curl").is_none() {
        return skip("curl is not installed (Debian: curl)");
    }
    let _shared = beside_others();
    same_as_plain(&Mode::both(), |mode| {
        let scratch = Scratch::new()?;
        let sizes = [1, 1_000, 1_500_000];
        let (server, port) = python::serving(mode, &scratch)?;
        let mut said = Vec::new();
        for size in sizes {
            let sent = scratch.file(&format!("file-{size}"), size)?;
            let url = format!("http://127.0.0.1:{port}/file-{size}");
            let got = scratch.path("got");
            let mut down = mode.command("curl")?;
            down.args(["-sS", "-f", "-o"]).arg(&got).arg(&url).arg("--next");
            // A second transfer on the same connection, headers only.
            down.args(["-sS", "-I", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}"]);
            let finished: Finished = run(down.arg(&url), LIMIT)?.successful()?;
            ensure!(fs::read(&sent)? == fs::read(&got)?, "the download of {size} bytes differs");
            said.push(finished.stdout);
            let mut up = mode.command("curl")?;
            up.args(["-sS", "-f", "-T"]).arg(&sent).arg(&url);
            said.push(run(&mut up, LIMIT)?.successful()?.stdout);
        }
        let status = server.stop(Signal::SIGTERM)?;
        Ok((said, status))
    })
}

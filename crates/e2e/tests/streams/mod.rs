//! The property that everything rests on: whatever two programs do to their connections, each
//! receives exactly the same bytes under the library as without it.
//!
//! A random plan is lowered to two scripts (`plan.rs`), which `c/actor.c` carries out at the two
//! ends. The actor knows which byte belongs at which offset, and checks each one that it reads.

mod plan;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use uncork_e2e::artifact::compiled;
use uncork_e2e::run::tail;
use uncork_e2e::{Daemon, Finished, Mode, beside_others, run, soak};
use uncork_posix::config::Hold;

use plan::{Plan, Scripts};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn the_two_ends_receive_other_bytes_than_without_the_library() -> Result<()> {
    let _shared = beside_others();
    let actor = compiled("actor")?;
    let config = Config {
        cases: if soak() { 5000 } else { 300 },
        // Each case starts at least eight processes: this is enough to find the core of a failure.
        max_shrink_iters: 300,
        max_shrink_time: 120_000,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&plan::plans(), |plan| {
        let scripts = plan.lower();
        check(&actor, &scripts, &plan).map_err(|error| TestCaseError::fail(format!("{error:#}\n")))
    });
    outcome.map_err(|error| anyhow::anyhow!("{error}"))
}

fn check(actor: &Path, scripts: &Scripts, plan: &Plan) -> Result<()> {
    let plain = Mode::plain();
    let wanted = both_ends(actor, scripts, [&plain, &plain]).context("without the library")?;
    let kernel = plan.settings(Mode::held(Hold::Kernel));
    let user = plan.settings(Mode::held(Hold::User));
    for ends in [[&kernel, &kernel], [&user, &user], [plan.pick(&kernel, &user), &plain]] {
        let what = || format!("{} | {}", ends[0], ends[1]);
        let got = both_ends(actor, scripts, ends).with_context(what)?;
        ensure!(got == wanted, "{}: {got:?}, but without the library {wanted:?}", what());
    }
    Ok(())
}

/// Returns the reports of the listening and the connecting end on what they received.
fn both_ends(actor: &Path, scripts: &Scripts, modes: [&Mode; 2]) -> Result<[String; 2]> {
    let scratch = tempfile::tempdir()?;
    let (first, second) = (scratch.path().join("listen"), scratch.path().join("connect"));
    fs::write(&first, &scripts.listening)?;
    fs::write(&second, &scripts.connecting)?;
    let mut listening = modes[0].command(actor)?;
    listening.arg("listen").arg(&first);
    let log = scratch.path().join("log");
    let listener = Daemon::start(listening, &log)?;
    let ports = first_line(&log)?;
    let mut connecting: Command = modes[1].command(actor)?;
    connecting.arg("connect").arg(&second).args(ports.split(' '));
    let connected = run(&mut connecting, LIMIT)
        .and_then(Finished::successful)
        .with_context(|| format!("the other end:\n{}", listener.said()))?;
    let status = listener.wait(LIMIT)?;
    let said = fs::read_to_string(&log)?;
    ensure!(status.success(), "listening end: {status}\n{}", tail(&said));
    let said = said.strip_prefix(&ports).unwrap_or(&said).to_owned();
    Ok([said, connected.stdout])
}

fn first_line(log: &Path) -> Result<String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let text = fs::read_to_string(log)?;
        if let Some((line, _)) = text.split_once('\n') {
            return Ok(line.to_owned());
        }
        ensure!(Instant::now() < deadline, "the listening end told no ports");
        std::thread::sleep(Duration::from_millis(1));
    }
}

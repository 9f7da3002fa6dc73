//! CPython's own tests of everything that waits or talks: the same ones pass, fail and are skipped
//! with the library as without it.
//!
//! Most of them sleep most of the time, so the plain run and the others go side by side. A test
//! that differs gets two more chances in both, because some are flaky by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use uncork_e2e::cpython::{self, Outcomes, PYTHON};
use uncork_e2e::run::{run, tail};
use uncork_e2e::skip::{note, skip};
use uncork_e2e::{Mode, beside_others, soak};

const LIMIT: Duration = Duration::from_secs(400);
const TRIES: usize = 3;

macro_rules! suites {
    ($($test:ident: $module:literal $($which:ident $names:expr)?;)+) => {$(
        #[test]
        fn $test() -> Result<()> {
            suite(Suite { $($which: &$names,)? ..Suite::of($module) })
        }
    )+};
}

suites! {
    // Two of its modules take most of the time.
    test_asyncio_fails_otherwise: "test_asyncio" without
        ["test.test_asyncio.test_events.*", "test.test_asyncio.test_tasks.*"];
    test_asyncio_events_fails_otherwise: "test_asyncio" only ["test.test_asyncio.test_events.*"];
    test_asyncio_tasks_fails_otherwise: "test_asyncio" only ["test.test_asyncio.test_tasks.*"];
    test_epoll_fails_otherwise: "test_epoll";
    test_httplib_fails_otherwise: "test_httplib";
    test_poll_fails_otherwise: "test_poll";
    test_selectors_fails_otherwise: "test_selectors";
    test_socket_fails_otherwise: "test_socket";
    // All of it needs this resource, although it stays on this machine.
    test_socketserver_fails_otherwise: "test_socketserver" resource ["network"];
    test_ssl_fails_otherwise: "test_ssl";
    test_subprocess_fails_otherwise: "test_subprocess";
}

fn suite(suite: Suite) -> Result<()> {
    if !cpython::is_installed() {
        return skip("CPython's tests are not installed (Debian: libpython3-testsuite)");
    }
    let _shared = beside_others();
    let modes = if soak() { Mode::both_and_spinning() } else { Mode::both() };
    let module = suite.module;
    let (plain, others) = std::thread::scope(|scope| {
        let others: Vec<_> =
            modes.iter().map(|mode| scope.spawn(|| suite.outcomes(mode, &[]))).collect();
        let plain = suite.outcomes(&Mode::plain(), &[]).or_else(|error| {
            // It says nothing of the library: now and then one of these tests hangs by itself.
            let why = error.root_cause().to_string();
            note(&format!("{module} once more without it: {}", why.lines().next().unwrap_or("")));
            suite.outcomes(&Mode::plain(), &[])
        });
        let others: Vec<_> = others
            .into_iter()
            .map(|run| run.join().map_err(|_| anyhow::anyhow!("a runner panicked"))?)
            .collect();
        anyhow::Ok((plain?, others))
    })?;
    ensure!(!plain.is_empty(), "{module}: no test was run");
    let mut differences = String::new();
    for (mode, with) in modes.iter().zip(others) {
        for (name, text) in suite.differences(mode, &plain, &with?)? {
            differences += &format!("{mode}: {name}: {text}\n");
        }
    }
    ensure!(differences.is_empty(), "{module}:\n{differences}");
    Ok(())
}

#[derive(Clone, Copy)]
struct Suite {
    module: &'static str,
    resource: &'static [&'static str],
    /// Patterns of the tests to run, and of those to leave out.
    only: &'static [&'static str],
    without: &'static [&'static str],
}

impl Suite {
    const fn of(module: &'static str) -> Self {
        Self { module, resource: &[], only: &[], without: &[] }
    }

    /// Runs all of its tests, or those with these names.
    fn outcomes(&self, mode: &Mode, names: &[String]) -> Result<Outcomes> {
        let scratch = tempfile::tempdir()?;
        let report = scratch.path().join("report.xml");
        let mut command = mode.command(PYTHON)?;
        // VSOCK is not TCP, and where no host answers, these tests hang even without the library.
        command.args(["-m", "test", "-v", "-i", "*VSOCK*", "--junit-xml"]).arg(&report);
        command.arg("--tempdir").arg(scratch.path());
        command.args(self.resource.iter().flat_map(|resource| ["-u", resource]));
        command.args(self.without.iter().flat_map(|name| ["-i", name]));
        let only = if names.is_empty() { self.only } else { &[] };
        let names = names.iter().map(String::as_str).chain(only.iter().copied());
        command.args(names.flat_map(|name| ["-m", name]));
        let finished = run(command.arg(self.module), LIMIT).with_context(|| mode.to_string())?;
        if !report.exists() {
            bail!(
                "{mode}: {} left no report ({})\n{}{}",
                self.module,
                finished.status,
                tail(&finished.stdout),
                tail(&finished.stderr)
            );
        }
        cpython::outcomes(&report)
    }

    /// Returns the tests that never ended in `mode` as they ever did plain, each with both outputs.
    fn differences(
        &self,
        mode: &Mode,
        plain: &Outcomes,
        with: &Outcomes,
    ) -> Result<Vec<(String, String)>> {
        let mut stories: BTreeMap<String, [BTreeSet<String>; 2]> = BTreeMap::new();
        for name in plain.keys().chain(with.keys()) {
            if plain.get(name) != with.get(name) {
                stories.insert(name.clone(), [outcome(plain, name), outcome(with, name)]);
            }
        }
        for _ in 1..TRIES {
            stories.retain(|_, [plain, with]| plain.is_disjoint(with));
            if stories.is_empty() {
                break;
            }
            let names: Vec<String> = stories.keys().cloned().collect();
            let again = [self.outcomes(&Mode::plain(), &names)?, self.outcomes(mode, &names)?];
            for (name, story) in &mut stories {
                for (outcomes, side) in again.iter().zip(story) {
                    side.extend(outcome(outcomes, name));
                }
            }
        }
        stories.retain(|_, [plain, with]| plain.is_disjoint(with));
        Ok(stories
            .into_iter()
            .map(|(name, [plain, with])| (name, format!("plain {plain:?}, with {with:?}")))
            .collect())
    }
}

fn outcome(outcomes: &Outcomes, name: &str) -> BTreeSet<String> {
    BTreeSet::from([outcomes.get(name).map_or("not run", String::as_str).to_owned()])
}

//! `uncork tune small-queues --verify` and its measurements, on real bulk senders in two namespaces
//! joined by a bottleneck. The tests run in parallel: each has its own hosts, and mostly sleeps.
//! Load on all cores would slow their senders, so nothing else runs meanwhile.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{UNCORK, needs_root};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_lab::load::Bulk;
use uncork_lab::place::{Bottleneck, DEVICE, FAR, Place as Lab};
use uncork_lab::socket::Congestion;
use uncork_netns::clear_leftovers;
use uncork_sockdiag::{Answer, SockDiag};

const MBIT: u64 = 1_000_000;

/// Two hosts, a bottleneck, a journal and a bpffs.
struct Link {
    lab: Lab,
    directory: tempfile::TempDir,
}

impl Link {
    fn make(test: &str) -> Option<Self> {
        if !needs_root(test) {
            return None;
        }
        clear_leftovers().unwrap();
        let bottleneck = Bottleneck { rate: 100 * MBIT, segmentation_offload: true };
        let lab = Lab::new(bottleneck, uncork_lab::tsq::Setting::Kernel.settings(0, 0)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("bpf")).unwrap();
        Some(Self { lab, directory })
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn tune(&self, words: &str) -> Command {
        let mut command = Command::new(UNCORK);
        command.arg("tune").args(words.split_whitespace());
        command.arg("--state").arg(self.state());
        command.arg("--bpffs").arg(self.directory.path().join("bpf"));
        command
    }

    /// Runs `small-queues` at the near end, and asserts the exit status.
    fn small(&self, words: &str, code: i32) -> (String, String) {
        let netns = self.lab.near.name();
        self.tuned(&format!("small-queues --dev {DEVICE} --netns {netns} {words}"), code)
    }

    fn tuned(&self, words: &str, code: i32) -> (String, String) {
        let output = self.tune(words).output().unwrap();
        let said = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (said(output.stdout), said(output.stderr));
        assert_eq!(output.status.code(), Some(code), "uncork tune {words}: {stdout}{stderr}");
        (stdout, stderr)
    }

    fn bulk(&self, senders: u32) -> Bulk {
        let kernel = uncork_lab::tsq::Setting::Kernel.settings(0, 0);
        let bulk = Bulk::start(&self.lab, senders, kernel, Congestion::Cubic).unwrap();
        thread::sleep(Duration::from_secs(1));
        bulk
    }

    /// Returns the settings that small queues change.
    fn settings(&self) -> String {
        let script = format!(
            "cd /proc/sys/net/ipv4; grep . tcp_limit_output_bytes tcp_notsent_lowat \
             tcp_min_tso_segs tcp_tso_rtt_log; ip -d link show {DEVICE} | grep -o 'gso_max_s[a-z]* [0-9]*'"
        );
        let output = self.lab.near.command("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asserts that nothing is changed, and no change is listed.
    #[track_caller]
    fn is_as_before(&self, before: &str) {
        assert_eq!(self.settings(), before);
        assert_eq!(self.tuned("list", 0).0, "nothing is tuned\n");
    }

    /// Returns the sending connections as the near end's kernel reports them.
    fn senders(&self) -> Vec<Answer> {
        let all = self.lab.near.within(|| Ok(SockDiag::open()?.connections()?)).unwrap();
        all.into_iter().filter(|one| one.remote.ip() == FAR && one.info.notsent_bytes > 0).collect()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.tune("undo --all").output();
        let _ = Command::new("umount").arg("-l").arg(self.directory.path().join("bpf")).output();
    }
}

#[test]
fn what_helps_is_kept_and_both_are_shown() {
    uncork_calm::asserted("what_helps_is_kept_and_both_are_shown", || {
        let Some(link) = Link::make("what_helps_is_kept_and_both_are_shown") else { return };
        let before = link.settings();
        let _bulk = link.bulk(1);
        let (said, _) = link.small("--verify --each 600ms", 0);
        assert!(said.contains("it helped"), "{said}");
        let milliseconds = |row: &str| -> f64 {
            let line = said.lines().find(|line| line.starts_with(row)).unwrap();
            line[row.len()..].split_whitespace().next().unwrap().parse().unwrap()
        };
        for round in 1..=3 {
            let (without, with) =
                (milliseconds(&format!("{round} before")), milliseconds(&format!("{round} after")));
            assert!(without > 3.0 && with < 2.0, "{said}");
        }
        assert_ne!(link.settings(), before);
        let (list, _) = link.tuned("list", 0);
        assert_eq!(list.matches("in force for").count(), 1, "{list}");
        link.tuned("undo --all", 0);
        assert_eq!(link.settings(), before);
    });
}

#[test]
fn without_a_load_nothing_is_changed_and_it_says_so() {
    let Some(link) = Link::make("without_a_load_nothing_is_changed_and_it_says_so") else { return };
    let before = link.settings();
    let (_, said) = link.small("--verify --each 300ms", 1);
    assert!(said.contains("no load to judge by") && said.contains("nothing was changed"), "{said}");
    link.is_as_before(&before);
    // A bulk sender over another device does not count for this one.
    let netns = link.lab.near.name();
    let _bulk = link.bulk(1);
    let words = format!("small-queues --dev lo --rate 100mbit --netns {netns} --verify");
    let (_, said) = link.tuned(&words, 1);
    assert!(said.contains("1 that go over other devices"), "{said}");
}

/// The far end reads little at a time, so that nothing queues here: there is nothing to gain.
#[test]
fn what_does_not_help_is_taken_back() {
    let Some(link) = Link::make("what_does_not_help_is_taken_back") else { return };
    let window = "echo 4096 8192 8192 >/proc/sys/net/ipv4/tcp_rmem";
    assert!(link.lab.far.command("sh").args(["-c", window]).status().unwrap().success());
    let before = link.settings();
    let _bulk = link.bulk(1);
    let (shown, said) = link.small("--verify --each 400ms", 1);
    assert!(shown.contains("3 after"), "{shown}");
    assert!(said.contains("all is as it was"), "{said}");
    link.is_as_before(&before);
}

/// As above, but its output file has room for the first line only.
#[test]
fn what_does_not_help_stays_where_nobody_can_be_told() {
    let Some(link) = Link::make("what_does_not_help_stays_where_nobody_can_be_told") else {
        return;
    };
    let window = "echo 4096 8192 8192 >/proc/sys/net/ipv4/tcp_rmem";
    assert!(link.lab.far.command("sh").args(["-c", window]).status().unwrap().success());
    let before = link.settings();
    let _bulk = link.bulk(1);
    // The limit leaves room for every other file that it writes.
    let limit = 1 << 20;
    let file = link.directory.path().join("said");
    let out = fs::OpenOptions::new().append(true).create(true).open(&file).unwrap();
    out.set_len(limit - 250).unwrap();
    let netns = link.lab.near.name();
    let words = format!("small-queues --dev {DEVICE} --netns {netns} --verify --each 300ms");
    let mut command = Command::new("prlimit");
    command.arg(format!("--fsize={limit}")).args(["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    command.arg(UNCORK).args(link.tune(&words).get_args());
    let ended = command.stdout(out).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(125), "{said}");
    assert!(said.contains("standard output cannot be written"), "{said}");
    let shown = fs::read(&file).unwrap();
    assert!(String::from_utf8_lossy(&shown).contains("verifying"), "it was not begun");
    link.is_as_before(&before);
}

#[test]
fn a_run_that_is_broken_off_while_it_verifies_is_undone() {
    let Some(link) = Link::make("a_run_that_is_broken_off_while_it_verifies_is_undone") else {
        return;
    };
    let before = link.settings();
    let _bulk = link.bulk(1);
    let netns = link.lab.near.name();
    let words = format!("small-queues --dev {DEVICE} --netns {netns} --verify --each 300ms");
    for (signal, code) in [(Signal::SIGINT, Some(130)), (Signal::SIGKILL, None)] {
        let mut run = Ended(link.tune(&words).stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(run.0.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().starts_with("verifying"));
        // The change comes in 0.3 s, on a machine with little else to do, and stands for 1.3 s.
        let patience = Instant::now() + Duration::from_secs(20);
        while link.settings() == before {
            assert!(Instant::now() < patience, "nothing was changed");
            thread::sleep(Duration::from_millis(20));
        }
        kill(Pid::from_raw(run.0.id().cast_signed()), signal).unwrap();
        assert_eq!(run.0.wait().unwrap().code(), code);
        if signal == Signal::SIGKILL {
            assert!(link.tuned("list", 0).0.contains("in force for"));
            link.tuned("undo --all", 0);
        }
        link.is_as_before(&before);
    }
}

#[test]
fn a_run_that_is_broken_off_before_it_verifies_says_so() {
    let Some(link) = Link::make("a_run_that_is_broken_off_before_it_verifies") else { return };
    let before = link.settings();
    let _bulk = link.bulk(1);
    // The run waits for ping replies that do not come.
    link.lab.far.set("ipv4/icmp_echo_ignore_all", 1).unwrap();
    let netns = link.lab.near.name();
    let words = format!("small-queues --dev {DEVICE} --netns {netns} --verify --ping {FAR}");
    let mut run = Ended(link.tune(&words).stderr(Stdio::piped()).spawn().unwrap());
    let mut said = run.0.stderr.take().unwrap();
    let pid = run.0.id();
    while !catches(pid, Signal::SIGINT) {
        assert!(run.0.try_wait().unwrap().is_none(), "it has ended by itself");
        thread::sleep(Duration::from_millis(1));
    }
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(run.0.wait().unwrap().code(), Some(130));
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert_eq!(text, "uncork: interrupted: all is as it was\n");
    link.is_as_before(&before);
}

/// Returns whether the process has a handler for the signal (proc_pid_status(5)).
fn catches(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (signal as u32 - 1)) != 0
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_host_that_answers_no_ping_is_named_before_anything_is_changed() {
    let Some(link) = Link::make("a_host_that_answers_no_ping_is_named") else { return };
    let before = link.settings();
    let _bulk = link.bulk(1);
    link.lab.far.set("ipv4/icmp_echo_ignore_all", 1).unwrap();
    // The first host exists and is silent; the second does not exist.
    for host in [FAR.to_string(), "10.78.0.99".to_owned()] {
        let (shown, said) = link.small(&format!("--verify --each 300ms --ping {host}"), 1);
        assert!(said.contains(&format!("{host} does not answer pings")), "{said}");
        assert!(said.contains("nothing was changed") && shown.is_empty(), "{shown}{said}");
        link.is_as_before(&before);
    }
}

#[test]
fn a_host_that_falls_silent_is_nothing_to_judge_by() {
    uncork_calm::asserted("a_host_that_falls_silent_is_nothing_to_judge_by", || {
        let Some(link) = Link::make("a_host_that_falls_silent_is_nothing_to_judge_by") else {
            return;
        };
        let before = link.settings();
        let _bulk = link.bulk(1);
        let netns = link.lab.near.name();
        let words = format!(
            "small-queues --dev {DEVICE} --netns {netns} --verify --each 300ms --ping {FAR}"
        );
        let mut command = link.tune(&words);
        let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(run.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with("verifying"), "{first}");
        link.lab.far.set("ipv4/icmp_echo_ignore_all", 1).unwrap();
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("no ping was answered") && said.contains("all is as it was"),
            "{said}"
        );
        link.is_as_before(&before);
    });
}

#[test]
fn what_is_in_force_already_is_not_measured_against() {
    let Some(link) = Link::make("what_is_in_force_already_is_not_measured_against") else { return };
    let before = link.settings();
    link.small("--rate 50mbit", 0);
    let set = link.settings();
    let _bulk = link.bulk(1);
    let (_, said) = link.small("--verify --each 300ms", 1);
    assert!(said.contains("entry 1 keeps the queue of eth0 short already"), "{said}");
    let undo = format!("uncork tune undo 1 --state {} first", link.state().display());
    assert!(said.contains(&undo), "{said}");
    assert_eq!(link.settings(), set);
    link.tuned("undo --all", 0);
    assert_eq!(link.settings(), before);
}

#[test]
fn a_load_of_our_own_is_taken_by_a_sink() {
    let Some(link) = Link::make("a_load_of_our_own_is_taken_by_a_sink") else { return };
    let mut command = link.lab.far.command(UNCORK);
    command.args(["tune", "sink", &format!("{FAR}:5201")]).stdout(Stdio::piped());
    let mut sink = Ended(command.spawn().unwrap());
    let mut first = String::new();
    BufReader::new(sink.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("listening on"), "{first}");
    let load = format!("--load {FAR}:5201 --senders 2 --ping {FAR}");
    let (said, _) = link.small(&format!("--verify --each 500ms --target 2ms {load}"), 0);
    assert!(said.contains("for 2 senders") && said.contains("ping p50"), "{said}");
    assert!(link.senders().is_empty(), "the load ends with the run");
    link.tuned("undo --all", 0);
    let (_, said) = link.small(&format!("--verify --load {FAR}:5209"), 1);
    assert!(said.contains("uncork tune sink"), "{said}");
}

#[test]
fn a_rate_that_nobody_knows_is_measured_while_a_load_runs() {
    let Some(link) = Link::make("a_rate_that_nobody_knows_is_measured") else { return };
    // Without a shaper in sight, the rate comes from the senders' own pace.
    assert!(
        link.lab
            .near
            .command("tc")
            .args(["qdisc", "del", "dev", DEVICE, "root"])
            .status()
            .unwrap()
            .success()
    );
    let (_, said) = link.small("--dry-run", 1);
    assert!(said.contains("the rate of eth0 is not known"), "{said}");
    let mut paced = uncork_lab::tsq::Setting::Kernel.settings(0, 0);
    paced.pacing_bytes_per_second = Some(5_000_000);
    let bulk = Bulk::start(&link.lab, 2, paced, Congestion::Cubic).unwrap();
    thread::sleep(Duration::from_secs(1));
    let (said, _) = link.small("--dry-run", 0);
    let rate: f64 = said
        .split_once(" at ")
        .and_then(|(_, rest)| rest.split_once(" Mbit/s (measured"))
        .unwrap()
        .0
        .parse()
        .unwrap();
    // Twice 40 Mbit/s of payload, and headers.
    assert!((75.0..90.0).contains(&rate), "{said}");
    assert!(said.contains("for 2 senders"), "{said}");
    assert!(link.small("--rate 50mbit --dry-run", 0).0.contains("at 50 Mbit/s (--rate)"));
    assert!(link.small("--senders 5 --dry-run", 0).0.contains("for 5 senders"));
    drop(bulk);
}

#[test]
fn paced_senders_leave_an_empty_queue_and_get_their_pace_back() {
    let Some(link) = Link::make("paced_senders_leave_an_empty_queue") else { return };
    let before = link.settings();
    let _bulk = link.bulk(8);
    let unlimited: Vec<u64> = link.senders().iter().map(|one| one.info.max_pacing_rate).collect();
    assert_eq!(unlimited.len(), 8);
    // A connection that does not go over the device.
    let (local, _accepted) = link
        .lab
        .near
        .within(|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let client = TcpStream::connect(listener.local_addr()?)?;
            Ok((client, listener.accept()?.0))
        })
        .unwrap();
    let (planned, _) = link.small("--pace --dry-run", 0);
    assert!(planned.contains("SO_MAX_PACING_RATE") && planned.contains("for 8 senders, paced"));
    assert!(link.senders().iter().all(|one| one.info.max_pacing_rate == unlimited[0]));
    let (done, _) = link.small("--pace --target 2ms", 0);
    assert!(done.contains("SO_MAX_PACING_RATE") && done.contains("set on 8 connections"), "{done}");
    let share = 100.0e6 / 8.0 / 8.0 * 1448.0 / 1514.0;
    for one in link.senders() {
        let part = one.info.max_pacing_rate as f64 / share;
        assert!((0.98..1.0).contains(&part), "{part}");
    }
    let port = local.local_addr().unwrap().port();
    let all = link.lab.near.within(|| Ok(SockDiag::open()?.connections()?)).unwrap();
    let untouched = all.iter().find(|one| one.local.port() == port).unwrap();
    assert_eq!(untouched.info.max_pacing_rate, unlimited[0]);
    let (list, _) = link.tuned("list", 0);
    assert!(list.contains("SO_MAX_PACING_RATE is set on 8 connections"), "{list}");
    // New senders are paced, too.
    let _more = link.bulk(2);
    assert_eq!(
        link.senders().iter().filter(|one| one.info.max_pacing_rate != unlimited[0]).count(),
        10
    );
    link.tuned("undo --all", 0);
    assert!(link.senders().iter().all(|one| one.info.max_pacing_rate == unlimited[0]));
    assert_eq!(link.settings(), before);
}

/// BBR has a minimum train of its own, two segments, which the host's minimum does not limit.
#[test]
fn bbr_s_senders_have_trains_as_short_as_everybody_s() {
    let Some(link) = Link::make("bbr_s_senders_have_trains_as_short_as_everybody_s") else {
        return;
    };
    let kernel = uncork_lab::tsq::Setting::Kernel.settings(0, 0);
    let _bulk = match Bulk::start(&link.lab, 8, kernel, Congestion::Bbr) {
        Err(error) if format!("{error:#}").contains("does not let TCP use bbr") => {
            eprintln!("note: this kernel has no bbr: its trains were not looked at");
            return;
        }
        bulk => bulk.unwrap(),
    };
    link.small("--senders 8 --target 2ms", 0);
    thread::sleep(Duration::from_secs(1));
    let mut backlogs: Vec<u64> = (0..15)
        .map(|_| {
            thread::sleep(Duration::from_millis(20));
            let mut tc = link.lab.near.command("tc");
            let shown = tc.args(["-s", "qdisc", "show", "dev", DEVICE]).output().unwrap();
            let text = String::from_utf8(shown.stdout).unwrap();
            let backlog = text.split_once("backlog ").unwrap().1.split_once("b ").unwrap().0;
            backlog.replace('K', "000").parse().unwrap()
        })
        .collect();
    backlogs.sort_unstable();
    // Two trains of one frame each for each sender.
    assert!((10_000..30_000).contains(&backlogs[7]), "{backlogs:?}");
}

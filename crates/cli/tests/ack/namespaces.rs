//! Two network namespaces joined by a pair of virtual Ethernet devices.

use std::process::{Child, Command, Stdio};

/// The namespaces, which are removed when this is dropped, and so also when the test fails.
pub(crate) struct Namespaces {
    pub(crate) here: String,
    pub(crate) there: String,
}

/// Address of the namespace `here`.
pub(crate) const HERE: &str = "192.0.2.1";

impl Namespaces {
    /// Returns `None`, with the reason on standard error, to a caller that may not make namespaces.
    pub(crate) fn make(test: &str) -> Option<Self> {
        let reason = if !nix::unistd::geteuid().is_root() {
            "needs root"
        } else if Command::new("tcpdump").arg("--version").output().is_err() {
            "needs tcpdump"
        } else {
            let pid = std::process::id();
            let name = |side| format!("uncork-ack-{pid}-{side}");
            let made = Self { here: name("a"), there: name("b") };
            made.build();
            return Some(made);
        };
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} {reason}");
        eprintln!("skipped: {test}: {reason}");
        None
    }

    fn build(&self) {
        let (here, there) = (&self.here, &self.there);
        for line in [
            format!("netns add {here}"),
            format!("netns add {there}"),
            format!("-n {here} link add veth0 type veth peer name veth0 netns {there}"),
            format!("-n {here} address add {HERE}/24 dev veth0"),
            format!("-n {there} address add 192.0.2.2/24 dev veth0"),
            format!("-n {here} link set veth0 up"),
            format!("-n {there} link set veth0 up"),
        ] {
            let done = Command::new("ip").args(line.split_whitespace()).output().unwrap();
            assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
        }
    }

    /// Reads one of the kernel's TCP counters in a namespace.
    pub(crate) fn counter(namespace: &str, name: &str) -> u64 {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "cat", "/proc/net/netstat"]);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let pair = lines.chunks(2).find(|pair| pair[0].starts_with("TcpExt:")).unwrap();
        let mut both = pair[0].split_whitespace().zip(pair[1].split_whitespace());
        both.find(|(title, _)| *title == name).unwrap().1.parse().unwrap()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.here, &self.there] {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

/// tcpdump in a namespace, and afterwards what it captured.
pub(crate) struct Capture(Option<Child>);

impl Capture {
    /// Starts tcpdump, and returns once it captures.
    pub(crate) fn start(namespace: &str, port: u16) -> Self {
        use std::io::{BufRead as _, BufReader};
        let mut command = Command::new("ip");
        let port = port.to_string();
        command.args(["netns", "exec", namespace, "tcpdump", "-i", "veth0", "-n", "-tt", "-l"]);
        command.args(["--immediate-mode", "tcp", "port", &port]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "tcpdump did not start");
        }
        // Kept open: tcpdump writes its packet counts there when it ends.
        child.stderr = Some(stderr.into_inner());
        Self(Some(child))
    }

    /// Returns the milliseconds from each segment with data to the first ACK that covers it.
    pub(crate) fn ack_delays_ms(mut self) -> Vec<f64> {
        let child = self.0.take().unwrap();
        super::pair::send(child.id(), nix::sys::signal::Signal::SIGINT);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (mut open, mut delays): (Vec<(u64, f64)>, _) = (Vec::new(), Vec::new());
        // At the signal tcpdump ends the line with a newline, even if none had been begun.
        for line in text.lines().filter(|line| !line.is_empty()) {
            let at: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
            let after = |mark| line.split(mark).nth(1).and_then(|rest| rest.split(',').next());
            if let Some((_, end)) = after(" seq ").and_then(|range| range.split_once(':')) {
                open.push((end.parse().unwrap(), at));
            } else if let Some(ack) = after(" ack ") {
                let ack: u64 = ack.parse().unwrap();
                let (covered, left) = open.into_iter().partition(|(end, _)| *end <= ack);
                let covered: Vec<(u64, f64)> = covered;
                delays.extend(covered.iter().map(|(_, sent)| (at - sent) * 1e3));
                open = left;
            }
        }
        delays
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

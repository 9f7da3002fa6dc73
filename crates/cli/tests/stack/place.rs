//! Where a stack meets the kernel's: over a veth pair, or over a TAP in a namespace of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_netns::Namespace;

use crate::common::UNCORK;

/// How long a busy machine may take for what is otherwise done in a moment.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The stack's addresses, and the kernel's.
pub(crate) const OURS: [&str; 2] = ["10.92.0.2", "fd92::2"];
pub(crate) const KERNELS: [&str; 2] = ["10.92.0.1/24", "fd92::1/64"];

/// Returns a URL of this address and port.
pub(crate) fn url(address: &str, port: u16, path: &str) -> String {
    if address.contains(':') {
        format!("http://[{address}]:{port}{path}")
    } else {
        format!("http://{address}:{port}{path}")
    }
}

/// Two hosts, or one with a TAP.
pub(crate) struct Place {
    ours: Option<Namespace>,
    pub(crate) kernels: Namespace,
    /// The names of device and driver on the command line.
    device: &'static str,
    driver: Option<&'static str>,
}

impl Place {
    /// Two namespaces with a veth pair between them; the kernel has addresses at one end only.
    pub(crate) fn veth(label: &str) -> Self {
        let ours = Namespace::new(&format!("{label}-o")).unwrap();
        let kernels = Namespace::new(&format!("{label}-k")).unwrap();
        ours.ip(&format!("link add eth0 type veth peer name eth0 netns {}", kernels.name()))
            .unwrap();
        for namespace in [&ours, &kernels] {
            namespace.ip("link set eth0 up").unwrap();
        }
        for address in KERNELS {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            kernels.ip(&format!("address add {address} dev eth0{nodad}")).unwrap();
        }
        Self { ours: Some(ours), kernels, device: "eth0", driver: None }
    }

    /// One namespace, in which the stack makes a TAP.
    pub(crate) fn tap(label: &str) -> Self {
        let kernels = Namespace::new(label).unwrap();
        Self { ours: None, kernels, device: "eth0", driver: None }
    }

    /// As `veth`, by AF_XDP.
    pub(crate) fn xdp(label: &str) -> Self {
        Self { driver: Some("xdp"), ..Self::veth(label) }
    }

    /// As `veth`, by DPDK's packet socket, and as on a wire: one frame with its checksum a segment.
    #[cfg(feature = "dpdk")]
    pub(crate) fn dpdk(label: &str, mtu: u16) -> Self {
        let place =
            Self { device: "net_af_packet0,iface=eth0", driver: Some("dpdk"), ..Self::veth(label) };
        let mut ethtool = place.kernels.command("ethtool");
        uncork_netns::run(ethtool.args(["-K", "eth0", "tx", "off"])).unwrap();
        for namespace in [place.ours(), &place.kernels] {
            namespace.ip(&format!("link set eth0 mtu {mtu}")).unwrap();
        }
        place
    }

    /// As `tap`, by DPDK's.
    #[cfg(feature = "dpdk")]
    pub(crate) fn dpdk_tap(label: &str) -> Self {
        Self { device: "net_tap0,iface=eth0", driver: Some("dpdk"), ..Self::tap(label) }
    }

    /// Returns the namespace that the stack is in.
    pub(crate) fn ours(&self) -> &Namespace {
        self.ours.as_ref().unwrap_or(&self.kernels)
    }

    /// Returns the options that name device and addresses of a stack here.
    pub(crate) fn device(&self) -> Vec<String> {
        let mut arguments = vec!["--dev".to_owned(), self.device.to_owned()];
        if let Some(driver) = self.driver {
            arguments.extend(["--driver".to_owned(), driver.to_owned()]);
        }
        for address in OURS {
            let prefix = if address.contains(':') { 64 } else { 24 };
            arguments.extend(["--addr".to_owned(), format!("{address}/{prefix}")]);
        }
        if self.ours.is_none() {
            for address in KERNELS {
                arguments.extend(["--host".to_owned(), address.to_owned()]);
            }
        }
        arguments
    }

    /// Starts a server, and waits until it says that it serves.
    pub(crate) fn serve(&self, line: &str) -> Server {
        let mut command = self.ours().command(UNCORK);
        command.args(["stack", "serve"]).args(line.split_whitespace()).args(self.device());
        Server::start(&mut command)
    }

    /// Connects from the kernel's side.
    pub(crate) fn connect(&self, address: &str, port: u16) -> TcpStream {
        let to = SocketAddr::new(address.parse().unwrap(), port);
        let stream =
            self.kernels.within(move || Ok(TcpStream::connect_timeout(&to, LONG)?)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Runs curl on the kernel's side.
    pub(crate) fn curl(&self, arguments: &[&str]) -> Output {
        let mut command = self.kernels.command("curl");
        command
            .args(["--silent", "--show-error", "--max-time", "120"])
            .args(arguments)
            .output()
            .unwrap()
    }
}

/// A running server, killed if the test fails.
pub(crate) struct Server {
    child: Child,
    pub(crate) said: String,
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said.is_empty() {
            let mut error = String::new();
            child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            let _ = child.wait();
            panic!("it has not begun to serve: {error}");
        }
        Self { child, said }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Waits for the server to end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// Waits for the next line on its standard error, and returns it.
    pub(crate) fn complains(&mut self) -> String {
        // One octet at a time: a buffer would swallow what `complaint` is to return.
        let mut line = Vec::new();
        let error = self.child.stderr.as_mut().unwrap();
        let mut octet = [0];
        while error.read(&mut octet).unwrap() > 0 && octet != *b"\n" {
            line.push(octet[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// Returns the rest of its standard error; only after its end.
    pub(crate) fn complaint(&mut self) -> String {
        let mut error = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        error
    }

    /// Ends it as Ctrl-C does; it must succeed without a complaint.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGINT);
        assert_eq!(self.end().code(), Some(0));
        assert_eq!(self.complaint(), "");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a child, and kills it if it does not end in time.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    panic!("a program has not ended");
}

/// Asks until the answer is the expected one.
pub(crate) fn until<T: std::fmt::Debug>(
    mut ask: impl FnMut() -> T,
    is_it: impl Fn(&T) -> bool,
) -> T {
    let end = Instant::now() + LONG;
    loop {
        let answer = ask();
        if is_it(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "it has not come to it: {answer:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Asserts that a file is the document of every server, and that it has this length.
pub(crate) fn is_document(file: &std::path::Path, bytes: u64) {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(file).unwrap());
    let mut place = 0;
    loop {
        let found = reader.fill_buf().unwrap();
        if found.is_empty() {
            break;
        }
        for &octet in found {
            assert!(octet == uncork_serve::pattern::octet(place), "octet {place} is another one");
            place += 1;
        }
        let taken = found.len();
        reader.consume(taken);
    }
    assert_eq!(place, bytes);
}

/// Returns octets that differ from each other.
pub(crate) fn octets(count: usize) -> Vec<u8> {
    (0..count as u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0])
        .collect()
}

/// Feeds a program's standard input and closes it.
pub(crate) fn feed(mut input: ChildStdin, octets: Vec<u8>) -> thread::JoinHandle<()> {
    use std::io::Write as _;
    thread::spawn(move || input.write_all(&octets).unwrap())
}

//! Two hosts joined by a link, and a guardian on one of them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests too")]
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::process::{Child, Command, Stdio};
use std::sync::{MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use socket2::{Domain, Socket, Type};
use uncork_driver::Driver as _;
use uncork_driver::af_packet::Port;
use uncork_guard::{Guard, Limits, Plan, Share, devices};
use uncork_guardian::{Client, Error as Refusal};
use uncork_netns::Namespace;
use uncork_netns::testing::alone;

pub(crate) const OURS: &str = "10.93.0.1";
pub(crate) const THEIRS: &str = "10.93.0.2";
pub(crate) const OUR_V6: &str = "fd93::1";
pub(crate) const THEIR_V6: &str = "fd93::2";
/// Addresses of our host's second device, and of the host beyond it.
pub(crate) const BESIDE: &str = "10.94.0.1";
pub(crate) const THIRD: &str = "10.94.0.2";
pub(crate) const BESIDE_V6: &str = "fd94::1";
pub(crate) const THIRD_V6: &str = "fd94::2";
/// Link-local, each valid on one device's link only.
pub(crate) const NEAR: &str = "fe80::93";
pub(crate) const NEAR_BESIDE: &str = "fe80::94";
/// Both of our host's devices have this address.
pub(crate) const SEVERAL: &str = "10.95.0.1";
/// Time to wait for an answer that does not come.
pub(crate) const SHORT: Duration = Duration::from_millis(200);
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A host with a guardian, and one beside it; one at a time, as a guardian's names, ports and
/// queues are free only when it has closed them.
pub(crate) struct Link {
    pub(crate) ours: Namespace,
    pub(crate) theirs: Namespace,
    /// Value of the environment variable.
    pub(crate) place: String,
    /// What instances say to be recognised as such, in the order of their numbers.
    pub(crate) tokens: Vec<String>,
    /// The process that the guardian takes for the first one.
    first: Child,
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}

pub(crate) fn end(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port)
}

/// Makes the two hosts alone, without a guardian.
pub(crate) fn hosts(label: &str) -> (Namespace, Namespace) {
    hosts_with(label, 1)
}

/// Like [`hosts`], with this many queues at either end.
fn hosts_with(label: &str, queues: u32) -> (Namespace, Namespace) {
    let ours = Namespace::new(&format!("{label}-o")).unwrap();
    let theirs = Namespace::new(&format!("{label}-t")).unwrap();
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    let peer = format!("peer name eth0 {queues} netns {}", theirs.name());
    let pair = format!("link add eth0 {queues} type veth {peer}");
    ours.ip(&pair).unwrap();
    for (host, v4, v6) in [(&ours, OURS, OUR_V6), (&theirs, THEIRS, THEIR_V6)] {
        host.set("ipv6/conf/eth0/disable_ipv6", 0).unwrap();
        host.ip(&format!("address add {v4}/24 dev eth0")).unwrap();
        host.ip(&format!("address add {v6}/64 dev eth0 nodad")).unwrap();
        host.ip("link set eth0 up").unwrap();
    }
    (ours, theirs)
}

impl Link {
    pub(crate) fn new(label: &str, ports: &[u16]) -> Self {
        Self::with_instances(label, ports, 0)
    }

    /// With this many instances that programs attach to.
    pub(crate) fn with_instances(label: &str, ports: &[u16], instances: u32) -> Self {
        Self::begin(label, ports, instances, (1, None))
    }

    /// With this many queues of the device, which instances divide.
    pub(crate) fn of_instances(label: &str, queues: u32, instances: u32) -> Self {
        Self::begin(label, &[], instances, (queues, Some(Share::Instances)))
    }

    /// With this many queues of the device, of which each program gets `each`.
    pub(crate) fn with_queues(label: &str, queues: u32, each: u32) -> Self {
        let each = NonZeroU32::new(each).map(Share::Each);
        Self::begin(label, &[], 0, (queues, each))
    }

    fn begin(
        label: &str,
        ports: &[u16],
        instances: u32,
        (all, queues): (u32, Option<Share>),
    ) -> Self {
        let alone = alone();
        let limits = Limits::of_this_host();
        Self::between(hosts_with(label, all), alone, ports, instances, queues, limits)
    }

    /// With these limits for users.
    pub(crate) fn with_limits(label: &str, limits: Limits) -> Self {
        let alone = alone();
        Self::between(hosts(label), alone, &[], 0, None, limits)
    }

    /// Our host has a second device, `eth1`, which joins it to a third host; that one knows no
    /// other.
    pub(crate) fn with_third(label: &str) -> (Self, Namespace) {
        let alone = alone();
        let (ours, theirs) = hosts(label);
        let third = Namespace::new(&format!("{label}-h")).unwrap();
        let pair = format!("link add eth1 type veth peer name eth0 netns {}", third.name());
        ours.ip(&pair).unwrap();
        let ends = [(&ours, "eth1", BESIDE, BESIDE_V6), (&third, "eth0", THIRD, THIRD_V6)];
        for (host, device, v4, v6) in ends {
            host.set(&format!("ipv6/conf/{device}/disable_ipv6"), 0).unwrap();
            host.ip(&format!("address add {v4}/24 dev {device}")).unwrap();
            host.ip(&format!("address add {v6}/64 dev {device} nodad")).unwrap();
            host.ip(&format!("link set {device} up")).unwrap();
        }
        for (device, near) in [("eth0", NEAR), ("eth1", NEAR_BESIDE)] {
            ours.ip(&format!("address add {SEVERAL}/32 dev {device}")).unwrap();
            ours.ip(&format!("address add {near}/64 dev {device} nodad")).unwrap();
        }
        third.ip(&format!("route add default via {BESIDE}")).unwrap();
        third.ip(&format!("-6 route add default via {BESIDE_V6}")).unwrap();
        let limits = Limits::of_this_host();
        (Self::between((ours, theirs), alone, &[], 0, None, limits), third)
    }

    fn between(
        (ours, theirs): (Namespace, Namespace),
        alone: MutexGuard<'static, ()>,
        ports: &[u16],
        instances: u32,
        queues: Option<Share>,
        limits: Limits,
    ) -> Self {
        let first = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let (told, tells) = mpsc::channel();
        let (program, ports, name) = (first.id(), ports.to_vec(), ours.name().to_owned());
        thread::spawn(move || {
            let namespace = File::open(format!("/run/netns/{name}")).unwrap();
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            let devices = devices::find(&[]).unwrap();
            let guard = Guard::new(Plan { devices, ports, queues, program }).unwrap();
            let guard = guard.with_instances(instances, mpsc::channel().0).unwrap();
            let guard = guard.with_limits(limits);
            let tokens = guard.tokens().iter().map(|token| token.as_str().to_owned()).collect();
            told.send((guard.place().to_variable(), tokens)).unwrap();
            guard.run().unwrap();
        });
        let (place, tokens) = tells.recv_timeout(LONG).expect("there is no guardian");
        Self { ours, theirs, place, tokens, first, _alone: alone }
    }

    /// Ends the first process, so that only connected ones are left.
    pub(crate) fn end_first(&mut self) {
        self.first.kill().unwrap();
        self.first.wait().unwrap();
    }

    /// Connects as an instance on the host with the guardian.
    pub(crate) fn instance(&self, number: usize) -> Client {
        let (place, token) = (self.place.clone(), self.tokens[number].clone());
        self.ours.within(move || Ok(Client::serve(&place, &token)?)).unwrap()
    }

    /// Connects as a program on the host with the guardian.
    pub(crate) fn client(&self) -> Client {
        let place = self.place.clone();
        self.ours.within(move || Ok(Client::connect(&place)?)).unwrap()
    }

    /// Connects as a program of this user's.
    pub(crate) fn client_of(&self, user: u32) -> Client {
        self.try_client_of(user).unwrap()
    }

    pub(crate) fn try_client_of(&self, user: u32) -> anyhow::Result<Client> {
        let place = self.place.clone();
        let connect = move || {
            // For this thread alone, which ends afterwards.
            let user = Some(Uid::from_raw(user));
            set_thread_res_uid(None::<Uid>, user, None::<Uid>)?;
            Ok(Client::connect(&place)?)
        };
        self.ours.within(connect)
    }

    /// Starts this program again, on our host, to play `part` in one test.
    pub(crate) fn play(&self, test: &str, part: &str) -> Command {
        let mut command = self.ours.command(std::env::current_exe().unwrap().to_str().unwrap());
        command
            .args(["--exact", test, "--nocapture"])
            .env("UNCORK_TEST_PART", part)
            .env("UNCORK_STACK", &self.place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }
}

pub(crate) fn listen(link: &Link, at: SocketAddr) -> TcpListener {
    when_free(|| link.ours.within(move || Ok(TcpListener::bind(at))).unwrap())
}

/// Binds where the guardian may have had a socket: a thread of it closes what it was given a moment
/// after the answer.
pub(crate) fn when_free<T: std::fmt::Debug>(bind: impl Fn() -> std::io::Result<T>) -> T {
    let patience = Instant::now() + LONG;
    loop {
        match bind() {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < patience => {
                thread::sleep(Duration::from_millis(5));
            }
            bound => return bound.unwrap(),
        }
    }
}

/// Returns why something was not granted.
pub(crate) fn refusal<T: std::fmt::Debug>(done: Result<T, Refusal>) -> String {
    let error = done.unwrap_err();
    assert!(matches!(error, Refusal::Refused(_)), "{error}");
    error.to_string()
}

/// Opens the program's packet socket on our device.
pub(crate) fn open(client: &mut Client) -> Port {
    let index = client.devices()[0].index;
    Port::adopt(client.open(index).unwrap()).unwrap()
}

/// Returns the result of connecting from the other host.
pub(crate) fn knock(link: &Link, to: SocketAddr) -> Result<(), ErrorKind> {
    knock_at(&link.theirs, to)
}

/// Returns the result of connecting from any host.
pub(crate) fn knock_at(host: &Namespace, to: SocketAddr) -> Result<(), ErrorKind> {
    let connect =
        move || Ok(TcpStream::connect_timeout(&to, SHORT).map(drop).map_err(|e| e.kind()));
    host.within(connect).unwrap()
}

/// Connects from these ports, all at once, and waits a little.
pub(crate) fn knock_from(link: &Link, remotes: &[u16], to: SocketAddr) {
    let remotes = remotes.to_vec();
    let connect = move || {
        let mut sockets = Vec::new();
        for remote in remotes {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&end(THEIRS, remote).into())?;
            socket.set_nonblocking(true)?;
            let _ = socket.connect(&to.into());
            sockets.push(socket);
        }
        thread::sleep(Duration::from_millis(50));
        Ok(())
    };
    link.theirs.within(connect).unwrap();
}

/// Sends an ACK from this port, as after a SYN-ACK.
pub(crate) fn acknowledge(link: &Link, remote: u16, to: SocketAddr) {
    let mut segment = [0; 20];
    segment[..2].copy_from_slice(&remote.to_be_bytes());
    segment[2..4].copy_from_slice(&to.port().to_be_bytes());
    // Header length in words; ACK. Nothing verifies the checksum before a stack does.
    segment[12..14].copy_from_slice(&[5 << 4, 1 << 4]);
    let send = move || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(socket2::Protocol::TCP))?;
        socket.bind(&end(THEIRS, 0).into())?;
        Ok(socket.send_to(&segment, &to.into())?)
    };
    link.theirs.within(send).unwrap();
}

/// Returns the remote ports of all TCP frames that come until `time` is over.
pub(crate) fn seen(ports: &mut [Port], time: Duration) -> Vec<Vec<u16>> {
    let mut seen = vec![Vec::new(); ports.len()];
    let until = Instant::now() + time;
    while Instant::now() < until {
        for (port, seen) in ports.iter_mut().zip(&mut seen) {
            port.receive(64, &mut |frame| {
                // IPv4 without options.
                if frame.bytes[12..14] == [0x08, 0x00] && frame.bytes[23] == 6 {
                    seen.push(u16::from_be_bytes([frame.bytes[34], frame.bytes[35]]));
                }
            })
            .unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    }
    seen
}

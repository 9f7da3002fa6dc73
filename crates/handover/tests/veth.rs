//! Connections of the stack become the kernel's while a kernel's peer goes on sending and receiving.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]
#![allow(dead_code, reason = "a part of the helpers is for the other test program")]

mod common;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::Duration;

use common::{LONG, NOBODY, Ours, PORT, pattern};
use nix::unistd::{setresgid, setresuid};
use uncork_handover::{Family, fill, octets, open, queued, send_rest, start, to_kernel};
use uncork_netns::testing::is_skipped;
use uncork_sockdiag::{Name, SockDiag, TcpInfo};
use uncork_stack::{Detached, Info, Snapshot, SnapshotState, SocketId};

/// Octets that either side sends in all: more than the buffers between them hold.
const BYTES: usize = 24 << 20;

/// A peer that sends and receives at once; its threads check what it received.
struct Peer {
    sends: thread::JoinHandle<()>,
    receives: thread::JoinHandle<Vec<u8>>,
}

impl Peer {
    fn of(stream: &TcpStream) -> Self {
        let (mut writer, mut reader) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
        let sends = thread::spawn(move || {
            writer.write_all(&pattern(BYTES, 1)).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let receives = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        Self { sends, receives }
    }

    fn checks(self) {
        self.sends.join().unwrap();
        assert!(self.receives.join().unwrap() == pattern(BYTES, 2), "the peer got something else");
    }
}

/// Our side of both streams.
struct Half {
    socket: SocketId,
    /// All that it sends.
    all: Vec<u8>,
    read: Vec<u8>,
    written: usize,
}

impl Half {
    /// Writes and reads as much as the stack lets it.
    fn drive(&mut self, ours: &mut Ours, reads: bool) {
        let now = ours.engine.now();
        let stack = ours.engine.stack();
        // However fast the peer reads, half of it is kept for after enough was read.
        let until = if reads { BYTES / 2 } else { BYTES };
        let next = &self.all[self.written..until.max(self.written)];
        if let Ok(taken) = stack.send(now, self.socket, next, false) {
            self.written += taken;
        }
        let mut buffer = [0; 9000];
        while reads && let Ok(bytes @ 1..) = stack.recv(now, self.socket, &mut buffer) {
            self.read.extend(&buffer[..bytes]);
        }
    }

    fn info(&self, ours: &mut Ours) -> Info {
        let now = ours.engine.now();
        ours.engine.stack().info(now, self.socket).unwrap()
    }

    /// Transfers the rest of both streams over the kernel's socket, to their ends.
    fn goes_on(mut self, kernel: TcpStream) {
        kernel.set_read_timeout(Some(LONG)).unwrap();
        let mut writer = kernel.try_clone().unwrap();
        let rest = self.all.split_off(self.written);
        let writes = thread::spawn(move || {
            writer.write_all(&rest).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        (&kernel).read_to_end(&mut self.read).unwrap();
        writes.join().unwrap();
        assert!(self.read == pattern(BYTES, 1), "our side got something else");
    }
}

/// Drives both directions until each queue holds something, and the stack has run for a while.
fn in_the_midst(ours: &mut Ours, socket: SocketId) -> Half {
    let mut half = Half { socket, all: pattern(BYTES, 2), read: Vec::new(), written: 0 };
    for _ in 0..200_000 {
        let reads = half.read.len() < 3 << 20;
        half.drive(ours, reads);
        ours.turn();
        let info = half.info(ours);
        let queues =
            info.readable_bytes > 0 && info.unacknowledged_segments > 0 && info.unsent_bytes > 0;
        if !reads && queues {
            return half;
        }
    }
    unreachable!("the queues were never full: {:?}", half.info(ours));
}

fn hand_over(ours: &mut Ours, socket: SocketId, family: Family) -> (Detached, TcpStream) {
    let now = ours.engine.now();
    let detached = ours.engine.stack().detach(now, socket).unwrap();
    // Segments that arrive meanwhile belong to no one, and are lost.
    for _ in 0..20 {
        ours.turn();
        thread::sleep(Duration::from_millis(1));
    }
    let whole = detached.clone();
    let owned = ours.owned.clone();
    let kernel = ours.within(move || {
        let socket = open(&whole.snapshot, family)?;
        // As the process gets it that fills the queues: in memory of its program.
        match queued(&whole)? {
            Some(memory) => fill(socket.as_fd(), &whole.snapshot, &mut octets(memory.as_fd())?)?,
            None => fill(socket.as_fd(), &whole.snapshot, &mut std::io::empty())?,
        }
        owned.give_back(&whole.snapshot);
        start(socket.as_fd(), &whole.snapshot)?;
        send_rest(socket.as_fd(), &whole)?;
        Ok(TcpStream::from(socket))
    });
    (detached, kernel)
}

fn goes_over(test: &str, label: &str, v6: bool, family: Family, set_up: impl Fn(&Ours)) {
    if is_skipped(test) {
        return;
    }
    let mut ours = Ours::new(label, v6);
    set_up(&ours);
    let (socket, stream) = ours.accepted();
    let peer = Peer::of(&stream);
    let half = in_the_midst(&mut ours, socket);
    let (detached, kernel) = hand_over(&mut ours, half.socket, family);
    let one = &detached.snapshot;
    assert!(one.unread_bytes > 0 && one.unacknowledged_bytes > 0 && one.unsent_bytes > 0);
    assert_eq!(one.state, SnapshotState::Established);
    assert_eq!(kernel.local_addr().unwrap().port(), PORT);
    assert_eq!(kernel.local_addr().unwrap().is_ipv6(), v6 || family == Family::Inet6);
    half.goes_on(kernel);
    peer.checks();
}

#[test]
fn bulk_in_both_directions_goes_over() {
    let test = "bulk_in_both_directions_goes_over";
    goes_over(test, "ho-bulk", false, Family::OfAddress, |_| ());
}

#[test]
fn and_over_ipv6() {
    goes_over("and_over_ipv6", "ho-six", true, Family::OfAddress, |_| ());
}

#[test]
fn and_to_a_socket_of_ipv6_and_with_a_peer_that_knows_no_extension() {
    let test = "and_to_a_socket_of_ipv6_and_with_a_peer_that_knows_no_extension";
    goes_over(test, "ho-plain", false, Family::Inet6, |ours| {
        for name in ["tcp_window_scaling", "tcp_timestamps", "tcp_sack"] {
            ours.peers.set(&format!("ipv4/{name}"), 0).unwrap();
        }
    });
}

/// The peer has ended: a FIN follows the unread data, and the other direction goes on.
#[test]
fn a_peer_that_has_ended_has_ended() {
    if is_skipped("a_peer_that_has_ended_has_ended") {
        return;
    }
    for v6 in [false, true] {
        let mut ours = Ours::new(if v6 { "ho-cw6" } else { "ho-cw4" }, v6);
        let (socket, mut stream) = ours.accepted();
        stream.write_all(b"that is all").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        ours.turn_until(|stack, now| {
            stack.readiness(now, socket).has(uncork_stack::Ready::PEER_CLOSED)
        });
        let (detached, mut kernel) = hand_over(&mut ours, socket, Family::OfAddress);
        assert_eq!(detached.snapshot.state, SnapshotState::CloseWait);
        kernel.set_read_timeout(Some(LONG)).unwrap();
        let mut said = String::new();
        kernel.read_to_string(&mut said).unwrap();
        assert_eq!(said, "that is all");
        kernel.write_all(b"and the answer").unwrap();
        drop(kernel);
        stream.set_read_timeout(Some(LONG)).unwrap();
        said.clear();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "and the answer");
    }
}

/// We have ended: the FIN is acknowledged, sent but not acknowledged, or not even sent.
#[test]
fn our_own_end_is_said_once() {
    if is_skipped("our_own_end_is_said_once") {
        return;
    }
    for (label, bytes, acknowledged) in
        [("ho-fw2", 100, true), ("ho-fw1", 100, false), ("ho-unsent", 4 << 20, false)]
    {
        let mut ours = Ours::new(label, false);
        let (socket, mut stream) = ours.accepted();
        let now = ours.engine.now();
        let stack = ours.engine.stack();
        let all = pattern(bytes, 2);
        let written = stack.send(now, socket, &all, false).unwrap();
        stack.shutdown(now, socket, uncork_stack::Shutdown::Write);
        ours.turn();
        if acknowledged {
            ours.turn_until(|stack, now| {
                stack.readiness(now, socket).has(uncork_stack::Ready::DRAINED)
            });
        }
        let (detached, mut kernel) = hand_over(&mut ours, socket, Family::OfAddress);
        let state = if acknowledged { SnapshotState::FinWait2 } else { SnapshotState::FinWait1 };
        assert_eq!(detached.snapshot.state, state);
        assert_eq!(detached.snapshot.fin_sent, written == 100, "{written}");
        let mut got = Vec::new();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == all[..written]);
        stream.write_all(b"thanks").unwrap();
        drop(stream);
        kernel.set_read_timeout(Some(LONG)).unwrap();
        let mut said = String::new();
        kernel.read_to_string(&mut said).unwrap();
        assert_eq!(said, "thanks");
    }
}

/// Returns the snapshot of a real connection.
fn real(ours: &mut Ours) -> Snapshot {
    let (socket, _stream) = ours.accepted();
    let now = ours.engine.now();
    let snapshot = ours.engine.stack().detach(now, socket).unwrap().snapshot;
    ours.owned.give_back(&snapshot);
    snapshot
}

/// Returns the kernel's TCP_INFO of a connection handed to it, whose peer does not answer.
fn told(ours: &Ours, mut snapshot: Snapshot, peer: u16) -> TcpInfo {
    snapshot.remote = SocketAddr::new(NOBODY.parse().unwrap(), peer);
    let detached = Detached::new(snapshot, Vec::new()).unwrap();
    ours.within(move || {
        let _kernel = to_kernel(&detached, Family::OfAddress)?;
        let name = Name::of(detached.snapshot.local, detached.snapshot.remote);
        Ok(SockDiag::open()?.connection(&name)?.unwrap().info)
    })
}

/// Every state is handed over as it was.
#[test]
fn the_kernel_is_in_the_state_that_the_stack_was_in() {
    if is_skipped("the_kernel_is_in_the_state_that_the_stack_was_in") {
        return;
    }
    let mut ours = Ours::new("ho-states", false);
    let real = real(&mut ours);
    // Numbers of net/tcp_states.h.
    let states = [
        (SnapshotState::Established, 1),
        (SnapshotState::FinWait1, 4),
        (SnapshotState::FinWait2, 5),
        (SnapshotState::CloseWait, 8),
        (SnapshotState::LastAck, 9),
        (SnapshotState::Closing, 11),
    ];
    for (state, number) in states {
        let snapshot = Snapshot { state, fin_sent: true, ..real.clone() };
        let info = told(&ours, snapshot, 1000 + u16::from(number));
        assert_eq!(info.state, number, "{state:?}");
    }
}

#[test]
fn what_the_syns_have_agreed_on_holds() {
    if is_skipped("what_the_syns_have_agreed_on_holds") {
        return;
    }
    // linux/tcp.h: TCPI_OPT_TIMESTAMPS, TCPI_OPT_SACK, TCPI_OPT_USEC_TS.
    const OPTIONS: u8 = 1 | 2 | 64;
    let mut ours = Ours::new("ho-agreed", false);
    let mut snapshot = real(&mut ours);
    snapshot.segment_bytes = 700;
    for (port, stamp) in [(1, 1_000_000), (2, 1_000_001)] {
        snapshot.timestamp = Some(stamp);
        snapshot.window_shifts = Some((3, 9));
        let info = told(&ours, snapshot.clone(), port);
        assert_eq!((info.options & OPTIONS, info.wscale, info.snd_mss), (1 | 2, 0x93, 688));
    }
    let nothing = Snapshot { timestamp: None, window_shifts: None, sack: false, ..snapshot };
    let info = told(&ours, nothing, 3);
    // Twelve octets are for timestamps, until it sends without.
    assert_eq!((info.options & OPTIONS, info.wscale, info.snd_mss), (0, 0, 688));
}

#[test]
fn the_window_is_said_with_the_shift_that_was_agreed_on() {
    if is_skipped("the_window_is_said_with_the_shift_that_was_agreed_on") {
        return;
    }
    let mut ours = Ours::new("ho-shift", false);
    let real = real(&mut ours);
    let mut seen = ours.listens_in();
    for (port, shifts) in [(1, None), (2, Some((0, 5)))] {
        let snapshot =
            Snapshot { window_shifts: shifts, receive_window_bytes: 60_000, ..real.clone() };
        told(&ours, snapshot, port);
        let (_, shift) = shifts.unwrap_or_default();
        // It may be larger than before. It must not become smaller.
        let window = u32::from(seen.window_to(port)) << shift;
        assert!(window >= 60_000 >> shift << shift, "{window}");
    }
}

/// Runs this program again, as a process that has the socket and no privilege.
#[test]
fn what_was_not_sent_needs_no_privilege() {
    const TEST: &str = "what_was_not_sent_needs_no_privilege";
    const CHILD: &str = "UNCORK_TEST_SENDS";
    const UNREAD: &[u8] = b"what the peer has said";
    const UNSENT: &[u8] = b"what he is told";
    if let Ok(snapshot) = std::env::var(CHILD) {
        let nobody = 65_534;
        setresgid(nobody.into(), nobody.into(), nobody.into()).unwrap();
        setresuid(nobody.into(), nobody.into(), nobody.into()).unwrap();
        let snapshot = serde_json::from_str(&snapshot).unwrap();
        let detached = Detached::new(snapshot, [UNREAD, UNSENT].concat()).unwrap();
        send_rest(std::io::stdin().as_fd(), &detached).unwrap();
        assert!(open(&detached.snapshot, Family::OfAddress).is_err(), "it has a privilege");
        return;
    }
    if is_skipped(TEST) {
        return;
    }
    let mut ours = Ours::new("ho-user", false);
    let (socket, mut stream) = ours.accepted();
    stream.write_all(UNREAD).unwrap();
    ours.turn_until(|stack, _| stack.readable_bytes(socket) as usize == UNREAD.len());
    let now = ours.engine.now();
    let stack = ours.engine.stack();
    assert_eq!(stack.send(now, socket, UNSENT, false), Ok(UNSENT.len()));
    let detached = stack.detach(now, socket).unwrap();
    let snapshot = detached.snapshot.clone();
    let opened = ours.within(move || Ok(open(&snapshot, Family::OfAddress)?));
    fill(opened.as_fd(), &detached.snapshot, &mut &UNREAD[..]).unwrap();
    ours.owned.give_back(&detached.snapshot);
    start(opened.as_fd(), &detached.snapshot).unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST])
        .env(CHILD, serde_json::to_string(&detached.snapshot).unwrap())
        .stdin(opened.try_clone().unwrap())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let mut kernel = TcpStream::from(opened);
    for (reader, said) in [(&mut kernel, UNREAD), (&mut stream, UNSENT)] {
        reader.set_read_timeout(Some(LONG)).unwrap();
        let mut got = vec![0; said.len()];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(got, said);
    }
}

#[test]
fn what_the_kernel_has_already_is_refused() {
    if is_skipped("what_the_kernel_has_already_is_refused") {
        return;
    }
    let mut ours = Ours::new("ho-twice", false);
    let (socket, _stream) = ours.accepted();
    let (detached, kernel) = hand_over(&mut ours, socket, Family::OfAddress);
    let error = ours.within(move || Ok(to_kernel(&detached, Family::OfAddress).unwrap_err()));
    assert!(error.to_string().starts_with("the kernel cannot have a connection from"), "{error}");
    kernel.set_nonblocking(true).unwrap();
    assert_eq!((&kernel).read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn only_memory_is_read_that_is_passed_on() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let file = std::fs::File::open("/proc/self/status").unwrap();
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    for passed in [reader.as_fd(), file.as_fd(), socket.as_fd()] {
        assert!(octets(passed).is_err_and(|error| error.kind() == ErrorKind::InvalidInput));
    }
}

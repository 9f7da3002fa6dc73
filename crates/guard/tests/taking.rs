//! Stack connections that become the kernel's: what a program gets, and what it cannot get by it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;

use nix::sys::socket::sockopt::TcpRepair;
use nix::sys::socket::{getsockopt, setsockopt};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::net::{bind, connect_unspec, getpeername, getsockname, listen};
use rustix::thread::{Gid, Uid, set_thread_gid, set_thread_uid};
use uncork_guardian::Client;
use uncork_netns::testing::is_skipped;
use uncork_stack::{Snapshot, SnapshotState};

use crate::common::{LONG, Link, OURS, end, refusal};

/// Ports of the program and of a victim.
const PORT: u16 = 7500;
const VICTIMS: u16 = 7501;
/// A peer that never says that it has no such connection.
const SILENT: &str = "10.93.0.77";
const NOBODY: u32 = 65_534;
const PART: &str = "UNCORK_TEST_PART";

fn snapshot(local: SocketAddr, remote: SocketAddr) -> Snapshot {
    Snapshot {
        local,
        remote,
        state: SnapshotState::Established,
        fin_sent: false,
        reading_shut: false,
        send_first: 1,
        unacknowledged_bytes: 0,
        unsent_bytes: 0,
        receive_first: 1,
        unread_bytes: 0,
        window_seq: 1,
        send_window_bytes: 1000,
        largest_send_window_bytes: 1000,
        acknowledged: 1,
        receive_window_bytes: 1000,
        segment_bytes: 1000,
        window_shifts: None,
        sack: false,
        timestamp: None,
    }
}

fn memory(octets: &[u8]) -> OwnedFd {
    let memory = std::fs::File::from(memfd_create("uncork-test", MemfdFlags::CLOEXEC).unwrap());
    memory.write_all_at(octets, 0).unwrap();
    memory.into()
}

/// Plays an unprivileged program that has a port of its own.
fn takes_what_is_others() {
    set_thread_gid(Gid::from_raw(NOBODY)).unwrap();
    set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
    let mut client = Client::connect(&std::env::var("UNCORK_STACK").unwrap()).unwrap();
    let own = TcpListener::bind(end(OURS, PORT)).unwrap();
    client.own(end(OURS, PORT), own.as_fd()).unwrap();
    let snapshot = snapshot(end(OURS, PORT), end(SILENT, 5));
    // A socket of its own does not enter repair mode, whatever is refused.
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(there.local_addr().unwrap()).unwrap();
    let given = || Some(connected.try_clone().unwrap().into());
    let asked = Snapshot { unread_bytes: 3, ..snapshot.clone() };
    let why = refusal(client.take_over(&asked, given(), false));
    assert!(why.contains("what is in its queues cannot be read"), "{why}");
    client.take_over(&snapshot, given(), false).unwrap_err();
    assert_eq!(getsockopt(&connected, TcpRepair), Ok(0));
    cannot_listen_at_victims(connected.into());
    // Fewer octets than are announced, and more than there can be.
    for unread_bytes in [4, u32::MAX] {
        let asked = Snapshot { unread_bytes, ..snapshot.clone() };
        refusal(client.take_over(&asked, Some(memory(b"abc")), false));
    }
    let victims = self::snapshot(end(OURS, VICTIMS), end(SILENT, 5));
    let why = refusal(client.take_over(&victims, None, false));
    assert!(why.ends_with("was owned"), "{why}");
    // It gets a connection of its own, and no more.
    let asked = Snapshot { unread_bytes: 3, ..snapshot };
    let taken = client.take_over(&asked, Some(memory(b"abc")), false).unwrap();
    assert_eq!(getsockopt(&taken, TcpRepair), Ok(0));
    assert_eq!(setsockopt(&taken, TcpRepair, &1), Err(nix::errno::Errno::EPERM));
    assert_eq!(fstat(&taken).unwrap().st_uid, NOBODY);
    let ends = [getsockname(&taken).unwrap(), getpeername(&taken).unwrap().unwrap()];
    let ends = ends.map(|end| SocketAddr::try_from(end).unwrap());
    assert_eq!(ends, [end(OURS, PORT), end(SILENT, 5)]);
    let mut taken = TcpStream::from(taken);
    let mut read = [0; 3];
    taken.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"abc");
    cannot_listen_at_victims(taken.into());
}

/// Checks that it cannot listen there, as it could with a socket in repair mode.
fn cannot_listen_at_victims(socket: OwnedFd) {
    connect_unspec(&socket).unwrap();
    assert!(bind(&socket, &end(OURS, VICTIMS)).is_err(), "it is bound there");
    let _ = listen(&socket, 1);
    let port = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap().port();
    assert_ne!(port, VICTIMS);
}

#[test]
fn who_gives_a_connection_to_the_kernel_gets_nothing_that_is_anothers() {
    const TEST: &str = "taking::who_gives_a_connection_to_the_kernel_gets_nothing_that_is_anothers";
    if std::env::var(PART).is_ok() {
        return takes_what_is_others();
    }
    if is_skipped(TEST) {
        return;
    }
    let link = Link::new("takes", &[]);
    let listen = || Ok(TcpListener::bind(end(OURS, VICTIMS))?);
    let victim = link.ours.within(listen).unwrap();
    let played = link.play(TEST, "attacker").stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&played.stdout);
    assert!(played.status.success(), "{said}{}", String::from_utf8_lossy(&played.stderr));
    let to = victim.local_addr().unwrap();
    let connect = move || Ok(TcpStream::connect_timeout(&to, LONG)?);
    let client = link.theirs.within(connect).unwrap();
    assert_eq!(victim.accept().unwrap().1, client.local_addr().unwrap());
}

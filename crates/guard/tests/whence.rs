//! From where packets to a program's port must come: by the address's own device, and from a source
//! that can be there.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Instant;

use socket2::{Domain, Socket, Type};
use uncork_driver::af_packet::{Port, Settings};
use uncork_driver::{Driver as _, Offer};
use uncork_guardian::Client;
use uncork_netns::Namespace;
use uncork_netns::testing::is_skipped;
use uncork_packet::{Checksum, Transmit};
use uncork_wire::ethernet::{self, EtherType, Mac};
use uncork_wire::tcp::{Fields, Flags, OptionSet};
use uncork_wire::{Protocol, SeqNumber, ipv4, ipv6};

use crate::common::{
    BESIDE, BESIDE_V6, LONG, Link, NEAR, NEAR_BESIDE, OUR_V6, OURS, SEVERAL, SHORT, THEIR_V6,
    THEIRS, THIRD, end, knock, knock_at,
};

const PORT: u16 = 7200;
const SYN_BYTES: usize = 20;

/// Opens the program's packet socket on a device; returns it with the device's Ethernet address.
fn open(client: &mut Client, device: &str) -> (Port, Mac) {
    let found = client.devices().iter().find(|found| found.name == device).unwrap();
    let (index, mac) = (found.index, found.mac);
    (Port::adopt(client.open(index).unwrap()).unwrap(), Mac(mac))
}

/// Returns the sources of SYNs that reach a packet socket, until `enough` or for a short while.
fn syns(port: &mut Port, enough: impl Fn(&[SocketAddr]) -> bool) -> Vec<SocketAddr> {
    let mut seen = Vec::new();
    let until = Instant::now() + SHORT;
    while Instant::now() < until && !enough(&seen) {
        port.receive(64, &mut |frame| {
            let v6 = frame.bytes[12..14] == [0x86, 0xdd];
            let (source, tcp): (IpAddr, usize) = if v6 {
                (<[u8; 16]>::try_from(&frame.bytes[22..38]).unwrap().into(), 54)
            } else {
                (<[u8; 4]>::try_from(&frame.bytes[26..30]).unwrap().into(), 34)
            };
            if frame.bytes[tcp + 13] == Flags::SYN.0 {
                let from = u16::from_be_bytes([frame.bytes[tcp], frame.bytes[tcp + 1]]);
                seen.push(SocketAddr::new(source, from));
            }
        })
        .unwrap();
    }
    seen
}

/// Builds a frame to this device with a SYN.
fn syn(mac: Mac, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (ethertype, mut frame) = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut frame = vec![0; 34];
            let header =
                ipv4::Header::whole(Protocol::TCP, source, destination, 20 + SYN_BYTES as u16);
            header.emit(&mut frame[14..]);
            (EtherType::IPV4, frame)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut frame = vec![0; 54];
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_bytes: SYN_BYTES as u16,
                next_header: Protocol::TCP,
                hop_limit: 64,
                source,
                destination,
            };
            header.emit(&mut frame[14..]);
            (EtherType::IPV6, frame)
        }
        _ => unreachable!("{from} and {to} are of two versions"),
    };
    let source = Mac([2, 0, 0, 0, 0, 9]);
    ethernet::Header { destination: mac, source, ethertype }.emit(&mut frame);
    let fields = Fields {
        source_port: from.port(),
        destination_port: to.port(),
        seq: SeqNumber(1),
        ack: SeqNumber(0),
        flags: Flags::SYN,
        window: 1000,
    };
    // Nothing verifies the checksum before a stack does.
    let mut segment = [0; 60];
    assert_eq!(fields.emit(&OptionSet::default(), &mut segment), SYN_BYTES);
    frame.extend(&segment[..SYN_BYTES]);
    frame
}

/// Sends frames from a host, bypassing its kernel.
fn send(host: &Namespace, frames: &[Vec<u8>]) {
    let open = || Ok(Port::open(&Settings::new("eth0"), None)?);
    let mut port = host.within(open).unwrap();
    for frame in frames {
        let fill = &mut |slot: &mut [u8]| {
            slot[..frame.len()].copy_from_slice(frame);
            Some(Transmit {
                frame_bytes: frame.len().try_into().unwrap(),
                checksum: Checksum::Complete,
                segmentation: None,
                owner: None,
            })
        };
        assert_eq!(port.offer(fill).unwrap(), Offer::Taken);
        port.flush().unwrap();
    }
}

#[test]
fn who_comes_by_another_device_than_the_addresss_comes_to_the_kernel() {
    if is_skipped("who_comes_by_another_device_than_the_addresss_comes_to_the_kernel") {
        return;
    }
    let (link, third) = Link::with_third("whence");
    let any = link.ours.within(|| Ok(TcpListener::bind(end("::", PORT))?)).unwrap();
    let mut client = link.client();
    let (mut ours, _) = open(&mut client, "eth0");
    let (mut beside, _) = open(&mut client, "eth1");
    client.own(end("::", PORT), any.as_fd()).unwrap();
    let mut kernels = Vec::new();
    for ip in [OURS, OUR_V6] {
        let to = end(ip, PORT);
        // What comes by the address's own device is the stack's …
        assert_eq!(knock(&link, to), Err(ErrorKind::TimedOut), "{ip}");
        assert!(!syns(&mut ours, |seen| !seen.is_empty()).is_empty(), "{ip}");
        // … and by the other one the kernel's, as that device's stack would not know what to do
        // with it.
        let connect = move || Ok(TcpStream::connect_timeout(&to, LONG)?);
        kernels.push((third.within(connect).unwrap(), any.accept().unwrap().0));
        assert_eq!(syns(&mut beside, |_| false), [], "{ip}");
    }
    // The other device's addresses are the stack's there, and the kernel's by the first device.
    for ip in [BESIDE, BESIDE_V6] {
        assert_eq!(knock_at(&third, end(ip, PORT)), Err(ErrorKind::TimedOut), "{ip}");
        assert!(!syns(&mut beside, |seen| !seen.is_empty()).is_empty(), "{ip}");
    }
    link.theirs.ip(&format!("route add {BESIDE} via {OURS}")).unwrap();
    assert_eq!(knock(&link, end(BESIDE, PORT)), Ok(()));
    // The kernel's connections stay the kernel's, whichever program has the port.
    let mut talk = || {
        for (theirs, ours) in &mut kernels {
            for stream in [&*theirs, &*ours] {
                stream.set_read_timeout(Some(LONG)).unwrap();
            }
            theirs.write_all(b"ping").unwrap();
            ours.read_exact(&mut [0; 4]).unwrap();
            ours.write_all(b"pong").unwrap();
            theirs.read_exact(&mut [0; 4]).unwrap();
        }
    };
    talk();
    let mut second = link.client();
    let (_socket, _) = open(&mut second, "eth0");
    second.own(end("::", PORT), any.as_fd()).unwrap();
    talk();
    drop(client);
    talk();
}

/// Returns the result of connecting from this port.
fn knock_from(host: &Namespace, from: SocketAddr, to: SocketAddr) -> Result<(), ErrorKind> {
    let connect = move || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&from.into())?;
        Ok(socket.connect_timeout(&to.into(), SHORT).map_err(|error| error.kind()))
    };
    host.within(connect).unwrap()
}

/// As of a macvlan device, whose frames come through the device below it.
#[test]
fn of_a_connection_that_is_entered_what_comes_by_another_device_is_the_kernels() {
    if is_skipped("of_a_connection_that_is_entered_what_comes_by_another_device_is_the_kernels") {
        return;
    }
    let (link, third) = Link::with_third("astray");
    let local = end(OURS, PORT + 1);
    let bound = link.ours.within(move || Ok(TcpListener::bind(local)?)).unwrap();
    let mut client = link.client();
    let (_ours, _) = open(&mut client, "eth0");
    let (_beside, _) = open(&mut client, "eth1");
    let remotes = [(&link.theirs, end(THEIRS, 5000)), (&third, end(THIRD, 5000))];
    for (_, remote) in remotes {
        client.own_connection(local, remote, bound.as_fd()).unwrap();
    }
    let results = remotes.map(|(host, remote)| knock_from(host, remote, local));
    assert_eq!(results, [Err(ErrorKind::TimedOut), Ok(())]);
    for (host, remote) in remotes {
        client.disown_connection(local, remote).unwrap();
        let another = SocketAddr::new(remote.ip(), 5001);
        assert_eq!(knock_from(host, another, local), Ok(()), "nothing is entered");
    }
}

/// The same for connections that have come to a port and are entered because its engines change.
#[test]
fn of_a_connection_that_came_what_comes_by_another_device_is_the_kernels() {
    if is_skipped("of_a_connection_that_came_what_comes_by_another_device_is_the_kernels") {
        return;
    }
    let (link, third) = Link::with_third("strays");
    let local = end(OURS, PORT + 2);
    let bound = link.ours.within(move || Ok(TcpListener::bind(local)?)).unwrap();
    let mut client = link.client();
    let (_ours, _) = open(&mut client, "eth0");
    client.own(local, bound.as_fd()).unwrap();
    let remotes = [(&link.theirs, end(THEIRS, 5000)), (&third, end(THIRD, 5000))];
    for (_, remote) in remotes {
        let _entry = client.connections().enter(local, remote).unwrap();
    }
    let mut second = link.client();
    let (_again, _) = open(&mut second, "eth0");
    second.own(local, bound.as_fd()).unwrap();
    let results = remotes.map(|(host, remote)| knock_from(host, remote, local));
    assert_eq!(results, [Err(ErrorKind::TimedOut), Ok(())]);
}

/// Replaces all IPsec policies by one that blocks what has these ends.
fn block(link: &Link, selector: &str) {
    link.ours.ip("xfrm policy flush").unwrap();
    link.ours.ip(&format!("xfrm policy add {selector} action block")).unwrap();
    // What is known of them counts for a second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
}

#[test]
fn what_an_ipsec_policy_is_about_is_the_kernels() {
    if is_skipped("what_an_ipsec_policy_is_about_is_the_kernels") {
        return;
    }
    let link = Link::new("ipsec", &[]);
    let listening = link.ours.within(|| Ok(TcpListener::bind(end("0.0.0.0", PORT + 3))?)).unwrap();
    let bound = link.ours.within(|| Ok(TcpListener::bind(end(OURS, PORT + 4))?)).unwrap();
    let mut client = link.client();
    let (_ours, _) = open(&mut client, "eth0");
    let (local, remote) = (end(OURS, PORT + 4), end(THEIRS, 443));
    let connects = |client: &mut Client| {
        client.own_connection(local, remote, bound.as_fd()).map_err(|error| error.to_string())?;
        client.disown_connection(local, remote).map_err(|error| error.to_string())
    };
    block(&link, &format!("dir out src {OURS}/32 dst {THEIRS}/32 proto tcp dport 444"));
    connects(&mut client).unwrap();
    block(&link, &format!("dir out src {OURS}/32 dst {THEIRS}/32 proto tcp dport 443"));
    let why = connects(&mut client).unwrap_err();
    let wanted = format!("an IPsec policy is about what passes from {local} to {remote}");
    assert!(why.contains(&wanted), "{why}");
    block(&link, &format!("dir in src 10.0.0.0/8 dst {OURS}/32 proto tcp dport {}", PORT + 3));
    let why = client.own(end("0.0.0.0", PORT + 3), listening.as_fd()).unwrap_err().to_string();
    let wanted = format!("an IPsec policy is about what comes to {OURS}:{}", PORT + 3);
    assert!(why.contains(&wanted), "{why}");
    connects(&mut client).unwrap();
    block(&link, &format!("dir in src 10.0.0.0/8 dst {OURS}/32 proto tcp dport {}", PORT + 9));
    client.own(end("0.0.0.0", PORT + 3), listening.as_fd()).unwrap();
}

#[test]
fn an_address_that_several_devices_have_is_the_stacks_on_each() {
    if is_skipped("an_address_that_several_devices_have_is_the_stacks_on_each") {
        return;
    }
    let (link, third) = Link::with_third("several");
    let any = link.ours.within(|| Ok(TcpListener::bind(end("::", PORT))?)).unwrap();
    let mut client = link.client();
    let mut ports = ["eth0", "eth1"].map(|device| open(&mut client, device));
    client.own(end("::", PORT), any.as_fd()).unwrap();
    link.theirs.ip(&format!("route add {SEVERAL} via {OURS}")).unwrap();
    let hosts = [(&link.theirs, THEIRS), (&third, THIRD)];
    for ((port, mac), (host, good)) in ports.iter_mut().zip(hosts) {
        let to = end(SEVERAL, PORT);
        assert_eq!(knock_at(host, to), Err(ErrorKind::TimedOut));
        assert!(!syns(port, |seen| !seen.is_empty()).is_empty(), "{good}");
        syns(port, |_| false);
        // Nor does anything come from such a source.
        let sources = ["127.0.0.1", OURS, BESIDE, SEVERAL, good];
        send(host, &sources.map(|from| syn(*mac, end(from, 4000), to)));
        assert_eq!(syns(port, |_| false), [end(good, 4000)]);
    }
}

#[test]
fn who_says_that_he_is_on_the_host_itself_comes_to_no_program() {
    if is_skipped("who_says_that_he_is_on_the_host_itself_comes_to_no_program") {
        return;
    }
    let (link, _third) = Link::with_third("martian");
    let any = link.ours.within(|| Ok(TcpListener::bind(end("::", PORT))?)).unwrap();
    let mut client = link.client();
    let (mut port, mac) = open(&mut client, "eth0");
    client.own(end("::", PORT), any.as_fd()).unwrap();
    // The host's own addresses are those of all its devices.
    let martians = [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "0.9.9.9",
        "224.0.0.1",
        "255.255.255.255",
        OURS,
        BESIDE,
    ];
    // A link-local address may belong to another host on another link.
    let martians_v6 = ["::1", "::", "ff02::1", "::ffff:127.0.0.1", OUR_V6, BESIDE_V6, NEAR];
    let sets = [
        (&martians[..], THEIRS, OURS),
        (&martians_v6[..], THEIR_V6, OUR_V6),
        (&[], NEAR_BESIDE, OUR_V6),
    ];
    for (martians, good, ours) in sets {
        let to = end(ours, PORT);
        let frame = |from: &str| syn(mac, end(from, 4000), to);
        let mut frames: Vec<_> = martians.iter().map(|from| frame(from)).collect();
        // Frames from elsewhere come through, before them and after them.
        frames.insert(0, frame(good));
        frames.push(syn(mac, end(good, 4001), to));
        send(&link.theirs, &frames);
        let last = end(good, 4001);
        let seen = syns(&mut port, |seen| seen.contains(&last));
        assert_eq!(seen, [end(good, 4000), last]);
        assert_eq!(syns(&mut port, |_| false), []);
    }
}

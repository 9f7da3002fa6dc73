//! Remedies in the network's settings: routes, queues, buffers.

use std::net::IpAddr;

use super::{List, TUNE_EXISTS};

/// A line that gives the host's route to `peer` an attribute, whatever that route is; `None`
/// where no line does it.
///
/// An attribute of a network's route would meet other connections, too: this makes a route to
/// one address, a copy of what the kernel would choose.
pub(super) fn route(peer: IpAddr, same_host: bool, attribute: &str) -> Option<String> {
    match (same_host, peer) {
        (false, _) => {
            let family = family(peer);
            Some(format!(
                "ip {family}route replace $(ip -o route get {peer} | \
                 sed 's/ from ::/ /; s/ \\(uid\\|proto\\|metric\\) .*//') {attribute}"
            ))
        }
        (true, IpAddr::V4(_)) => {
            Some(format!("ip route replace table local local {peer} dev lo {attribute}"))
        }
        // The kernel's own route to a local IPv6 address has metric 0, which no other can have.
        (true, IpAddr::V6(_)) => None,
    }
}

/// The line that takes back what [`route`] did.
pub(super) fn undo(peer: IpAddr, same_host: bool) -> String {
    match same_host {
        false => format!("ip {}route del {peer}", family(peer)),
        true => format!("ip route replace table local local {peer} dev lo quickack 0"),
    }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv6() { "-6 " } else { "" }
}

/// The device through which `peer` is reached, for a shell.
fn device(peer: IpAddr) -> String {
    format!("$(ip -o route get {peer} | sed 's/.* dev \\([^ ]*\\).*/\\1/')")
}

/// The sender's queues below TCP.
pub(super) fn shorten_queue(list: &mut List<'_>) {
    let Some(at) = list.context.bytes_held_by else { return };
    let device = device(list.context.peer_of(at));
    if TUNE_EXISTS {
        list.add(
            at,
            format!("uncork tune small-queues --dev {device}"),
            "caps what a connection may queue below TCP",
        );
    }
    list.add(
        at,
        format!("tc qdisc replace dev {device} root fq_codel"),
        "the device's queue lets small flows pass and drops early; undo: tc qdisc del … root",
    );
    list.add(
        at,
        "sysctl -w net.ipv4.tcp_limit_output_bytes=8192 net.ipv4.tcp_tso_rtt_log=0",
        "a connection may queue less below TCP; costs throughput on links above 1 Gbit/s",
    );
}

/// A window that was shut: the remedy is at the receiver.
pub(super) fn open_window(list: &mut List<'_>) {
    let Some(sender) = list.context.bytes_held_by else { return };
    let at = sender.other();
    let (own, peer) = (list.context.party(at).endpoint, list.context.party(sender).endpoint);
    list.add(
        at,
        format!("ss -tmi src {own} dst {peer}"),
        "Recv-Q that stays high: the program does not read in time; rb in skmem is its buffer",
    );
    if let Some(pid) = list.context.pid(at) {
        list.add(
            at,
            format!("perf trace --duration 1 --pid {pid}"),
            "shows what it does instead of reading",
        );
    }
    list.add(
        at,
        "sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'",
        "room for bursts, unless the program sets SO_RCVBUF: that ends the kernel's tuning",
    );
}

/// Segments that were lost: the network's fault, and what makes it hurt less.
pub(super) fn lose_less(list: &mut List<'_>) {
    let Some(at) = list.context.bytes_held_by else { return };
    let peer = list.context.peer_of(at);
    list.add(
        at,
        format!("ip -s -s link show dev {}", device(peer)),
        "errors and drops of the device; at the other end, too",
    );
    list.add(
        at,
        "nstat -az TcpRetransSegs TcpExtTCPTimeouts TcpExtTCPLossProbes TcpExtTCPSpuriousRTOs",
        "how the host's losses end: by a probe, or by the timeout of 200 ms and more",
    );
    if list.context.same_host() {
        return;
    }
    if let Some(line) = route(peer, false, "rto_min 20ms") {
        let undo = undo(peer, false);
        list.add(
            at,
            line,
            format!("sends again after 20 ms instead of 200; on short paths only; undo: {undo}"),
        );
    }
}

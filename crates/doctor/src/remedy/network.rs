//! Remedies in the network's settings: routes, queues, buffers.

use std::net::IpAddr;

use super::List;

/// Returns a line that gives the host's route to `peer` an attribute, whatever that route is, and
/// says how to take it back; `None` where no line does that.
///
/// An attribute of a network's route would affect other connections, too: this creates a route to
/// one address, a copy of what the kernel would choose. `enter` comes before each command.
pub(super) fn route(peer: IpAddr, same_host: bool, attribute: &str, enter: &str) -> Option<String> {
    match (same_host, peer) {
        (false, IpAddr::V4(_)) => Some(format!(
            "{enter}ip route replace $({enter}ip route get {peer} | sed 's/ uid.*//;q') {attribute}  \
             # undo: {enter}ip route del {peer}"
        )),
        (false, IpAddr::V6(_)) => Some(format!(
            "{enter}ip -6 route replace $({enter}ip route get {peer} | \
             sed 's/ from ::/ /;s/ \\(proto\\|metric\\).*//;q') {attribute}  \
             # undo: {enter}ip -6 route del {peer}"
        )),
        (true, IpAddr::V4(_)) => {
            let line = format!("{enter}ip route replace table local local {peer} dev lo");
            Some(format!("{line} {attribute}  # undo: {line}"))
        }
        // The kernel's own route to a local IPv6 address has metric 0, which no other route can have.
        (true, IpAddr::V6(_)) => None,
    }
}

/// Returns the device through which `peer` is reached, for a shell.
fn device(peer: IpAddr, enter: &str) -> String {
    format!("$({enter}ip route get {peer} | sed 's/.* dev \\([^ ]*\\).*/\\1/;q')")
}

/// Adds remedies for the sender's queues below TCP.
pub(super) fn shorten_queue(list: &mut List<'_>) {
    let at = list.context.sender;
    let (enter, netns) = (list.context.enter(at), list.context.netns(at));
    let device = device(list.context.peer_of(at), &enter);
    list.add(
        at,
        format!("{enter}tc qdisc replace dev {device} root fq_codel"),
        "the device's queue lets small flows pass and drops early",
    );
    list.add(
        at,
        format!("uncork tune small-queues --dev {device}{netns}"),
        "caps what a connection may queue below TCP (as root; uncork tune undo takes it back)",
    );
    list.add(
        at,
        format!("{enter}sysctl -w net.ipv4.tcp_limit_output_bytes=8192 net.ipv4.tcp_tso_rtt_log=0"),
        "a connection may queue less below TCP; look at its throughput afterwards",
    );
}

/// Adds remedies for a window that was shut: they are at the receiver.
pub(super) fn open_window(list: &mut List<'_>) {
    let sender = list.context.sender;
    let at = sender.other();
    let (own, peer) = (list.context.party(at).endpoint, list.context.party(sender).endpoint);
    let enter = list.context.enter(at);
    list.add(
        at,
        format!("{enter}ss -tmi src {own} dst {peer}"),
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
        format!("{enter}sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'"),
        "room for bursts, unless the program sets SO_RCVBUF: that ends the kernel's tuning",
    );
}

/// Adds remedies for lost segments: the network is at fault, and these make losses cost less.
pub(super) fn lose_less(list: &mut List<'_>) {
    let at = list.context.sender;
    let (peer, enter) = (list.context.peer_of(at), list.context.enter(at));
    list.add(
        at,
        format!("{enter}ip -s -s link show dev {}", device(peer, &enter)),
        "errors and drops of the device; at the other end, too",
    );
    list.add(
        at,
        format!(
            "{enter}nstat -az TcpRetransSegs TcpExtTCPTimeouts TcpExtTCPLossProbes \
             TcpExtTCPSpuriousRTOs"
        ),
        "how the host's losses end: by a probe, or by the timeout of 200 ms and more",
    );
    if list.context.same_host() {
        return;
    }
    if let Some(line) = route(peer, false, "rto_min 20ms", &enter) {
        list.add(at, line, "sends again after 20 ms instead of 200; for short paths only");
    }
}

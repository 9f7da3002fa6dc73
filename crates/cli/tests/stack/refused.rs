//! Errors: each is one sentence, with its exit status.

use std::process::Command;

use nix::unistd::geteuid;
use uncork_netns::testing::is_skipped;

use crate::common::{UNCORK, output, refused, stderr, uncork};
use crate::stack::place::{Place, Server};

/// Returns an uncork without any capability.
pub(crate) fn powerless() -> Command {
    if !geteuid().is_root() {
        return uncork();
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", UNCORK]);
    command
}

#[test]
fn who_may_not_open_the_device_is_told_what_is_missing() {
    let line = "stack serve echo --addr 10.92.0.2/24 --dev";
    let mut command = powerless();
    refused(
        command.args(line.split(' ')).args(["lo", "--driver", "packet"]),
        3,
        "needs CAP_NET_RAW",
    );
    let line = "stack connect 10.92.0.1:7 --addr 10.92.0.2/24 --dev";
    let mut command = powerless();
    let done = output(command.args(line.split(' ')).arg("uncorktest0"));
    let sentence = stderr(&done);
    // Some machines have no TUN at all.
    let lacks = sentence.contains("needs CAP_NET_ADMIN") && done.status.code() == Some(3);
    assert!(lacks || sentence.contains("CONFIG_TUN"), "{sentence}");
}

#[test]
fn an_address_that_is_given_twice_is_named() {
    let line =
        "stack serve http --dev lo --addr 10.92.0.2/24 --addr 10.92.0.3/24 --addr 10.92.0.2/25";
    refused(uncork().args(line.split(' ')), 2, "--addr: 10.92.0.2 is given twice");
}

#[test]
fn what_cannot_be_used_is_named() {
    if is_skipped("what_cannot_be_used_is_named") {
        return;
    }
    let place = Place::veth("stbad");
    let says = |line: &str, code, what| {
        let mut command = place.kernels.command(UNCORK);
        refused(command.args(["stack", "serve"]).args(line.split_whitespace()), code, what);
    };
    says("echo --dev eth0 --addr 10.92.0.1/24", 2, "10.92.0.1 is an address of this host already");
    says("echo --dev eth0 --addr fd92::1/64", 2, "fd92::1 is an address of this host already");
    for nobodys in
        ["0.0.0.0/0", "224.0.0.1/4", "10.92.0.255/24", "127.0.0.2/8", "::/0", "ff02::1/64"]
    {
        says(&format!("echo --dev eth0 --addr {nobodys}"), 2, "no address that a host can have");
    }
    let both = "echo --dev tap9 --host 10.95.0.1/24 --addr 10.95.0.1/24";
    says(both, 2, "10.95.0.1 is an address of this host already");
    says("echo --dev none --driver packet --addr 10.92.0.2/24", 2, "no network device none");
    says(
        "echo --dev eth0 --host 10.92.0.4/24 --addr 10.92.0.2/24",
        2,
        "--host gives addresses to a TAP",
    );
    says("echo --dev lo --driver xdp --addr 10.92.0.2/24", 2, "use a packet socket");
    says("echo --dev lo --addr 10.92.0.2/24", 2, "the loopback device brings the stack nothing");
    let routers = "echo --dev eth0 --addr 10.92.0.2/24 --gateway";
    says(&format!("{routers} 10.93.0.1"), 2, "the router 10.93.0.1 is in no network of --addr");
    says(&format!("{routers} 10.92.0.2"), 2, "10.92.0.2 is no router's address");
    says(&format!("{routers} 224.0.0.1"), 2, "224.0.0.1 is no router's address");
    says(&format!("{routers} fe80::1"), 2, "there is no address of the version of fe80::1");
    says(
        &format!("{routers} 10.92.0.1 --gateway 10.92.0.9"),
        2,
        "10.92.0.1 and 10.92.0.9 are two routers to the same",
    );
    let mut first = place.kernels.command(UNCORK);
    let line = "stack serve echo --dev eth0 --driver xdp --addr 10.92.0.2/24";
    let first = Server::start(first.args(line.split(' ')));
    says("echo --dev eth0 --driver xdp --addr 10.92.0.3/24", 2, "is held by another program");
    drop(first);
    let tap =
        "eth0 is there, and is no TAP device of one queue: use a packet socket (--driver packet)";
    says("echo --dev eth0 --driver tap --addr 10.92.0.2/24", 2, tap);
    let mtu = "eth0 is there and has its own, which ip link set eth0 mtu 1400 changes";
    says("echo --dev eth0 --mtu 1400 --addr 10.92.0.2/24", 2, mtu);
    says("echo --dev eth0 --driver xdp --mtu 1400 --addr 10.92.0.2/24", 2, mtu);
    says("echo --dev eth0 --addr 10.92.0.2/24 --record /none/x", 2, "/none/x");
    says("echo --dev eth0 --addr 10.92.0.2/24 --socket /none/x", 2, "/none/x");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("precious");
    std::fs::write(&file, "precious").unwrap();
    let file = file.to_str().unwrap();
    says(&format!("echo --dev eth0 --addr 10.92.0.2/24 --socket {file}"), 2, file);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "precious");
    says("echo --kernel --addr 10.92.0.9/24", 2, "cannot listen at 10.92.0.9:7 on a kernel socket");
    place.kernels.ip("link set eth0 down").unwrap();
    says("echo --dev eth0 --addr 10.92.0.2/24", 1, "eth0 is down: ip link set eth0 up");
}

#[test]
fn a_recording_of_before_is_lost_to_who_is_refused_or_to_a_second_server() {
    if is_skipped("a_recording_of_before_is_lost_to_who_is_refused_or_to_a_second_server") {
        return;
    }
    let place = Place::veth("strefused");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.pcapng");
    std::fs::write(&file, "of yesterday").unwrap();
    let records = |address: &str, more: &str| {
        let mut command = place.kernels.command(UNCORK);
        let line = format!("stack serve echo --dev eth0 --addr {address}/24 --record");
        command.args(line.split(' ')).arg(&file).args(more.split_whitespace());
        command
    };
    refused(&mut records("10.92.0.2", "--socket /none/x"), 2, "/none/x");
    assert_eq!(std::fs::read(&file).unwrap(), b"of yesterday");
    let first = Server::start(&mut records("10.92.0.2", ""));
    let begun = std::fs::read(&file).unwrap();
    assert_ne!(begun, b"of yesterday");
    let why = "all.pcapng: it is being recorded into by another";
    refused(&mut records("10.92.0.3", ""), 2, why);
    assert!(std::fs::read(&file).unwrap().starts_with(&begun));
    first.stop();
}

#[test]
fn a_name_that_no_device_can_have_is_told() {
    for name in ["averyveryverylongname", "a/b", "", "a b", ".."] {
        let mut command = uncork();
        command.args(["stack", "serve", "echo", "--addr", "10.92.0.2/24", "--dev", name]);
        refused(&mut command, 2, &format!("{name:?} is no name of a network device"));
    }
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn without_dpdk_it_is_said_how_to_have_it() {
    let line = "stack serve echo --dev net_null0 --driver dpdk --addr 10.92.0.2/24";
    refused(
        uncork().args(line.split(' ')),
        2,
        "cargo build --release --features dpdk makes one that has it (Debian: apt-get install libdpdk-dev)",
    );
}

#[test]
fn lines_that_make_no_sense_are_refused() {
    for (line, says) in [
        ("serve echo --addr 10.0.0.1/24", "--dev"),
        ("serve echo --dev x", "--addr"),
        ("serve ftp --dev x --addr 10.0.0.1/24", "ftp"),
        ("serve echo --dev x --addr 10.0.0.1", "not an address with a prefix length"),
        ("serve echo --dev x --addr 10.0.0.1/24 --kernel", "--kernel"),
        ("serve echo --dev x --addr 10.0.0.1/24 --port 0", "--port"),
        ("serve echo --kernel --addr 127.0.0.1/8 --mtu 1400", "--mtu"),
        ("serve echo --dev x --addr 10.0.0.1/24 --body 7", "the lengths of what http serves"),
        ("serve chargen --kernel --addr 127.0.0.1/8 --bytes 7", "the lengths of what http serves"),
        (
            "serve echo --dev x --addr 10.0.0.1/24 --spin 5us --moderation 50us",
            "leave out either --spin or --moderation",
        ),
        // Moderation is allowed where the stack does not spin.
        (
            "connect [fd00::1]:7 --dev x --addr 10.0.0.1/24 --spin 0us --moderation 50us",
            "there is no address of the version of fd00::1",
        ),
        ("connect 10.0.0.1 --dev x --addr 10.0.0.1/24", "ADDR:PORT"),
        (
            "connect [fd00::1]:7 --dev x --addr 10.0.0.1/24",
            "there is no address of the version of fd00::1",
        ),
    ] {
        let done = output(uncork().arg("stack").args(line.split_whitespace()));
        assert_eq!(done.status.code(), Some(2), "{line}: {}", stderr(&done));
        assert!(stderr(&done).contains(says), "{line}: {}", stderr(&done));
    }
}

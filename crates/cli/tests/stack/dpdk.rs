//! The same tests with DPDK, over its virtual devices.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use nix::sys::signal::Signal;
use uncork_netns::testing::is_skipped;

use crate::common::{UNCORK, refused, stdout, uncork};
use crate::stack::http::{a_thousand_on_one_connection, long_body, wrk};
use crate::stack::place::{OURS, Place, Server, is_document, octets, until, url, wait};
use crate::stack::refused::powerless;
use crate::stack::streams::echo;

/// Makes a packet socket with small frames, one with large frames, and a TAP.
fn places(label: &str) -> [Place; 3] {
    let labels = ["-p", "-j", "-t"].map(|kind| format!("{label}{kind}"));
    [Place::dpdk(&labels[0], 1500), Place::dpdk(&labels[1], 9000), Place::dpdk_tap(&labels[2])]
}

/// Ends it as Ctrl-C does; advice about a virtual link is all that it may have written.
fn stop(mut server: Server) {
    server.signal(Signal::SIGINT);
    assert_eq!(server.end().code(), Some(0));
    let complaint = server.complaint();
    let advice = complaint.is_empty() || complaint.contains("ethtool -K DEVICE tx off");
    assert!(advice && complaint.lines().count() <= 1, "{complaint}");
}

#[test]
fn requests_are_answered_one_by_one_and_many_at_once() {
    if is_skipped("requests_are_answered_one_by_one_and_many_at_once") {
        return;
    }
    for place in places("dpht") {
        let server = place.serve("http --body 700");
        assert!(server.said.contains(" (DPDK, net_"), "{}", server.said);
        OURS.iter().for_each(|address| a_thousand_on_one_connection(&place, address));
        wrk(&place);
        stop(server);
    }
}

#[test]
fn a_hundred_megabytes_come_by_dpdk_as_they_were() {
    if is_skipped("a_hundred_megabytes_come_by_dpdk_as_they_were") {
        return;
    }
    for place in places("dpbig") {
        let server = place.serve("http --bytes 100000000");
        OURS.iter().for_each(|address| long_body(&place, address));
        stop(server);
    }
}

#[test]
fn echo_by_dpdk_gives_several_at_once_back_what_each_has_sent() {
    if is_skipped("echo_by_dpdk_gives_several_at_once_back_what_each_has_sent") {
        return;
    }
    for place in places("dpecho") {
        let server = place.serve("echo");
        thread::scope(|scope| {
            for address in [OURS, OURS].concat() {
                scope.spawn(|| echo(&place, address, 10_000_000));
            }
        });
        stop(server);
    }
}

#[test]
fn the_stack_connects_to_a_server_of_the_kernels_by_dpdk() {
    if is_skipped("the_stack_connects_to_a_server_of_the_kernels_by_dpdk") {
        return;
    }
    let place = Place::dpdk("dpconn", 1500);
    let mut server = place.kernels.command(UNCORK);
    let line = "stack serve echo --kernel --addr 10.92.0.1/24";
    let server = Server::start(server.args(line.split(' ')));
    let mut client = place.ours().command(UNCORK);
    client.args(["stack", "connect", "10.92.0.1:7"]).args(place.device());
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = client.spawn().unwrap();
    let feeding = crate::stack::place::feed(client.stdin.take().unwrap(), octets(5_000_000));
    let done = client.wait_with_output().unwrap();
    feeding.join().unwrap();
    assert!(done.status.success() && done.stdout == octets(5_000_000), "{}", done.stdout.len());
    server.stop();
}

/// Lists the files that DPDK usually leaves: its per-process directory, and huge-page files.
fn left_of(pid: u32) -> Vec<String> {
    let name = format!("uncork-{pid}");
    ["/var/run/dpdk", "/dev/hugepages"]
        .into_iter()
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|entry| entry.contains(&name))
        .collect()
}

fn status(pid: u32, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned()
}

#[test]
fn dpdk_neither_binds_nor_listens_nor_leaves_anything_behind() {
    if is_skipped("dpdk_neither_binds_nor_listens_nor_leaves_anything_behind") {
        return;
    }
    let place = Place::dpdk("dpleft", 1500);
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let mut server = place.serve("echo");
        let pid = server.pid();
        let allowed = status(std::process::id(), "Cpus_allowed_list:");
        assert_eq!(status(pid, "Cpus_allowed_list:"), allowed);
        assert_eq!(left_of(pid), Vec::<String>::new());
        let sockets = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap();
        assert!(!sockets.contains("/dpdk/"), "{sockets}");
        server.signal(signal);
        server.end();
        assert_eq!(left_of(pid), Vec::<String>::new());
    }
    // A thread bound to one processor stays there.
    let mut bound = place.ours().command("taskset");
    bound.args(["-c", "1", UNCORK, "stack", "serve", "echo"]).args(place.device());
    let server = Server::start(&mut bound);
    assert_eq!(status(server.pid(), "Cpus_allowed_list:"), "1");
    stop(server);
}

#[test]
fn a_host_that_forwards_does_not_forward_what_the_stack_gets_by_dpdk() {
    if is_skipped("a_host_that_forwards_does_not_forward_what_the_stack_gets_by_dpdk") {
        return;
    }
    let place = Place::dpdk("dpfwd", 1500);
    let ours = place.ours();
    ours.set("ipv4/ip_forward", 1).unwrap();
    ours.ip("address add 10.92.0.3/24 dev eth0").unwrap();
    let server = place.serve("echo");
    echo(&place, OURS[0], 100_000);
    let snmp = ours.command("cat").arg("/proc/net/snmp").output().unwrap();
    let text = stdout(&snmp);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let names: Vec<_> = lines.next().unwrap().split(' ').collect();
    let counts: Vec<_> = lines.next().unwrap().split(' ').collect();
    let at = names.iter().position(|&name| name == "ForwDatagrams").unwrap();
    assert_eq!(counts[at], "0", "{text}");
    stop(server);
}

#[test]
fn a_link_that_hands_over_no_checksums_is_complained_of() {
    if is_skipped("a_link_that_hands_over_no_checksums_is_complained_of") {
        return;
    }
    let place = Place::dpdk("dpadvice", 1500);
    let mut server = place.serve("echo");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().code(), Some(0));
    assert!(server.complaint().contains("eth0 (veth) may bring both"));
}

#[test]
fn the_device_going_away_ends_the_server() {
    if is_skipped("the_device_going_away_ends_the_server") {
        return;
    }
    let place = Place::dpdk("dpgone", 1500);
    let mut server = place.serve("echo");
    place.kernels.ip("link delete eth0").unwrap();
    assert_eq!(server.end().code(), Some(1));
    assert!(server.complaint().contains("the network device eth0 is gone"));
}

#[test]
fn what_dpdk_cannot_use_is_said_with_its_exit_status() {
    let says = |device: &str, more: &str, code, what| {
        let line =
            format!("stack serve echo --driver dpdk --dev {device} --addr 10.92.0.2/24 {more}");
        refused(uncork().args(line.split_whitespace()), code, what);
    };
    says("net_nothing0", "", 2, "DPDK cannot use net_nothing0");
    says("net_af_packet0", "", 2, "net_af_packet0,iface=eth0");
    says("0000:ff:1f.7", "", 2, "no such device on the PCI bus");
    says("net_null0", "--host 10.92.0.1/24", 2, "--host gives addresses to a TAP");
    says("net_af_packet0,iface=lo", "--mtu 1400", 2, "ip link set DEVICE mtu");
    let without = |device: &str, capability| {
        let line = format!("stack serve echo --driver dpdk --dev {device} --addr 10.92.0.2/24");
        refused(powerless().args(line.split(' ')), 3, capability);
    };
    without("net_af_packet0,iface=lo", "needs CAP_NET_RAW");
    if Path::new("/dev/net/tun").exists() {
        without("net_tap0,iface=dptest0", "needs CAP_NET_ADMIN");
    }
    if is_skipped("what_dpdk_cannot_use_is_said_with_its_exit_status") {
        return;
    }
    says("net_af_packet0,iface=none0", "", 2, "there is no network device none0");
    // Its own root has the device, but DPDK does more with it than send and receive.
    let place = Place::dpdk("dpraw", 1500);
    let mut raw = place.ours().command("setpriv");
    let line = "--bounding-set=-net_admin --inh-caps=-net_admin";
    raw.args(line.split(' ')).args([UNCORK, "stack", "serve", "echo"]).args(place.device());
    refused(&mut raw, 3, "needs CAP_NET_ADMIN");
}

#[test]
fn a_smaller_mtu_is_noticed_while_a_body_is_sent() {
    if is_skipped("a_smaller_mtu_is_noticed_while_a_body_is_sent") {
        return;
    }
    let place = Place::dpdk("dpmtu", 1500);
    let server = place.serve("http --bytes 60000000");
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut curl = place.kernels.command("curl");
    curl.args(["--silent", "--limit-rate", "20M", "--output"]).arg(file.path());
    let mut client = curl.arg(url(OURS[0], 8080, "/file")).spawn().unwrap();
    until(|| file.as_file().metadata().unwrap().len(), |&bytes| bytes > 1_000_000);
    for namespace in [place.ours(), &place.kernels] {
        namespace.ip("link set eth0 mtu 1300").unwrap();
    }
    assert!(wait(&mut client).success());
    is_document(file.path(), 60_000_000);
    stop(server);
}

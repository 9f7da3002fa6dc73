//! The name of a client.

use std::fs;
use std::net::IpAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a name server may take. The client's clock is already running, and its figures must not
/// include a name server that does not answer (ten seconds by default).
const NAME_LIMIT: Duration = Duration::from_millis(100);

const HOSTS: &str = "/etc/hosts";

/// Returns the host name of `address`, or the address itself if there is none or it is not known in
/// time.
pub(super) fn name(address: IpAddr) -> String {
    let look_up = move || dns_lookup::lookup_addr(&address).ok();
    let found = if in_hosts(&fs::read_to_string(HOSTS).unwrap_or_default(), address) {
        // Answered from that file, at once, so without a thread: a process that never had a second
        // one takes shorter paths through libc, by about 50 ns a packet.
        look_up()
    } else {
        within(NAME_LIMIT, look_up)
    };
    found.unwrap_or_else(|| address.to_string())
}

/// Returns whether a file in the format of hosts(5) has a line for `address`.
fn in_hosts(hosts: &str, address: IpAddr) -> bool {
    hosts
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .any(|first| first.parse() == Ok(address))
}

/// Returns the result of `work`, if it is ready in time; if not, the work goes on in the background
/// and its result is dropped.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    let (tell, told) = mpsc::sync_channel(1);
    thread::Builder::new()
        .spawn(move || {
            let _ = tell.send(work());
        })
        .ok()?;
    told.recv_timeout(limit).ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn addresses_are_found_in_hosts_and_comments_are_not() {
        let hosts =
            "# 10.0.0.9 gone\n127.0.0.1\tlocalhost\n::1 localhost ip6-localhost # 10.0.0.8\n";
        let found = |address: &str| in_hosts(hosts, address.parse().unwrap());
        assert!(found("127.0.0.1") && found("::1") && found("0:0::1"));
        assert!(!found("10.0.0.9") && !found("10.0.0.8") && !found("127.0.0.2"));
    }

    #[test]
    fn an_answer_in_time_is_used() {
        assert_eq!(within(Duration::from_secs(10), || Some("name")), Some("name"));
    }

    #[test]
    fn a_slow_answer_is_not_waited_for() {
        let begun = Instant::now();
        let slow = || {
            thread::sleep(Duration::from_secs(2));
            Some("late")
        };
        assert_eq!(within(Duration::from_millis(10), slow), None);
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}

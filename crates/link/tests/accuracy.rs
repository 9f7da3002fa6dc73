//! How exactly the link keeps its rate and its delay while it is full.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt,
    sockopt::{RcvBufForce, ReceiveTimestampns},
};
use uncork_link::{Counts, Faults, Layer, Loss, Path, Reorder, Settings, run};
use uncork_netns::Namespace;
use uncork_netns::testing::is_skipped;

const RATE: u64 = 1_000_000_000;
const DELAY: Duration = Duration::from_millis(5);
/// Octets of UDP payload; the frame has 42 more.
const PAYLOAD_BYTES: usize = 1400;
const FRAME_BYTES: usize = PAYLOAD_BYTES + 42;
/// Frames sent at once, when the last ones are through: the link is full but never has to drop.
const BURST: usize = 64;
const FRAMES: usize = 200 * BURST;

/// When each frame was sent, and when the other end's kernel took it in: nanoseconds since 1970.
struct Observed {
    sent_ns: Vec<u64>,
    received: Vec<(usize, u64)>,
    counts: Counts,
}

fn now_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

fn observe(label: &str, path: Path, frames: usize) -> Result<Observed> {
    let sender = Namespace::new(&format!("{label}a"))?;
    let receiver = Namespace::new(&format!("{label}b"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let settings = Settings {
        namespaces: [sender.name().to_owned(), receiver.name().to_owned()],
        device: "eth0".to_owned(),
        layer: Layer::Ethernet,
        segmentation_offload: false,
        spin: Duration::from_millis(1),
        paths: [path, Path::default()],
    };
    let (ready, is_ready) = mpsc::channel();
    let stopped = Arc::clone(&stop);
    let link = thread::spawn(move || run(settings, &stopped, || ready.send(()).unwrap()));
    is_ready.recv()?;
    for (namespace, own, other) in [(&sender, 1, 2), (&receiver, 2, 1)] {
        // Room for what a sender can write before the link runs.
        namespace.ip("link set eth0 txqueuelen 5000")?;
        namespace.ip(&format!("link set eth0 address 02:00:00:00:00:0{own} up"))?;
        namespace.ip(&format!("address add 10.77.0.{own}/24 dev eth0"))?;
        // No ARP among the counted frames.
        namespace.ip(&format!(
            "neighbour add 10.77.0.{other} lladdr 02:00:00:00:00:0{other} dev eth0 nud permanent"
        ))?;
    }
    let inbox = receiver.within(|| Ok(UdpSocket::bind("10.77.0.2:4000")?))?;
    setsockopt(&inbox, ReceiveTimestampns, &true)?;
    setsockopt(&inbox, RcvBufForce, &(8 << 20))?;
    inbox.set_read_timeout(Some(Duration::from_millis(500)))?;
    let outbox = sender.within(|| Ok(UdpSocket::bind("10.77.0.1:0")?))?;
    outbox.connect("10.77.0.2:4000")?;
    let reader = thread::spawn(move || receive(&inbox, frames));
    let sent_ns = send(&outbox, frames)?;
    let received = reader.join().unwrap()?;
    stop.store(true, Relaxed);
    let [counts, _] = link.join().unwrap()?;
    Ok(Observed { sent_ns, received, counts })
}

/// Sends bursts at exactly the link's rate, each when the one before it has left.
fn send(outbox: &UdpSocket, frames: usize) -> Result<Vec<u64>> {
    let every = Duration::from_nanos((BURST * FRAME_BYTES * 8) as u64 * 1_000_000_000 / RATE);
    let begin = Instant::now();
    let mut sent_ns = Vec::with_capacity(frames);
    let mut payload = [0; PAYLOAD_BYTES];
    for number in 0..frames {
        if number % BURST == 0 {
            let due = every * u32::try_from(number / BURST)?;
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        payload[..4].copy_from_slice(&u32::try_from(number)?.to_le_bytes());
        sent_ns.push(now_ns());
        outbox.send(&payload)?;
    }
    Ok(sent_ns)
}

fn receive(inbox: &UdpSocket, frames: usize) -> Result<Vec<(usize, u64)>> {
    let mut received = Vec::with_capacity(frames);
    let mut payload = [0; PAYLOAD_BYTES];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    loop {
        let mut parts = [std::io::IoSliceMut::new(&mut payload)];
        let flags = MsgFlags::empty();
        let Ok(message) =
            recvmsg::<SockaddrIn>(inbox.as_raw_fd(), &mut parts, Some(&mut control), flags)
        else {
            return Ok(received);
        };
        let stamp = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(time) => Some(time),
            _ => None,
        });
        let stamp = stamp.unwrap();
        let at_ns = u64::try_from(stamp.tv_sec() * 1_000_000_000 + stamp.tv_nsec())?;
        let number = u32::from_le_bytes(payload[..4].try_into()?);
        received.push((number as usize, at_ns));
    }
}

/// Returns how late each frame was, in microseconds, against a link that is exact.
fn lateness_us(observed: &Observed) -> Vec<f64> {
    let takes_ns = (FRAME_BYTES * 8) as u64 * 1_000_000_000 / RATE;
    let mut free_ns = 0;
    let due: Vec<u64> = observed
        .sent_ns
        .iter()
        .map(|sent| {
            free_ns = free_ns.max(*sent) + takes_ns;
            free_ns + u64::try_from(DELAY.as_nanos()).unwrap()
        })
        .collect();
    let mut late: Vec<f64> = observed
        .received
        .iter()
        .map(|(number, at_ns)| (*at_ns as f64 - due[*number] as f64) / 1e3)
        .collect();
    late.sort_by(f64::total_cmp);
    late
}

#[test]
fn at_a_gigabit_frames_arrive_within_a_tenth_of_a_millisecond_of_their_time() {
    if is_skipped("at_a_gigabit_frames_arrive_within_a_tenth_of_a_millisecond_of_their_time") {
        return;
    }
    let path = Path { delay: DELAY, rate: Some(RATE), queue_bytes: 64 << 20, ..Path::default() };
    let measured = uncork_calm::measured("when frames arrive at a gigabit", || {
        let observed = observe("acc", path.clone(), FRAMES).unwrap();
        let late = lateness_us(&observed);
        let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
        let said = format!(
            "{} of {FRAMES} arrived; late by p1 {:.0}, p50 {:.0}, p90 {:.0}, p99 {:.0} µs",
            late.len(),
            at(0.01),
            at(0.5),
            at(0.9),
            at(0.99)
        );
        let all = late.len() == FRAMES && at(0.01) > -100.0 && at(0.5) < 100.0 && at(0.9) < 100.0;
        if all { Ok(()) } else { Err(said) }
    });
    measured.unwrap();
}

#[test]
fn faults_happen_as_often_as_asked_for_and_corruption_does_not_get_past_a_checksum() {
    if is_skipped("faults_happen_as_often_as_asked_for") {
        return;
    }
    let reorder = Reorder { probability: 0.1, late_by: Duration::from_millis(2) };
    let faults = Faults { reorder, duplicate: 0.05, corrupt: 0.1 };
    let loss = Loss { probability: 0.1, ..Loss::default() };
    let path = Path { delay: DELAY, loss, faults, ..Path::default() };
    let observed = observe("flt", path, 4000).unwrap();
    let counts = observed.counts;
    let near = |count: u64, share: f64| (count as f64 / 4000.0 - share).abs() < 0.03;
    assert!(near(counts.lost, 0.1) && near(counts.corrupted, 0.09), "{counts:?}");
    assert!(near(counts.reordered, 0.09) && near(counts.duplicated, 0.045), "{counts:?}");
    let sound = 4000 - counts.lost + counts.duplicated - counts.corrupted;
    let got = observed.received.len() as u64;
    // Both copies of a frame that was corrupted and duplicated are bad. The rest is found by
    // checksums: IP's own for its header, UDP's for the rest.
    assert!(got <= sound && got + 40 >= sound, "{got} of {sound}: {counts:?}");
    assert!(!observed.received.is_sorted_by_key(|(number, _)| *number));
}

#[test]
fn corruption_and_whole_trains_exclude_each_other() {
    let faults = Faults { corrupt: 0.1, ..Faults::default() };
    let settings = Settings {
        namespaces: ["no".into(), "such".into()],
        device: "eth0".to_owned(),
        layer: Layer::Ethernet,
        segmentation_offload: true,
        spin: Duration::ZERO,
        paths: [Path { faults, ..Path::default() }, Path::default()],
    };
    let error = (|| -> Result<()> {
        run(settings, &AtomicBool::new(true), || ())?;
        ensure!(false, "it ran");
        Ok(())
    })()
    .unwrap_err();
    assert!(error.to_string().contains("cannot be corrupted"), "{error:#}");
}

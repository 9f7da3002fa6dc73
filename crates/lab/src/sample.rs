//! Queued data: below TCP at the bottleneck, and in the sockets; polled over netlink some hundred
//! times a second.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use hdrhistogram::Histogram;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use serde::Serialize;
use uncork_sockdiag::{Name, SockDiag};

use crate::place::Place;
use crate::probe::histogram;

const EVERY: Duration = Duration::from_millis(3);

/// A distribution of queue lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waiting {
    /// Median.
    pub p50_bytes: u64,
    /// 99th percentile.
    pub p99_bytes: u64,
}

/// The data that was queued, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Queued {
    /// Samples.
    pub count: u64,
    /// Backlog of the qdiscs, headers included.
    pub backlog: Waiting,
    /// Median of the backlog, as the time that the bottleneck needs for it.
    pub backlog_p50_ms: f64,
    /// 99th percentile of the backlog, as a time.
    pub backlog_p99_ms: f64,
    /// Octets written and not acknowledged, of all bulk senders together (`idiag_wqueue`).
    pub sockets: Waiting,
    /// Octets written and not yet sent once, of all bulk senders together (`tcpi_notsent_bytes`).
    pub unsent: Waiting,
}

/// The samples so far.
struct Samples {
    backlog: Histogram<u64>,
    sockets: Histogram<u64>,
    unsent: Histogram<u64>,
}

/// A thread that samples until it is told to stop.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Samples>>>,
    rate: u64,
}

impl std::fmt::Debug for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} samples", self.backlog.len())
    }
}

impl Sampler {
    /// Starts sampling the backlog of the place's bottleneck, and these sockets of its near end,
    /// each by its own address and the other's.
    ///
    /// # Errors
    /// If no netlink socket can be opened.
    pub fn start(place: &Place, sockets: &[(SocketAddr, SocketAddr)]) -> Result<Self> {
        let (queues, mut kernel) = place.near.within(|| {
            let kind = (SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute);
            let queues = socket(AddressFamily::Netlink, kind.0, kind.1, kind.2)?;
            Ok((queues, SockDiag::open()?))
        })?;
        let names: Vec<Name> =
            sockets.iter().map(|(local, remote)| Name::of(*local, *remote)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut samples =
                Samples { backlog: histogram()?, sockets: histogram()?, unsent: histogram()? };
            while !stopped.load(Relaxed) {
                samples.backlog.saturating_record(backlog_bytes(&queues)?);
                let (mut queued, mut unsent) = (0, 0);
                for name in &names {
                    let answer = kernel.connection(name)?.context("a bulk sender is gone")?;
                    queued += u64::from(answer.send_queue_bytes);
                    unsent += u64::from(answer.info.notsent_bytes);
                }
                samples.sockets.saturating_record(queued);
                samples.unsent.saturating_record(unsent);
                thread::sleep(EVERY);
            }
            Ok(samples)
        });
        Ok(Self { stop, thread: Some(thread), rate: place.bottleneck.rate })
    }

    /// Ends it; returns what it saw.
    ///
    /// # Errors
    /// What went wrong while it ran.
    pub fn finish(mut self) -> Result<Queued> {
        self.stop.store(true, Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(Queued::default()) };
        let samples = thread.join().map_err(|_| anyhow!("the sampler panicked"))??;
        let backlog = waiting(&samples.backlog);
        #[allow(clippy::cast_precision_loss)] // queues are far below 2^53 bits
        let ms = |bytes: u64| bytes as f64 * 8e3 / self.rate as f64;
        Ok(Queued {
            count: samples.backlog.len(),
            backlog,
            backlog_p50_ms: ms(backlog.p50_bytes),
            backlog_p99_ms: ms(backlog.p99_bytes),
            sockets: waiting(&samples.sockets),
            unsent: waiting(&samples.unsent),
        })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn waiting(bytes: &Histogram<u64>) -> Waiting {
    Waiting { p50_bytes: bytes.value_at_quantile(0.5), p99_bytes: bytes.value_at_quantile(0.99) }
}

/// Returns the bytes in the root qdiscs of all devices of the socket's namespace.
fn backlog_bytes(netlink: &OwnedFd) -> Result<u64> {
    sendto(netlink.as_raw_fd(), &dump_request(), &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut sum = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .context("the kernel's list of queues cannot be read")?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(sum),
                NetlinkPayload::Error(error) => bail!("no list of queues: {error}"),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(qdisc))
                    if qdisc.header.parent == TcHandle::ROOT =>
                {
                    sum += backlog_of(&qdisc);
                }
                _ => {}
            }
            // Messages are aligned to four octets (NLMSG_ALIGN).
            let taken = (message.header.length as usize).next_multiple_of(4).max(4);
            rest = rest.get(taken..).unwrap_or_default();
        }
    }
}

fn backlog_of(qdisc: &TcMessage) -> u64 {
    let stats = qdisc.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Stats2(stats) => Some(stats),
        _ => None,
    });
    let queue = stats.into_iter().flatten().find_map(|stats| match stats {
        TcStats2::Queue(queue) => Some(queue.backlog),
        _ => None,
    });
    queue.unwrap_or(0).into()
}

fn dump_request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

//! What waits below TCP: the bottleneck's own count, asked over netlink some hundred times a second.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use hdrhistogram::Histogram;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use serde::Serialize;

use crate::place::Place;
use crate::probe::histogram;

const EVERY: Duration = Duration::from_millis(3);

/// A distribution of what waited, in bytes and as time at the bottleneck's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Backlog {
    /// Samples.
    pub count: u64,
    /// Median.
    pub p50_bytes: u64,
    /// 99 of 100 are smaller.
    pub p99_bytes: u64,
    /// The median, as the time that it takes to send.
    pub p50_ms: f64,
    /// See [`p99_bytes`](Self::p99_bytes).
    pub p99_ms: f64,
}

/// A thread that asks, until it is told to stop.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Histogram<u64>>>>,
    rate: u64,
}

impl Sampler {
    /// Starts asking for the backlog of the place's bottleneck.
    ///
    /// # Errors
    /// If there is no netlink socket to be had.
    pub fn start(place: &Place) -> Result<Self> {
        let netlink = place.near.within(|| {
            let kind = (SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute);
            Ok(socket(AddressFamily::Netlink, kind.0, kind.1, kind.2)?)
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut bytes = histogram()?;
            while !stopped.load(Relaxed) {
                bytes.saturating_record(backlog_bytes(&netlink)?);
                thread::sleep(EVERY);
            }
            Ok(bytes)
        });
        Ok(Self { stop, thread: Some(thread), rate: place.bottleneck.rate })
    }

    /// Ends it; what it saw.
    ///
    /// # Errors
    /// What went wrong while it ran.
    pub fn finish(mut self) -> Result<Backlog> {
        self.stop.store(true, Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(Backlog::default()) };
        let bytes = thread.join().map_err(|_| anyhow!("the sampler panicked"))??;
        let (p50_bytes, p99_bytes) = (bytes.value_at_quantile(0.5), bytes.value_at_quantile(0.99));
        #[allow(clippy::cast_precision_loss)] // queues are far below 2^53 bits
        let ms = |bytes: u64| bytes as f64 * 8e3 / self.rate as f64;
        Ok(Backlog {
            count: bytes.len(),
            p50_bytes,
            p99_bytes,
            p50_ms: ms(p50_bytes),
            p99_ms: ms(p99_bytes),
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

/// Bytes in the qdiscs at the root of all devices of the socket's namespace.
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

//! The link between client and server.

use std::fmt;
use std::time::Duration;

use uncork_link::{Loss, Path};

/// The kind of link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The loopback device of one namespace.
    Loopback,
    /// A pair of virtual Ethernet devices.
    Veth,
    /// Our own link, over TAP devices.
    Tap,
    /// Our own link, over TUN devices: bare IP.
    Tun,
}

/// A link between two ends.
#[derive(Debug, Clone)]
pub struct Wire {
    /// The kind of link.
    pub kind: Kind,
    /// The paths of our own link, from client to server and back.
    pub paths: [Path; 2],
    /// Whether segment trains stay whole.
    pub offload: bool,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Segments that the client may send before the first ACK, if not the kernel's default of ten.
    pub initial_window: Option<u32>,
    /// Whether the server acknowledges at once (its route's `quickack`).
    pub quick_acks: bool,
}

impl Wire {
    fn of(kind: Kind) -> Self {
        let paths = [Path::default(), Path::default()];
        Self { kind, paths, offload: true, ipv6: false, initial_window: None, quick_acks: false }
    }

    /// Returns the loopback device.
    #[must_use]
    pub fn loopback() -> Self {
        Self::of(Kind::Loopback)
    }

    /// Returns two virtual Ethernet devices: about 0.05 ms.
    #[must_use]
    pub fn veth() -> Self {
        Self::of(Kind::Veth)
    }

    /// Returns our own link with this round-trip time, in milliseconds, half of it each way.
    #[must_use]
    pub fn rtt(milliseconds: f64) -> Self {
        let mut wire = Self::of(Kind::Tap);
        for path in &mut wire.paths {
            path.delay = Duration::from_secs_f64(milliseconds / 2000.0);
        }
        wire
    }

    /// Uses TUN devices instead.
    #[must_use]
    pub fn bare_ip(self) -> Self {
        Self { kind: Kind::Tun, ..self }
    }

    /// Uses IPv6.
    #[must_use]
    pub fn ipv6(self) -> Self {
        Self { ipv6: true, ..self }
    }

    /// Makes the client's congestion window start, and restart after a pause, with so many segments.
    #[must_use]
    pub fn initial_window(self, segments: u32) -> Self {
        Self { initial_window: Some(segments), ..self }
    }

    /// Makes the server delay no ACK.
    #[must_use]
    pub fn quick_acks(self) -> Self {
        Self { quick_acks: true, ..self }
    }

    /// Turns segmentation and receive offload off: every segment is a frame.
    #[must_use]
    pub fn plain(self) -> Self {
        Self { offload: false, ..self }
    }

    /// Sets a rate, in bits a second, and a queue before it, in octets, both ways.
    #[must_use]
    pub fn rate(mut self, bits: u64, queue_bytes: u64) -> Self {
        for path in &mut self.paths {
            path.rate = Some(bits);
            path.queue_bytes = queue_bytes;
        }
        self
    }

    /// Loses segments on the way to the server: those of these numbers, counted from 1, among the
    /// segments with at least `least_bytes` of data.
    #[must_use]
    pub fn lose_to_server(mut self, least_bytes: u32, which: &[u64]) -> Self {
        self.paths[0].loss = Loss { data: which.to_vec(), least_bytes, ..Loss::default() };
        self
    }

    /// Loses segments on the way to the client.
    #[must_use]
    pub fn lose_to_client(mut self, least_bytes: u32, which: &[u64]) -> Self {
        self.paths[1].loss = Loss { data: which.to_vec(), least_bytes, ..Loss::default() };
        self
    }

    /// Loses each frame with this probability, both ways.
    #[must_use]
    pub fn lossy(mut self, probability: f64, seed: u64) -> Self {
        for (path, seed) in self.paths.iter_mut().zip(seed..) {
            path.loss = Loss { probability, seed, ..Loss::default() };
        }
        self
    }

    /// Returns the addresses of client and server.
    #[must_use]
    pub fn addresses(&self) -> [&'static str; 2] {
        match (self.kind, self.ipv6) {
            (Kind::Loopback, false) => ["127.0.0.1"; 2],
            (Kind::Loopback, true) => ["::1"; 2],
            (_, false) => ["10.77.0.1", "10.77.0.2"],
            (_, true) => ["fd77::1", "fd77::2"],
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Loopback => "loopback",
            Kind::Veth => "veth",
            Kind::Tap => "own link over TAP",
            Kind::Tun => "own link over TUN",
        })?;
        if matches!(self.kind, Kind::Tap | Kind::Tun) {
            let rtt = self.paths[0].delay + self.paths[1].delay;
            write!(f, ", round trip {} ms", rtt.as_secs_f64() * 1000.0)?;
        }
        let [to_server, to_client] = &self.paths;
        if let Some(rate) = to_server.rate {
            write!(f, ", {rate} bit/s with a queue of {} octets", to_server.queue_bytes)?;
        }
        for (path, end) in [(to_server, "server"), (to_client, "client")] {
            let loss = &path.loss;
            if !loss.data.is_empty() {
                let Loss { data, least_bytes, .. } = loss;
                write!(
                    f,
                    ", of the segments of {least_bytes} octets or more to the {end} these are lost: {data:?}"
                )?;
            }
            if loss.probability > 0.0 {
                write!(
                    f,
                    ", {} of the frames to the {end} lost (seed {})",
                    loss.probability, loss.seed
                )?;
            }
        }
        f.write_str(if self.offload { "" } else { ", no segmentation offload" })?;
        if let Some(segments) = self.initial_window {
            write!(f, ", the client's initcwnd {segments}")?;
        }
        f.write_str(if self.quick_acks { ", the server's route with quickack" } else { "" })?;
        f.write_str(if self.ipv6 { ", IPv6" } else { "" })
    }
}

//! The port itself: it receives and sends in bursts.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use uncork_packet::{Capabilities, Completion, Instant, Medium, Received, Transmit};

use super::environment::{attach, told, why_not_opened};
use super::ffi::{self, Abilities, Found, Wanted};
use super::kernel::{Kernel, mtu_of};
use super::leaving::{ETHERNET_BYTES, leaving};
use super::name::Name;
use crate::clock::{Clock, clock};
use crate::{Driver, Offer, OpenError};

/// The longest train, in octets of IP: with its Ethernet header it fits one descriptor of any NIC, which holds less than
/// 16 KiB.
const TRAIN_BYTES: u16 = 16_000;
/// Room for a received frame, beside the packet: an Ethernet header with two tags, and a checksum that some NICs leave.
const BESIDE_PACKET: u16 = 26;
/// The divisor of the idle time that gives the rest, and the shortest and longest rest.
const REST_PART: u32 = 8;
const LEAST_REST: Duration = Duration::from_micros(20);
const MOST_REST: Duration = Duration::from_millis(1);
/// Time without any frame taken after which the oldest waiting frame is dropped.
const GIVE_UP_AFTER: Duration = Duration::from_millis(10);

/// The device, and how to use it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// DPDK's name for it: a virtual device with its arguments (`net_af_packet0,iface=eth0`), or an address on the PCI
    /// bus (`0000:03:00.0`).
    pub device: String,
    /// Longest packet, in octets; `None` leaves the device's own.
    pub mtu: Option<u16>,
    /// Capacity for received frames that have not been looked at, if the device supports that many.
    pub receive_frames: u16,
    /// Capacity for frames in flight.
    pub transmit_frames: u16,
}

impl Settings {
    /// Returns the settings for one engine on this device.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            mtu: None,
            // Bounds how late a turn may be: 12 ms of full frames at a gigabit.
            receive_frames: 1024,
            transmit_frames: 512,
        }
    }
}

/// Counters of what has passed, from DPDK.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that have come.
    pub received: u64,
    /// Frames that found no descriptor or no buffer, as far as the device reports.
    pub lost: u64,
    /// Frames that had an error, or were longer than a packet can be.
    pub left_aside: u64,
    /// Frames that have left.
    pub sent: u64,
    /// Frames that the device did not take, and its count of errors: a frame that was offered again counts more than once.
    pub refused: u64,
}

/// A device, by DPDK.
pub struct Port {
    raw: ffi::Port,
    found: Found,
    name: String,
    kernel: Option<Kernel>,
    capabilities: Capabilities,
    clock: Clock,
    /// Position in the last burst: the first frame that was not passed on, and the number of frames.
    next: u16,
    arrived: u16,
    /// When a frame last came.
    received: Instant,
    /// The time since which frames wait and none is taken.
    stuck: Option<Instant>,
    /// Whether frames wait.
    waiting: bool,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("name", &self.name)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

impl Port {
    /// Opens the device, in the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing.
    pub fn open(settings: &Settings) -> Result<Self, OpenError> {
        let mut name = Name::parse(&settings.device)?;
        let slots = fit_slots(&mut name, settings)?;
        let attached = attach(&name)?;
        let mut found = attached.look().map_err(|error| OpenError::System {
            doing: "ask DPDK what the device is",
            error: told(error),
        })?;
        found.abilities = usable(&found);
        let mtu = settings.mtu.unwrap_or(found.mtu);
        let most = slots.unwrap_or(mtu);
        let kernel = found.kernel_index.map(|index| Kernel::new(index, most)).transpose()?;
        if let Some(kernel) = kernel.as_ref().filter(|_| slots.is_some()) {
            kernel.check_up()?;
        }
        let raw = attached
            .open(&wanted(settings, most, found.abilities))
            .map_err(|error| why_not_opened(&name, error))?;
        let most = slots.unwrap_or_else(|| raw.mtu());
        let mtu = kernel.as_ref().map_or(most, |kernel| kernel.mtu().min(most));
        let (clock, name) = (clock(), name.name);
        let capabilities = capabilities(mtu, found.abilities);
        let received = clock();
        Ok(Self {
            raw,
            found,
            name,
            kernel,
            capabilities,
            clock,
            next: 0,
            arrived: 0,
            received,
            stuck: None,
            waiting: false,
        })
    }

    /// Returns the Ethernet address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.found.mac
    }

    /// DPDK's name for the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the device's driver in DPDK.
    #[must_use]
    pub fn driver(&self) -> &str {
        &self.found.driver
    }

    /// Returns the index of the kernel's device whose frames this one also reads: the kernel sees all of them, too.
    #[must_use]
    pub fn reads_along(&self) -> Option<i32> {
        let is_one = ["net_af_packet", "net_pcap"].contains(&self.driver());
        self.kernel.as_ref().filter(|_| is_one).map(|kernel| kernel.index)
    }

    /// Returns the name of the kernel's end of this device, if that is a TAP.
    #[must_use]
    pub fn tap(&self) -> Option<&str> {
        let kernel = self.kernel.as_ref().filter(|_| self.driver() == "net_tap");
        kernel.map(|kernel| kernel.name.as_str())
    }

    /// Returns what should be set elsewhere for frames to arrive unmodified.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        self.reads_along()?;
        self.kernel.as_ref().and_then(Kernel::advice)
    }

    /// Returns the counters so far.
    pub fn statistics(&mut self) -> Statistics {
        let counts = self.raw.counts();
        Statistics {
            received: counts.received,
            lost: counts.missed,
            left_aside: counts.receive_errors + counts.too_long,
            sent: counts.sent,
            refused: counts.send_errors + counts.given_up,
        }
    }

    /// Hands waiting frames to the device. A frame that it does not take for long is dropped: it would hold up all others.
    fn send(&mut self) {
        let (taken, left) = self.raw.send();
        self.waiting = left > 0;
        if left == 0 || taken > 0 {
            self.stuck = None;
            return;
        }
        let now = (self.clock)();
        if now.since(*self.stuck.get_or_insert(now)) >= GIVE_UP_AFTER {
            self.raw.give_up();
            self.stuck = None;
        }
    }
}

/// For net_af_packet: sizes its slots for the device's MTU, and returns the longest packet that they hold.
fn fit_slots(name: &mut Name, settings: &Settings) -> Result<Option<u16>, OpenError> {
    if !name.is_of("net_af_packet") {
        return Ok(None);
    }
    if settings.mtu.is_some() {
        return Err(OpenError::Settings(
            "the MTU of net_af_packet is that of the kernel's device (ip link set DEVICE mtu N)",
        ));
    }
    let Some(device) = name.argument("iface") else {
        return Err(OpenError::Settings(
            "net_af_packet is told the kernel's device: net_af_packet0,iface=eth0",
        ));
    };
    // If there is no such device, opening it says so.
    mtu_of(device).map(|mtu| name.fit(mtu)).transpose()
}

/// Returns the device's offloads that can be used.
fn usable(found: &Found) -> Abilities {
    // net_tap cuts trains of IPv4 only, and not into segments as long as its MTU allows (pmd_tx_burst).
    let cuts_trains = found.abilities.cuts_trains && found.driver != "net_tap";
    Abilities { cuts_trains, ..found.abilities }
}

fn wanted(settings: &Settings, most: u16, abilities: Abilities) -> Wanted {
    let longest = if abilities.cuts_trains { most.max(TRAIN_BYTES) } else { most };
    Wanted {
        mtu: settings.mtu,
        receive_bytes: most.saturating_add(BESIDE_PACKET),
        transmit_bytes: longest.saturating_add(ETHERNET_BYTES),
        receive_frames: settings.receive_frames,
        transmit_frames: settings.transmit_frames,
        abilities,
    }
}

fn capabilities(mtu: u16, abilities: Abilities) -> Capabilities {
    let train = if abilities.cuts_trains { TRAIN_BYTES.max(mtu) } else { mtu };
    Capabilities {
        medium: Medium::Ethernet,
        mtu,
        max_train_bytes: train.into(),
        completes_checksums: abilities.completes_checksums,
        reports_completions: false,
    }
}

impl Driver for Port {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        let mut handed = 0;
        while handed < budget {
            if self.next == self.arrived {
                // Always a whole burst: some drivers return nothing if fewer frames are asked for.
                (self.next, self.arrived) = (0, self.raw.receive());
                if self.arrived == 0 {
                    break;
                }
                self.received = (self.clock)();
            }
            if let Some(frame) = self.raw.frame(self.next) {
                each(frame);
            }
            self.next += 1;
            handed += 1;
        }
        Ok(handed)
    }

    fn complete(&mut self, _: &mut dyn FnMut(Completion)) -> io::Result<()> {
        Ok(())
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        // A full burst is sent first.
        if self.raw.room().is_none() {
            self.send();
        }
        let Some(room) = self.raw.room() else { return Ok(Offer::Full) };
        let Some(transmit) = fill(room) else { return Ok(Offer::Declined) };
        let told = leaving(room, &transmit);
        if !self.raw.push(&told) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Offer::Taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send();
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        if let Some(mtu) = kernel.look_if_due((self.clock)())? {
            self.capabilities = capabilities(mtu, self.found.abilities);
        }
        Ok(())
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn rest_at_most(&self) -> Option<Duration> {
        if self.waiting {
            return Some(LEAST_REST);
        }
        let quiet = (self.clock)().since(self.received);
        Some((quiet / REST_PART).clamp(LEAST_REST, MOST_REST))
    }

    fn lost(&mut self) -> Option<u64> {
        Some(self.statistics().lost)
    }
}

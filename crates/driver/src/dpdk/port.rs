//! The port itself: bursts in, bursts out.

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

/// The longest train, in octets of IP: with its Ethernet header it is in one descriptor of any NIC, which hold less than
/// 16 KiB.
const TRAIN_BYTES: u16 = 16_000;
/// Room for a frame that comes, beside the packet: an Ethernet header with two tags, and a checksum that some NICs leave.
const BESIDE_PACKET: u16 = 26;
/// Which part of the time that nothing has come is rested, and how long that is at least and at most.
const REST_PART: u32 = 8;
const LEAST_REST: Duration = Duration::from_micros(20);
const MOST_REST: Duration = Duration::from_millis(1);
/// After so long without taking any, the device does not take the first of the frames that wait, or any.
const GIVE_UP_AFTER: Duration = Duration::from_millis(10);

/// Which device, and how it is to be used.
#[derive(Debug, Clone)]
pub struct Settings {
    /// As DPDK names it: a virtual device with its arguments (`net_af_packet0,iface=eth0`), or a place on the PCI bus
    /// (`0000:03:00.0`).
    pub device: String,
    /// Longest packet, in octets; without it, as the device has it.
    pub mtu: Option<u16>,
    /// Frames that may have come and not been looked at, if the device takes so many.
    pub receive_frames: u16,
    /// Frames that may be under way.
    pub transmit_frames: u16,
}

impl Settings {
    /// For one engine on this device.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            mtu: None,
            // What one turn may be late for: 12 ms of full frames at a gigabit.
            receive_frames: 1024,
            transmit_frames: 512,
        }
    }
}

/// What has passed, as DPDK counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that have come.
    pub received: u64,
    /// Those that found no descriptor or no buffer, as far as the device tells.
    pub lost: u64,
    /// Those that had an error, or were longer than a packet can be.
    pub left_aside: u64,
    /// Frames that have left.
    pub sent: u64,
    /// Those that the device did not take, and what it counts as errors: more than once if it was offered one again.
    pub refused: u64,
}

/// A device by DPDK.
pub struct Port {
    raw: ffi::Port,
    found: Found,
    name: String,
    kernel: Option<Kernel>,
    capabilities: Capabilities,
    clock: Clock,
    /// Of the last burst: the first that was not handed on, and how many there are.
    next: u16,
    arrived: u16,
    /// When a frame last came.
    received: Instant,
    /// Since when frames wait and none is taken.
    stuck: Option<Instant>,
    /// Whether some wait.
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

    /// Its Ethernet address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.found.mac
    }

    /// What DPDK calls the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of its driver in DPDK.
    #[must_use]
    pub fn driver(&self) -> &str {
        &self.found.driver
    }

    /// The kernel's device that this one reads along on, by its number: the kernel sees all that comes, too.
    #[must_use]
    pub fn reads_along(&self) -> Option<i32> {
        let is_one = ["net_af_packet", "net_pcap"].contains(&self.driver());
        self.kernel.as_ref().filter(|_| is_one).map(|kernel| kernel.index)
    }

    /// The kernel's end of this device, by its name, if that is a TAP.
    #[must_use]
    pub fn tap(&self) -> Option<&str> {
        let kernel = self.kernel.as_ref().filter(|_| self.driver() == "net_tap");
        kernel.map(|kernel| kernel.name.as_str())
    }

    /// What is to be set elsewhere for frames to come as they are.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        self.reads_along()?;
        self.kernel.as_ref().and_then(Kernel::advice)
    }

    /// What has passed so far.
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

    /// Hands over what waits. What the device does not take for long is given up: it would hold up all else.
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

/// Of net_af_packet: the longest packet that its slots hold, which are made to hold the device's.
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

/// What the device can do, as far as that can be used.
fn usable(found: &Found) -> Abilities {
    // net_tap cuts trains of IPv4 only, and none with segments as long as its MTU allows (pmd_tx_burst).
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
                // Always a whole burst: some drivers take none out where fewer are asked for.
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
        // A burst that is full leaves first.
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

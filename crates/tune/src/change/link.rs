//! The longest train of segments that a device takes (`ip -d link`: gso_max_size,
//! gso_ipv4_max_size, gso_max_segs).

use std::fs;

use serde::{Deserialize, Serialize};

use super::State;
use crate::Error;
use crate::netns::{Handle, NetNs};
use uncork_netlink::{Line, attribute, number, push};

// linux/rtnetlink.h, linux/if_link.h
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFLA_IFNAME: u16 = 3;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
/// `struct ifinfomsg`.
const HEAD_BYTES: usize = 16;

/// The longest packet that is handed to a device, which cuts it into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trains {
    /// In bytes.
    pub gso_max_bytes: u32,
    /// In bytes, for IPv4; the kernel changes it along with the other one up to 64 KiB. `None`:
    /// this kernel (before 6.3) has no separate limit for it.
    pub gso_ipv4_max_bytes: Option<u32>,
    /// In segments. `None`: left alone.
    #[serde(default)]
    pub gso_max_segments: Option<u32>,
}

/// A device's limits, before and after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The network namespace of the device.
    pub netns: NetNs,
    /// The device's index, which stays when the device is renamed.
    pub index: i32,
    /// Its name.
    pub name: String,
    /// The limits before.
    pub before: Trains,
    /// The limits that are set.
    pub after: Trains,
}

/// A device's present state.
pub(crate) struct Device {
    pub(crate) index: i32,
    name: String,
    trains: Trains,
}

impl Link {
    /// Reads the present limits.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn plan(
        handle: &Handle,
        name: &str,
        gso_max_bytes: Option<u32>,
        gso_max_segments: Option<u32>,
    ) -> Result<Self, Error> {
        let mut device = Device::named(handle, name)?;
        device.trains = device.trains.as_far_as(gso_max_segments);
        let gso_max_bytes = gso_max_bytes.unwrap_or(device.trains.gso_max_bytes);
        let after = Trains {
            gso_max_bytes,
            gso_ipv4_max_bytes: device.trains.gso_ipv4_max_bytes.map(|_| gso_max_bytes),
            gso_max_segments,
        };
        Ok(Self {
            netns: handle.id.clone(),
            index: device.index,
            name: device.name,
            before: device.trains,
            after,
        })
    }

    pub(super) fn apply(&self, handle: &Handle) -> Result<(), Error> {
        self.set(handle, self.after)
    }

    pub(super) fn restore(&self, handle: &Handle) -> Result<(), Error> {
        self.set(handle, self.before)
    }

    /// Returns the state of the limits; `None` if the device is gone.
    pub(super) fn state(&self, handle: &Handle) -> Result<Option<State>, Error> {
        let device = match Device::numbered(handle, self.index) {
            Ok(device) => device,
            Err(error) if error.is_absent() => return Ok(self.elsewhere().map(State::Other)),
            Err(error) => return Err(error),
        };
        Ok(Some(match device.trains.as_far_as(self.after.gso_max_segments) {
            now if now == self.after => State::AsSet,
            now if now == self.before => State::AsBefore,
            now => State::Other(format!("{} of {} is {} now", NAME, device.name, now.words())),
        }))
    }

    /// Returns the network namespace that it has been moved to, if so: it takes its limits along.
    fn elsewhere(&self) -> Option<String> {
        let is_it = |handle: &Handle| {
            let trains = Device::named(handle, &self.name).ok().map(|device| device.trains);
            handle.id != self.netns
                && self.before != self.after
                && trains.map(|now| now.as_far_as(self.after.gso_max_segments)) == Some(self.after)
        };
        let handle = Handle::all().into_iter().find(is_it)?;
        let place = match handle.id.words() {
            unnamed if unnamed.is_empty() => " in another network namespace".to_owned(),
            named => named,
        };
        let (name, now, before) = (&self.name, self.after.words(), self.before.words());
        Some(format!("{name} is{place} now, where {NAME} is {now} still (it was {before})"))
    }

    /// Sets both in one message: the kernel applies neither or both while it holds its lock.
    fn set(&self, handle: &Handle, trains: Trains) -> Result<(), Error> {
        let mut body = head(self.index);
        push(&mut body, IFLA_GSO_MAX_SIZE, &trains.gso_max_bytes.to_ne_bytes());
        if let Some(bytes) = trains.gso_ipv4_max_bytes {
            push(&mut body, IFLA_GSO_IPV4_MAX_SIZE, &bytes.to_ne_bytes());
        }
        if let Some(segments) = trains.gso_max_segments {
            push(&mut body, IFLA_GSO_MAX_SEGS, &segments.to_ne_bytes());
        }
        handle
            .within(|| {
                Line::open()?.order(RTM_NEWLINK, 0, &body)?;
                // Connections keep the limits of their device until they look up their route again.
                // Where that cannot be asked for, new connections have the new limits all the same.
                let _ = fs::write("/proc/sys/net/ipv4/route/flush", "1");
                Ok(())
            })?
            .map_err(|error| Error::Netlink { what: format!("{NAME} of {}", self.name), error })
    }

    pub(super) fn words(&self) -> String {
        let (before, after) = (self.before.words(), self.after.words());
        let what = format!("{NAME} of {}", self.name);
        let netns = self.netns.words();
        if self.before == self.after {
            format!("{what} stays {before}{netns}")
        } else {
            format!("{what} from {before} to {after}{netns}")
        }
    }

    pub(super) fn words_back(&self) -> String {
        format!("{NAME} of {} back to {}{}", self.name, self.before.words(), self.netns.words())
    }
}

const NAME: &str = "gso_max_size/gso_ipv4_max_size/gso_max_segs";

impl Trains {
    /// Returns the limits as numbers of which the smaller one is the tighter.
    pub(crate) fn levels(self) -> [u64; 3] {
        let level = |limit: Option<u32>| limit.map_or(u64::MAX, u64::from);
        [self.gso_max_bytes.into(), level(self.gso_ipv4_max_bytes), level(self.gso_max_segments)]
    }

    /// Returns the limits from such numbers; one that is not set here stays as it is.
    pub(crate) fn at(self, levels: [u64; 3]) -> Self {
        let limit = |was: u32, level: u64| u32::try_from(level).unwrap_or(was);
        Self {
            gso_max_bytes: limit(self.gso_max_bytes, levels[0]),
            gso_ipv4_max_bytes: self.gso_ipv4_max_bytes.map(|was| limit(was, levels[1])),
            gso_max_segments: self.gso_max_segments.map(|was| limit(was, levels[2])),
        }
    }

    fn words(self) -> String {
        let ipv4 = self.gso_ipv4_max_bytes.map(|bytes| format!("/{bytes}")).unwrap_or_default();
        let segments = self.gso_max_segments.map(|count| format!("/{count}")).unwrap_or_default();
        format!("{}{ipv4}{segments}", self.gso_max_bytes)
    }

    /// Returns the limits without the number of segments, where that is not changed.
    fn as_far_as(self, changed: Option<u32>) -> Self {
        Self { gso_max_segments: self.gso_max_segments.filter(|_| changed.is_some()), ..self }
    }
}

impl Device {
    pub(crate) fn named(handle: &Handle, name: &str) -> Result<Self, Error> {
        let mut body = head(0);
        let mut ended = name.as_bytes().to_vec();
        ended.push(0);
        push(&mut body, IFLA_IFNAME, &ended);
        Self::asked(handle, &body, name)
    }

    fn numbered(handle: &Handle, index: i32) -> Result<Self, Error> {
        Self::asked(handle, &head(index), &format!("number {index}"))
    }

    fn asked(handle: &Handle, body: &[u8], name: &str) -> Result<Self, Error> {
        let asked = handle.within(|| Line::open()?.get(RTM_GETLINK, body))?;
        let answer = asked
            .map_err(|error| Error::Netlink { what: format!("network device {name}"), error })?;
        Self::read(&answer).ok_or_else(|| {
            Error::Unable(format!(
                "network device {name}: this kernel does not tell its gso_max_size (Linux 4.16 and \
                 later do)"
            ))
        })
    }

    fn read(answer: &[u8]) -> Option<Self> {
        let attributes = answer.get(HEAD_BYTES..)?;
        let size = |kind| attribute(attributes, kind).and_then(|value| number(value, 0));
        let name = attribute(attributes, IFLA_IFNAME)?;
        Some(Self {
            index: number(answer, 4)?.cast_signed(),
            name: String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(),
            trains: Trains {
                gso_max_bytes: size(IFLA_GSO_MAX_SIZE)?,
                gso_ipv4_max_bytes: size(IFLA_GSO_IPV4_MAX_SIZE),
                gso_max_segments: size(IFLA_GSO_MAX_SEGS),
            },
        })
    }
}

/// Returns the name of the device with this index; `None` if there is none.
pub(crate) fn name_of(handle: &Handle, index: i32) -> Result<Option<String>, Error> {
    match Device::numbered(handle, index) {
        Ok(device) => Ok(Some(device.name)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

fn head(index: i32) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head
}

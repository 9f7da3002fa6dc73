//! Finds the devices that a stack may use.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use uncork_guardian::{Address, Device};

use crate::Error;

/// A device of this network namespace, as the kernel shows it.
#[derive(Debug)]
struct Shown {
    flags: InterfaceFlags,
    /// Index and hardware address of an Ethernet device.
    ethernet: Option<(i32, [u8; 6])>,
    addresses: Vec<Address>,
}

/// Finds the devices of these names; without a name, all Ethernet devices that are up and have an address beyond link-local.
///
/// # Errors
///
/// [`Error`] says what is missing of which.
pub fn find(names: &[String]) -> Result<Vec<Device>, Error> {
    let all = look()?;
    let mut found = Vec::new();
    if names.is_empty() {
        for (name, shown) in &all {
            if is_usable(shown) {
                found.extend(device(name, shown).ok());
            }
        }
        return if found.is_empty() { Err(Error::NoDevices) } else { Ok(found) };
    }
    for name in names {
        let shown = all.get(name).ok_or_else(|| Error::NoDevice(name.clone()))?;
        let device = device(name, shown)?;
        if !found.contains(&device) {
            found.push(device);
        }
    }
    Ok(found)
}

/// Tells whether this device is here, whatever its name is by now, and whether it is up or not.
pub(crate) fn is_there(device: &Device) -> bool {
    let is_it = |shown: &Shown| shown.ethernet == Some((device.index, device.mac));
    look().is_ok_and(|all| all.values().any(is_it))
}

fn look() -> Result<BTreeMap<String, Shown>, Error> {
    let mut all: BTreeMap<String, Shown> = BTreeMap::new();
    for told in getifaddrs().map_err(Error::system("list the network devices"))? {
        let flags = told.flags;
        let shown = all.entry(told.interface_name.clone()).or_insert_with(|| Shown {
            flags,
            ethernet: None,
            addresses: Vec::new(),
        });
        shown.ethernet = shown.ethernet.or_else(|| ethernet(&told));
        shown.addresses.extend(address(&told));
    }
    Ok(all)
}

fn ethernet(told: &InterfaceAddress) -> Option<(i32, [u8; 6])> {
    let link = *told.address.as_ref()?.as_link_addr()?;
    let is_ethernet = link.hatype() == libc::ARPHRD_ETHER;
    Some((i32::try_from(link.ifindex()).ok()?, link.addr()?)).filter(|_| is_ethernet)
}

fn address(told: &InterfaceAddress) -> Option<Address> {
    let ip = ip(told.address.as_ref()?)?;
    // A mask is written as an address.
    let prefix = match self::ip(told.netmask.as_ref()?)? {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    Some(Address { ip, prefix: u8::try_from(prefix).ok()? })
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
}

fn is_usable(shown: &Shown) -> bool {
    let beyond_link = |address: &Address| match address.ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    !shown.flags.contains(InterfaceFlags::IFF_LOOPBACK) && shown.addresses.iter().any(beyond_link)
}

fn device(name: &str, shown: &Shown) -> Result<Device, Error> {
    let name = name.to_owned();
    let Some((index, mac)) = shown.ethernet else { return Err(Error::NotEthernet(name)) };
    if !shown.flags.contains(InterfaceFlags::IFF_UP) {
        return Err(Error::Down(name));
    }
    if shown.addresses.is_empty() {
        return Err(Error::NoAddress(name));
    }
    let mtu = uncork_driver::mtu_of(&name).map_err(Error::system("read the MTU of a device"))?;
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    Ok(Device { index, name, mac, mtu, addresses: shown.addresses.clone() })
}

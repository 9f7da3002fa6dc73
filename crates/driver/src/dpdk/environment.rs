//! DPDK's environment, which is started once a process, and the errors that are made of its refusals.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nix::net::if_::if_nametoindex;

use super::ffi::{self, Attached};
use super::name::{Kind, Name, has_huge_pages, missing_of_pci};
use crate::OpenError;

/// Memory for all virtual devices of the process, in MiB of address space; only what is used becomes resident.
const MEMORY_MIB: &str = "512";

/// Numbers of capabilities(7).
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;

/// The kind of device that DPDK was started for, or that the start failed.
static STARTED: Mutex<Option<Result<Kind, ()>>> = Mutex::new(None);

/// Starts DPDK and attaches the device.
pub(super) fn attach(name: &Name) -> Result<Attached, OpenError> {
    if name.kind == Kind::Pci {
        check_bus(name)?;
    }
    // Two attachments at once would mix up each other's messages.
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    match *started {
        Some(Ok(kind)) if kind == name.kind => {}
        Some(Ok(_)) => {
            return Err(OpenError::Settings(
                "DPDK starts once a process, for virtual devices or for those of the PCI bus: use one kind",
            ));
        }
        Some(Err(())) => {
            return Err(OpenError::Settings(
                "DPDK could not be started before, and tries it once a process",
            ));
        }
        None => {
            let done = start(name);
            *started = Some(done.as_ref().map(|()| name.kind).map_err(|_| ()));
            done?;
        }
    }
    ffi::said();
    let texts = (text(&name.name), text(&name.with_arguments()));
    Attached::new(&texts.0, &texts.1).map_err(|error| why_not(name, error))
}

/// Makes a C string. Names with a NUL octet were refused before this.
fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Checks a PCI device before DPDK is asked, whose own message says less.
fn check_bus(name: &Name) -> Result<(), OpenError> {
    let refused = |said: String| OpenError::Refused { device: name.name.clone(), said };
    if let Some(missing) = missing_of_pci(Path::new("/sys/bus/pci/devices"), &name.name) {
        return Err(refused(missing));
    }
    if !has_huge_pages(&fs::read_to_string("/proc/meminfo").unwrap_or_default()) {
        return Err(refused(
            "a device on the PCI bus needs huge pages, and none is free: sysctl vm.nr_hugepages=512".to_owned(),
        ));
    }
    Ok(())
}

/// Starts DPDK without any file or directory of its own: neither for memory nor for other processes to attach by.
fn start(name: &Name) -> Result<(), OpenError> {
    let prefix = format!("--file-prefix=uncork-{}", std::process::id());
    let mut arguments = vec!["uncork", "--no-telemetry", "--log-level=error", &prefix];
    match name.kind {
        // To DPDK, --no-huge and --in-memory mean different things; these options amount to the latter.
        Kind::Virtual => {
            arguments.extend(["--no-huge", "--no-shconf", "--no-pci", "-m", MEMORY_MIB]);
        }
        Kind::Pci => arguments.extend(["--in-memory", "-a", &name.name]),
    }
    let arguments = arguments.into_iter().map(text).collect();
    ffi::start(arguments)
        .map_err(|error| OpenError::System { doing: "start DPDK", error: told(error) })
}

/// Replaces an errno by DPDK's own message, which says more.
pub(super) fn told(error: io::Error) -> io::Error {
    ffi::said().map_or(error, io::Error::other)
}

/// Returns why DPDK has refused the device: what is known of it, or else what DPDK says.
fn why_not(name: &Name, error: io::Error) -> OpenError {
    let refused = |said| OpenError::Refused { device: name.name.clone(), said };
    if error.raw_os_error() == Some(libc::EEXIST) {
        return refused("it is in use in this process already".to_owned());
    }
    if let Some(missing) = missing_privilege(name) {
        return missing;
    }
    match name.argument("iface") {
        Some(device) if name.is_of("net_af_packet") && if_nametoindex(device).is_err() => {
            OpenError::NoDevice(device.to_owned())
        }
        _ => refused(ffi::said().unwrap_or_else(|| match error.raw_os_error() {
            Some(libc::ENODEV) => "it is no network device".to_owned(),
            _ => error.to_string(),
        })),
    }
}

/// Returns why an attached device could not be started.
pub(super) fn why_not_opened(name: &Name, error: io::Error) -> OpenError {
    let other = || OpenError::System { doing: "open the device by DPDK", error: told(error) };
    missing_privilege(name).unwrap_or_else(other)
}

/// Returns the privilege that the device's driver lacks; drivers themselves do not report it.
fn missing_privilege(name: &Name) -> Option<OpenError> {
    let needs = [
        ("net_af_packet", CAP_NET_RAW, "CAP_NET_RAW"),
        // It writes the address of the kernel's device to the value it has, and switches off promiscuous mode.
        ("net_af_packet", CAP_NET_ADMIN, "CAP_NET_ADMIN"),
        ("net_tap", CAP_NET_ADMIN, "CAP_NET_ADMIN"),
    ];
    let mut missing =
        needs.into_iter().filter(|(driver, number, _)| name.is_of(driver) && !is_capable(*number));
    let (_, _, capability) = missing.next()?;
    Some(OpenError::Privilege { doing: "this device of DPDK's", capability })
}

/// Whether this thread has a capability.
fn is_capable(number: u32) -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_none_or(|set| set >> number & 1 == 1)
}

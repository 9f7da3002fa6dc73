//! The privileged half, behind the traits of [`uncork_sockets`]: the guardian that `uncork run --stack` has left running.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use uncork_driver::{Beside, Door, Driver, af_packet, af_xdp};
use uncork_guardian::{Client, Entry, Error, STAY_VARIABLE, VARIABLE};
use uncork_handover as handover;
use uncork_posix::Call;
use uncork_sockets::{Attachment, Device, Host, Opened, Past, Reason, Setting};
use uncork_stack::{Cidr, Config, Detached, FastOpen, FastOpenKeys, Mac};

use super::heritage::value_of;
use crate::POSIX;
use crate::raw::raw;

/// The number of the instance that is wanted, if the guardian has instances.
const INSTANCE_VARIABLE: &str = "UNCORK_STACK_INSTANCE";

/// The guardian. It is connected to when it is first needed, which it never is in a process that only passes its listeners to its
/// children.
#[derive(Debug)]
pub(crate) struct Guardian {
    place: String,
    client: Option<Client>,
    /// Where each connection is in its table, by the number that [`Host::enter`] returned.
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// For each device number, where its queues are passed on to.
    queues: Vec<(i32, Door)>,
    /// Why some queues are not used: a sentence each.
    unused_queues: Vec<String>,
    /// Devices that could not be opened, each with the reason.
    missing_devices: Vec<String>,
    /// What the host permitted of TCP Fast Open, when that could last be read.
    fast_open: FastOpen,
}

fn reason(error: &Error) -> Reason {
    error.to_string()
}

impl Guardian {
    /// Returns the guardian that the environment named at the start.
    pub(crate) fn of_environment() -> Option<Self> {
        Some(Self::at(value_of(VARIABLE)?.to_owned()))
    }

    fn at(place: String) -> Self {
        let (entries, free, queues) = (Vec::new(), Vec::new(), Vec::new());
        let (unused_queues, fast_open) = (Vec::new(), FastOpen::default());
        let missing_devices = Vec::new();
        Self {
            place,
            client: None,
            entries,
            free,
            queues,
            unused_queues,
            missing_devices,
            fast_open,
        }
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    fn client(&mut self) -> Result<&mut Client, Reason> {
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.place).map_err(|error| reason(&error))?,
        };
        Ok(self.client.insert(client))
    }

    /// Makes the driver of a device that the guardian has handed over.
    fn driver(
        &mut self,
        device: i32,
        handed: af_packet::Handed,
    ) -> Result<(Box<dyn Driver + Send>, Mac), Reason> {
        let client = self.client()?;
        let has_queues = client.has_queues();
        let mac = Mac(handed.description.mac());
        let port = af_packet::Port::adopt(handed).map_err(|error| error.to_string())?;
        debug_assert!(port.capabilities().completes_checksums);
        if !has_queues {
            return Ok((Box::new(port), mac));
        }
        let (driver, queues) = Beside::new(port).map_err(|error| error.to_string())?;
        self.queues.push((device, queues));
        Ok((Box::new(driver), mac))
    }

    /// Passes on queues that have come. The socket of an unusable one is closed: all frames come by packet sockets then.
    fn pass_queues_on(&mut self) {
        let Some(client) = &mut self.client else { return };
        while let Some((device, handed)) = client.next_queue() {
            let Some((_, to)) = self.queues.iter().find(|(other, _)| *other == device) else {
                continue;
            };
            let brought = match af_xdp::Port::adopt(handed) {
                Ok(port) => to.bring(port).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = brought {
                self.unused_queues.push(format!("the process does without a queue: {why}"));
            }
        }
    }

    /// Makes a connection of the stack the kernel's, in a socket that the guardian makes: a program's own would have to be in
    /// repair mode, in which a program can bind and listen where another user does.
    fn take_over(&mut self, detached: &Detached, inet6: bool) -> Result<OwnedFd, Reason> {
        let taken = self.try_to_take_over(detached, inet6);
        let client = self.client()?;
        if taken.is_err() && client.attaches() {
            // The instance no longer knows of it. A connection that the kernel has is not concerned.
            let ends = (detached.snapshot.local, detached.snapshot.remote);
            let _ = client.over(&[], &[ends]);
        }
        taken
    }

    fn try_to_take_over(&mut self, detached: &Detached, inet6: bool) -> Result<OwnedFd, Reason> {
        let client = self.client()?;
        let queued = handover::queued(detached).map_err(|error| error.to_string())?;
        let taken = client.take_over(&detached.snapshot, queued, inet6);
        let socket = taken.map_err(|error| reason(&error))?;
        let sent = handover::send_rest(socket.as_fd(), detached);
        // Its queue was filled by send(2), which went through our own shim.
        POSIX.closing(socket.as_raw_fd(), Call::Close);
        sent.map_err(|error| error.to_string())?;
        Ok(socket)
    }
}

/// Returns a setting of the host, as it is now.
fn setting(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()
}

/// Attaches to an instance, which has the stack: that which the environment names, or any.
fn attach(client: &mut Client) -> Result<Attachment, Reason> {
    let wanted = match value_of(INSTANCE_VARIABLE) {
        Some(number) => {
            let number = number.parse();
            Some(number.map_err(|_| format!("{INSTANCE_VARIABLE} is no number of an instance"))?)
        }
        None => None,
    };
    let (_, control) = client.attach(wanted).map_err(|error| reason(&error))?;
    let end = uncork_attach::accept(control).map_err(|error| error.to_string())?;
    let devices = client.devices().iter().map(|device| (device.index.unsigned_abs(), device));
    let addresses = devices.clone().flat_map(|(index, device)| {
        device.addresses.iter().map(move |address| (index, address.ip))
    });
    Ok(Attachment {
        addresses: addresses.collect(),
        devices: devices.map(|(index, device)| (index, device.name.clone())).collect(),
        end,
    })
}

/// A duplicate of a descriptor, closed when dropped.
struct Own(RawFd);

impl Own {
    fn of(fd: RawFd) -> Result<Self, Reason> {
        let duplicate = |lowest: RawFd| {
            // SAFETY: no pointers.
            unsafe { raw!(SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, lowest) }
        };
        // If the program may not have such high numbers, any other one.
        let own = duplicate(super::outside::HIGH).or_else(|_| duplicate(0));
        let own = own.map_err(|error| format!("it cannot be duplicated (errno {})", error.0))?;
        Ok(Self(own as RawFd))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: no pointers; it is nobody else's.
        let _ = unsafe { raw!(SYS_close, self.0) };
    }
}

impl Host for Guardian {
    fn another(&self) -> Box<dyn Host> {
        Box::new(Self { fast_open: self.fast_open, ..Self::at(self.place.clone()) })
    }

    fn open(&mut self) -> Result<Opened, Reason> {
        let client = self.client()?;
        if client.attaches() {
            return attach(client).map(|attachment| Opened::Attached(Box::new(attachment)));
        }
        let known = client.devices().to_vec();
        let mut devices = Vec::new();
        self.missing_devices.clear();
        for device in known {
            let handed = match self.client()?.open(device.index) {
                Ok(handed) => handed,
                // Connections over that device are the kernel's; those over others need not be.
                Err(error @ Error::Refused(_)) => {
                    self.missing_devices.push(format!("{}: {}", device.name, reason(&error)));
                    continue;
                }
                Err(error) => return Err(reason(&error)),
            };
            let (driver, mac) = match self.driver(device.index, handed) {
                Ok(driver) => driver,
                // The guardian takes the device for open: without any, nothing is steered here.
                Err(why) => {
                    self.has_closed_devices();
                    return Err(format!("{}: {why}", device.name));
                }
            };
            let addresses = device.addresses.iter();
            devices.push(Device {
                name: device.name,
                index: device.index.unsigned_abs(),
                driver,
                mac,
                addresses: addresses
                    .map(|address| Cidr { address: address.ip, prefix: address.prefix })
                    .collect(),
                moderation: POSIX.settings().moderation(),
            });
        }
        match self.missing_devices.last().filter(|_| devices.is_empty()) {
            Some(why) => Err(why.clone()),
            None => Ok(Opened::Own(devices)),
        }
    }

    fn can_close_devices(&self) -> bool {
        // A queue of AF_XDP would have to go to another process.
        self.client.as_ref().is_some_and(|client| !client.attaches() && !client.has_queues())
    }

    fn has_closed_devices(&mut self) {
        if let Some(client) = &mut self.client {
            // If the guardian does not hear this, it keeps its copies until this process ends.
            let _ = client.has_closed();
        }
    }

    fn config(&mut self) -> Config {
        let mut config = Config::of_programs();
        config.follow(&setting);
        if let Some(bytes) = POSIX.settings().small_queue.bytes() {
            config.small_queue_bytes = bytes;
        }
        config
    }

    fn own(&mut self, local: SocketAddr, listening: RawFd) -> Result<(), Reason> {
        // SAFETY: the program's listener, which it does not close in the middle of its own call on it.
        let listening = unsafe { BorrowedFd::borrow_raw(listening) };
        self.client()?.own(local, listening).map_err(|error| reason(&error))
    }

    fn own_kernels(&mut self, local: SocketAddr, listening: RawFd) -> bool {
        // SAFETY: the program's listener, which it does not close in the middle of its own call on it.
        let listening = unsafe { BorrowedFd::borrow_raw(listening) };
        let Ok(client) = self.client() else { return false };
        !client.attaches() && client.own_kernels(local, listening).is_ok()
    }

    fn disown(&mut self, local: SocketAddr) {
        if let Some(client) = &mut self.client {
            // A guardian that is gone has nothing left to be disowned.
            let _ = client.disown(local);
        }
    }

    fn stays(&self) -> bool {
        value_of(STAY_VARIABLE) == Some("1")
    }

    fn has_others(&mut self, local: SocketAddr) -> bool {
        self.client.as_mut().is_some_and(|client| client.others(local).is_ok())
    }

    fn takes_turns(&mut self, local: SocketAddr) {
        if let Some(client) = &mut self.client {
            // This fails if no other process has the port.
            let _ = client.takes_turns(local);
        }
    }

    fn renounces(&mut self, local: SocketAddr) {
        if let Some(client) = &mut self.client {
            // If this fails, connections to that port stay on the stack.
            let _ = client.renounces(local);
        }
    }

    fn pass_on(&mut self, local: SocketAddr, waiting: OwnedFd) -> Result<(), Reason> {
        self.client()?.pass_on(local, waiting.as_fd()).map_err(|error| reason(&error))
    }

    fn to_kernel(
        &mut self,
        detached: &Detached,
        inet6: bool,
        settings: &[Setting],
    ) -> Result<OwnedFd, Reason> {
        let socket = self.take_over(detached, inet6)?;
        super::handing::set_all(socket.as_raw_fd(), settings);
        Ok(socket)
    }

    fn next_passed(&mut self) -> Option<(SocketAddr, OwnedFd)> {
        // They may also have come together with an answer.
        self.pass_queues_on();
        self.client.as_mut()?.next_passed()
    }

    fn next_kernels(&mut self) -> Option<SocketAddr> {
        self.client.as_mut()?.next_kernels()
    }

    fn next_asker(&mut self) -> Option<OwnedFd> {
        self.client.as_mut()?.next_asker()
    }

    fn missing_devices(&self) -> &[String] {
        &self.missing_devices
    }

    fn unused_queues(&self) -> &[String] {
        &self.unused_queues
    }

    fn own_connection(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        bound: RawFd,
    ) -> Result<(), Reason> {
        // SAFETY: the socket of the connect(2) that is being made.
        let bound = unsafe { BorrowedFd::borrow_raw(bound) };
        self.client()?.own_connection(local, remote, bound).map_err(|error| reason(&error))
    }

    fn reserve(
        &mut self,
        from: IpAddr,
        remote: SocketAddr,
        wanted: u16,
        socket: RawFd,
    ) -> Result<u32, Reason> {
        let client = self.client()?;
        // SAFETY: the socket of the connect(2) that is being made.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        client.reserve(from, remote, wanted, socket).map_err(|error| reason(&error))
    }

    fn reserved(&mut self, asked: u32) -> Result<Vec<u16>, Reason> {
        self.client()?.reserved(asked).map_err(|error| reason(&error))
    }

    fn are_past(&mut self, past: Past) -> bool {
        let Some(client) = &mut self.client else { return true };
        let Past { closed, mut over, mut unused } = past;
        let said = if client.attaches() {
            // What belongs to an instance is its to give back.
            client.over(&[], &unused)
        } else {
            over.append(&mut unused);
            client.over(&closed, &over)
        };
        // A guardian that is gone has nothing left of them.
        !matches!(said, Err(Error::Slow(_)))
    }

    fn forsake(&mut self, asked: u32) {
        if let Some(client) = &mut self.client {
            client.forsake(asked);
        }
    }

    fn settle(&mut self) {
        if let Some(client) = &mut self.client {
            let _ = client.settle();
        }
    }

    fn disown_connection(&mut self, local: SocketAddr, remote: SocketAddr) {
        // What belongs to an instance is its to give back.
        if let Some(client) = self.client.as_mut().filter(|client| !client.attaches()) {
            let _ = client.disown_connection(local, remote);
        }
    }

    fn bring(&mut self, (local, remote): (SocketAddr, SocketAddr), fd: RawFd, segment: &[u8]) {
        // Another thread may have closed the program's descriptor by now. If another socket has the number, the guardian refuses.
        let (Some(client), Ok(own)) = (&mut self.client, Own::of(fd)) else { return };
        // SAFETY: it is open for as long as `own` lives.
        let socket = unsafe { BorrowedFd::borrow_raw(own.0) };
        let _ = client.bring(local, remote, segment, socket);
    }

    fn let_go(&mut self, detached: &Detached) -> Result<(), Reason> {
        let inet6 = detached.snapshot.local.is_ipv6();
        // Closed after this, the socket belongs to no process, and goes on sending.
        self.take_over(detached, inet6).map(drop)
    }

    fn wakes(&self) -> Option<RawFd> {
        self.client.as_ref().map(|client| client.as_fd().as_raw_fd())
    }

    fn is_gone(&mut self) -> bool {
        let gone = self.client.as_mut().is_some_and(|client| client.check().is_err());
        self.pass_queues_on();
        if gone {
            // Its descriptor would be readable for ever.
            self.quit();
        }
        gone
    }

    fn is_to_be_left(&mut self) -> bool {
        self.client.as_ref().is_some_and(Client::is_to_be_left)
    }

    fn quit(&mut self) {
        self.client = None;
    }

    fn enter(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let entry = self.client.as_ref()?.connections().enter(local, remote)?;
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.entries.push(None);
                u32::try_from(self.entries.len() - 1).ok()?
            }
        };
        self.entries[at as usize] = Some(entry);
        Some(at)
    }

    fn fast_open(&mut self) -> FastOpen {
        let told = setting("tcp_fastopen");
        // If the settings cannot be read any more (chroot), the last ones count; if they never could, Linux's defaults.
        self.fast_open = told.as_deref().and_then(FastOpen::of_sysctl).unwrap_or(self.fast_open);
        self.fast_open
    }

    fn fast_open_keys(&mut self) -> Option<FastOpenKeys> {
        self.client().ok()?.fast_open_keys().ok()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.client.iter().map(|client| client.as_fd().as_raw_fd()).collect()
    }

    fn leave(&mut self, entry: u32) {
        let Some(found) = self.entries.get_mut(entry as usize).and_then(Option::take) else {
            return;
        };
        self.free.push(entry);
        if let Some(client) = &self.client {
            client.connections().remove(found);
        }
    }
}

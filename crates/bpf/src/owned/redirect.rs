//! Handing what is one engine's over to sockets of AF_XDP.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, OpenObject};

use super::{DROP, Engine, Error, Owned, REDIRECT, SOCKETS, TAKE, link, map, program};

// asm-generic/errno.h.
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;

/// What of a device decides how its frames are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// How many there are. What comes by one that has no socket ([`Redirect::enter`]) is lost.
    pub count: u32,
    /// Whether a word is left right before each frame that says what is known of its checksum: for veth, which
    /// hands on frames whose checksum is not filled in (`Nature::marks` of uncork-driver).
    pub marks: bool,
}

/// The program that hands over what is one engine's, and its table of sockets. It is detached when this is
/// dropped or the process ends.
pub struct Redirect {
    program: OwnedFd,
    sockets: MapHandle,
    link: Option<OwnedFd>,
}

impl std::fmt::Debug for Redirect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redirect").field("link", &self.link).finish_non_exhaustive()
    }
}

/// Kernels need not have what only sockets of AF_XDP want.
pub(super) fn leave_out(object: &mut OpenObject) -> Result<(), Error> {
    for mut map in object.maps_mut().filter(|map| map.name() == SOCKETS) {
        map.set_autocreate(false)?;
    }
    for mut program in object.progs_mut().filter(|program| program.name() == REDIRECT) {
        program.set_autoload(false);
    }
    Ok(())
}

impl Owned {
    /// Loads the program that hands what is this engine's over to sockets of AF_XDP.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn redirect_for(&self, engine: Engine, queues: Queues) -> Result<Redirect, Error> {
        let mut object = self.open_another(engine, queues.marks)?;
        for mut program in object.progs_mut() {
            if program.name() == DROP || program.name() == TAKE {
                program.set_autoload(false);
            }
        }
        for mut map in object.maps_mut().filter(|map| map.name() == SOCKETS) {
            map.set_max_entries(queues.count.max(1))?;
        }
        let object = object.load()?;
        let (program, sockets) = (program(&object, REDIRECT)?, map(&object, SOCKETS)?);
        Ok(Redirect { program, sockets, link: None })
    }
}

impl Redirect {
    /// What comes by this queue goes to this socket, which is bound to it.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn enter(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let fd = socket.as_raw_fd().to_ne_bytes();
        Ok(self.sockets.update(&queue.to_ne_bytes(), &fd, MapFlags::ANY)?)
    }

    /// Begins to hand over, of what comes into the device of this number in the network namespace of this
    /// thread. It is done by the device's driver; a program that is there already stays, and this fails.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn attach(&mut self, device: i32) -> Result<(), Error> {
        let link = link::attach_xdp(self.program.as_fd(), device).map_err(|error| {
            match (error.kind(), error.raw_os_error()) {
                (io::ErrorKind::PermissionDenied, _) => Error::Privilege,
                (_, Some(ENODEV)) => Error::NoDevice(device),
                (_, Some(EBUSY | EEXIST)) => {
                    Error::Occupied { device, program: link::xdp_program(device).unwrap_or(0) }
                }
                (_, Some(EOPNOTSUPP)) => Error::NoXdp(device),
                _ => Error::System(error),
            }
        })?;
        self.link = Some(link);
        Ok(())
    }
}

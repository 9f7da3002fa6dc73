//! Handing what is one engine's over to sockets of AF_XDP.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, OpenObject};

use super::layout::Constants;
use super::programs::load_only;
use super::{Engine, Error, KERNEL, Owned, link, map, program, unless_absent};

/// Kernels need not have what only sockets of AF_XDP want: it is apart.
pub(super) const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

const REDIRECT: &str = "redirect_owned";
const REDIRECT_BY_QUEUE: &str = "redirect_by_queue";
const SOCKETS: &str = "sockets";
const ENGINES: &str = "engines";

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

/// The same for several engines, each of which has queues of its own, and a packet socket by which it gets what comes
/// by others.
#[derive(Debug)]
pub struct RedirectByQueue {
    redirect: Redirect,
    engines: MapHandle,
}

/// Of both programs, only this one; and its maps for so many queues.
fn only(object: &mut OpenObject, name: &str, queues: Queues) -> Result<(), Error> {
    load_only(object, &[name]);
    for mut map in object.maps_mut() {
        if map.name() == SOCKETS || map.name() == ENGINES {
            map.set_max_entries(queues.count.max(1))?;
        }
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
        let constants = Constants { marks: queues.marks, ..self.programs.constants(engine) };
        let mut object = self.programs.open(OBJECT, constants)?;
        only(&mut object, REDIRECT, queues)?;
        let object = object.load()?;
        let (program, sockets) = (program(&object, REDIRECT)?, map(&object, SOCKETS)?);
        Ok(Redirect { program, sockets, link: None })
    }

    /// Loads the program that hands over, of what comes by each queue, what is the engine's that has it.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn redirect_by_queue(&self, queues: Queues) -> Result<RedirectByQueue, Error> {
        // Which engine it is for is said of each queue.
        let constants = Constants { marks: queues.marks, ..self.programs.constants(Engine::ONLY) };
        let mut object = self.programs.open(OBJECT, constants)?;
        only(&mut object, REDIRECT_BY_QUEUE, queues)?;
        let object = object.load()?;
        let (program, sockets) = (program(&object, REDIRECT_BY_QUEUE)?, map(&object, SOCKETS)?);
        let redirect = Redirect { program, sockets, link: None };
        Ok(RedirectByQueue { redirect, engines: map(&object, ENGINES)? })
    }
}

impl RedirectByQueue {
    /// What comes by this queue and is this engine's goes to this socket, which is bound to the queue.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn enter(&self, queue: u32, engine: Engine, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.redirect.enter(queue, socket)?;
        let engine = engine.0.get().to_ne_bytes();
        Ok(self.engines.update(&queue.to_ne_bytes(), &engine, MapFlags::ANY)?)
    }

    /// What comes by this queue goes to packet sockets alone.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn leave(&self, queue: u32) -> Result<(), Error> {
        let queue = queue.to_ne_bytes();
        self.engines.update(&queue, &KERNEL.to_ne_bytes(), MapFlags::ANY)?;
        // When the socket is closed the kernel takes it out by itself.
        unless_absent(self.redirect.sockets.delete(&queue))
    }

    /// Begins to hand over ([`Redirect::attach`]).
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn attach(&mut self, device: i32) -> Result<(), Error> {
        self.redirect.attach(device)
    }

    /// Whether it hands over.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.redirect.link.is_some()
    }

    /// Hands over no more: the device is free for another's program.
    pub fn detach(&mut self) {
        self.redirect.link = None;
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

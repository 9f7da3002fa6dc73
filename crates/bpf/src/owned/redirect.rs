//! Redirects an engine's frames to AF_XDP sockets.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, OpenObject};

use super::layout::Constants;
use super::programs::load_only;
use super::{Engine, Error, KERNEL, Owned, link, map, program, unless_absent};

/// Kernels may lack what only AF_XDP needs, so these programs are an object of their own.
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

/// The properties of a device that decide how its frames are redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// Number of queues. Frames for the engine that come by a queue without a socket ([`Redirect::enter`]) are lost.
    pub count: u32,
    /// Whether a word is written right before each frame that says what is known of its checksum: for veth, which
    /// delivers frames whose checksum is not filled in (`Nature::marks` of uncork-driver).
    pub marks: bool,
}

/// The program that redirects one engine's frames, and its table of sockets. It is detached when this is
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

/// The same program for several engines, each of which has queues of its own, and a packet socket that receives what
/// comes by other queues.
#[derive(Debug)]
pub struct RedirectByQueue {
    redirect: Redirect,
    engines: MapHandle,
}

/// Selects only this one of the two programs, and sizes its maps for the number of queues.
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
    /// Loads the program that redirects this engine's frames to AF_XDP sockets.
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

    /// Loads the program that redirects, of the frames of each queue, those of the engine that has the queue.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn redirect_by_queue(&self, queues: Queues) -> Result<RedirectByQueue, Error> {
        // The engine is entered for each queue, not as a constant.
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
    /// Redirects this engine's frames that come by this queue to this socket, which is bound to the queue.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn enter(&self, queue: u32, engine: Engine, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.redirect.enter(queue, socket)?;
        let engine = engine.0.get().to_ne_bytes();
        Ok(self.engines.update(&queue.to_ne_bytes(), &engine, MapFlags::ANY)?)
    }

    /// Stops redirection of this queue: its frames reach packet sockets alone.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn leave(&self, queue: u32) -> Result<(), Error> {
        let queue = queue.to_ne_bytes();
        self.engines.update(&queue, &KERNEL.to_ne_bytes(), MapFlags::ANY)?;
        // When the socket is closed the kernel removes it by itself.
        unless_absent(self.redirect.sockets.delete(&queue))
    }

    /// Begins to redirect ([`Redirect::attach`]).
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn attach(&mut self, device: i32) -> Result<(), Error> {
        self.redirect.attach(device)
    }

    /// Whether the program is attached.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.redirect.link.is_some()
    }

    /// Stops redirecting: the device is free for another program.
    pub fn detach(&mut self) {
        self.redirect.link = None;
    }
}

impl Redirect {
    /// Redirects the engine's frames that come by this queue to this socket, which is bound to it.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn enter(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let fd = socket.as_raw_fd().to_ne_bytes();
        Ok(self.sockets.update(&queue.to_ne_bytes(), &fd, MapFlags::ANY)?)
    }

    /// Begins to redirect received frames of the device with this index in the network namespace of this
    /// thread. The device's driver does it; if an XDP program is attached already, that stays, and this fails.
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

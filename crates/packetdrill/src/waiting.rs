//! The calls that may block.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use nix::errno::Errno;
use uncork_packet::Instant;

use crate::table::Address;
use crate::world::{Shared, World};

impl Shared {
    /// accept(2).
    pub(crate) fn accept(&self, fd: RawFd) -> Result<(RawFd, SocketAddr), Errno> {
        let waits = self.call(|world| world.waits(fd, 0))?;
        self.wait(waits, None, |world| world.accept(fd))
    }

    /// connect(2).
    pub(crate) fn connect(&self, fd: RawFd, to: Address) -> Result<(), Errno> {
        let waits = self.call(|world| world.waits(fd, 0))?;
        match self.call(|world| world.begin_connect(fd, to)) {
            Err(Errno::EINPROGRESS) if waits => {
                self.wait(true, None, |world| world.finish_connect(fd))
            }
            result => result,
        }
    }

    /// send(2) and related calls: all octets if the call may block, otherwise those that there is
    /// room for. On a connection `to` is ignored (send(2)).
    pub(crate) fn transmit(
        &self,
        fd: RawFd,
        bytes: &[u8],
        flags: i32,
        to: Option<Address>,
    ) -> Result<usize, Errno> {
        let waits = self.call(|world| world.waits(fd, flags))?;
        let fast = flags & libc::MSG_FASTOPEN != 0;
        let flags = flags & !libc::MSG_FASTOPEN;
        let deferred = self.call(|world| Ok(world.table.socket(fd)?.deferred))?;
        let deferred = if deferred {
            true
        } else if fast {
            // Without a destination there is nothing to open (tcp_sendmsg_fastopen).
            let to = to.flatten().ok_or(Errno::EOPNOTSUPP)?;
            match self.call(|world| world.begin(fd, Some(to), true)) {
                Ok(()) => true,
                Err(Errno::EINPROGRESS) => {
                    self.wait(waits, None, |world| world.finish_connect(fd)).map_err(begun)?;
                    false
                }
                Err(error) => return Err(error),
            }
        } else {
            false
        };
        if deferred {
            return self.transmit_with_syn(fd, bytes, flags, waits);
        }
        self.transmit_all(fd, bytes, flags, waits)
    }

    /// Sends the first data of a connection, which leave with its SYN.
    fn transmit_with_syn(
        &self,
        fd: RawFd,
        bytes: &[u8],
        flags: i32,
        waits: bool,
    ) -> Result<usize, Errno> {
        let sent = if bytes.is_empty() {
            self.call(|world| world.launch(fd))?;
            0
        } else {
            self.call(|world| world.send(fd, bytes, flags))?
        };
        if !waits {
            return if sent > 0 { Ok(sent) } else { Err(Errno::EINPROGRESS) };
        }
        let rest = &bytes[sent..];
        if !rest.is_empty() {
            self.call(|world| world.note_writer(fd))?;
        }
        self.wait(true, None, |world| world.finish_connect(fd))?;
        if rest.is_empty() {
            return Ok(sent);
        }
        Ok(sent + self.transmit_all(fd, rest, flags, waits)?)
    }

    fn transmit_all(
        &self,
        fd: RawFd,
        bytes: &[u8],
        flags: i32,
        waits: bool,
    ) -> Result<usize, Errno> {
        let mut sent = 0;
        let result = self.wait(waits, None, |world| {
            loop {
                sent += world.send(fd, &bytes[sent..], flags)?;
                if sent == bytes.len() {
                    return Ok(sent);
                }
                // Data that leave meanwhile make room, as in tcp_sendmsg.
                world.drive();
            }
        });
        // Octets that were taken before an error count as sent.
        if sent > 0 { Ok(sent) } else { result }
    }

    /// recv(2) and related calls.
    pub(crate) fn receive(&self, fd: RawFd, into: &mut [u8], flags: i32) -> Result<usize, Errno> {
        let waits = self.call(|world| world.waits(fd, flags))?;
        self.wait(waits, None, |world| world.recv(fd, into, flags))
    }

    /// poll(2): returns the readiness of each descriptor.
    pub(crate) fn poll(&self, wanted: &[(RawFd, i16)], millis: i32) -> Vec<i16> {
        let mut ready = Vec::new();
        let until = self.until(millis);
        let _ = self.wait(millis != 0, until, |world| {
            ready = wanted.iter().map(|&(fd, events)| told(world, fd, events)).collect();
            if ready.iter().any(|&one| one != 0) { Ok(()) } else { Err(Errno::EAGAIN) }
        });
        ready
    }

    /// epoll_wait(2): returns events and data.
    pub(crate) fn epoll_wait(
        &self,
        set: RawFd,
        most: usize,
        millis: i32,
    ) -> Result<Vec<(u32, u64)>, Errno> {
        let until = self.until(millis);
        let result = self.wait(millis != 0, until, |world| {
            let mut told = Vec::new();
            for fd in world.table.epoll(set)?.descriptors() {
                let ready = u32::from(world.readiness(fd)?.cast_unsigned());
                told.extend(world.table.epoll(set)?.tell(fd, ready));
                if told.len() == most {
                    break;
                }
            }
            if told.is_empty() { Err(Errno::EAGAIN) } else { Ok(told) }
        });
        match result {
            Err(Errno::EAGAIN) => Ok(Vec::new()),
            result => result,
        }
    }

    /// Returns the end of a timeout in milliseconds; `None` if it is negative.
    fn until(&self, millis: i32) -> Option<Instant> {
        let millis = u64::try_from(millis).ok()?;
        self.call(|world| Ok(world.now + Duration::from_millis(millis))).ok()
    }
}

/// Converts the error of a connect(2) that is still in progress.
fn begun(error: Errno) -> Errno {
    if error == Errno::EAGAIN { Errno::EINPROGRESS } else { error }
}

/// Returns poll(2)'s result for one descriptor.
fn told(world: &mut World, fd: RawFd, events: i16) -> i16 {
    let always = libc::POLLERR | libc::POLLHUP;
    world.readiness(fd).map_or(libc::POLLNVAL, |ready| ready & (events | always))
}

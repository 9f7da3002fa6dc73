//! Several queues of one device for one engine.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use uncork_packet::{Capabilities, Completion, Received, Transmit};

use super::port::Port;
use crate::{Driver, Kick, Offer, OpenError};

/// All queues of a device, polled in turn. Everything is sent by the first, which preserves its order.
#[derive(Debug)]
pub struct Queues {
    /// The ports, at least one.
    ports: Vec<Port>,
    /// The port whose turn it is.
    next: usize,
    /// Epoll sets over frames and completions of each port, and over frames only.
    any: Epoll,
    frames: Epoll,
}

impl Queues {
    /// Joins ports that are on one device.
    ///
    /// # Errors
    ///
    /// If `ports` is empty, or there are no descriptors left.
    pub fn new(ports: Vec<Port>) -> Result<Self, OpenError> {
        if ports.is_empty() {
            return Err(OpenError::Settings("a device has at least one queue to be used"));
        }
        let sets = || {
            let any = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            let frames = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            for port in &ports {
                let readable = || EpollEvent::new(EpollFlags::EPOLLIN, 0);
                frames.add(port.socket(), readable())?;
                if let Some(fd) = port.wakes() {
                    any.add(fd, readable())?;
                }
            }
            Ok((any, frames))
        };
        let (any, frames) = sets().map_err(|error: nix::Error| {
            OpenError::system("make the sets that wake (epoll)")(error.into())
        })?;
        Ok(Self { ports, next: 0, any, frames })
    }

    /// The ports.
    #[must_use]
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }
}

impl Driver for Queues {
    fn capabilities(&self) -> Capabilities {
        self.ports[0].capabilities()
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        let mut received = 0;
        for _ in 0..self.ports.len() {
            received += self.ports[self.next].receive(budget - received, each)?;
            self.next = (self.next + 1) % self.ports.len();
            if received >= budget {
                break;
            }
        }
        Ok(received)
    }

    fn has_frames(&mut self) -> bool {
        self.ports.iter_mut().any(Driver::has_frames)
    }

    fn is_filling(&mut self) -> bool {
        self.ports.iter_mut().any(Driver::is_filling)
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        self.ports.iter_mut().try_for_each(|port| port.complete(each))
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        self.ports[0].offer(fill)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ports[0].flush()
    }

    fn flush_later(&mut self) -> io::Result<Option<Kick>> {
        self.ports[0].flush_later()
    }

    fn settle(&self) {
        self.ports[0].settle();
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        // Each port arms what it wakes by.
        for port in &self.ports {
            port.wakes();
        }
        Some(self.any.0.as_fd())
    }

    fn wakes_for_frames(&self) -> Option<BorrowedFd<'_>> {
        if self.ports.iter().any(Port::needs_looking_after) {
            return self.wakes();
        }
        for port in &self.ports {
            port.wakes_for_frames();
        }
        Some(self.frames.0.as_fd())
    }
    fn rest_at_most(&self) -> Option<Duration> {
        self.ports.iter().filter_map(Driver::rest_at_most).min()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let sets = [&self.any, &self.frames].map(|set| set.0.as_raw_fd());
        self.ports.iter().flat_map(Driver::descriptors).chain(sets).collect()
    }

    fn lost(&mut self) -> Option<u64> {
        self.ports.iter_mut().map(Driver::lost).sum()
    }
}

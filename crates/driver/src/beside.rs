//! A packet socket, and beside it sockets of AF_XDP on some of the device's queues.
//!
//! Where several engines share a device, what an XDP program can hand over depends on the queue that a frame has come
//! by, and whose it is does not (uncork-bpf, `RedirectByQueue`). So each engine has a packet socket that brings all that
//! is its, and what comes by a queue of its own comes a shorter way. All leaves by the packet socket, in trains and in
//! order.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use uncork_packet::{Capabilities, Completion, Received, Transmit};

use crate::{Driver, Offer, OpenError, Redirected, af_packet, af_xdp};

/// A device by a packet socket, with queues that may come at any time.
#[derive(Debug)]
pub struct Beside {
    packets: af_packet::Port,
    queues: Vec<af_xdp::Port>,
    come: Receiver<af_xdp::Port>,
    /// Whose turn it is: the packet socket's, or one of the queues'.
    next: usize,
    /// Over what wakes for frames and completions, and for frames only. Queues come into both.
    any: Epoll,
    frames: Epoll,
    /// Frames that came by queues.
    redirected: u64,
}

impl Beside {
    /// Uses a packet socket, and the queues of its device that are sent by what this gives, from whichever thread.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn new(packets: af_packet::Port) -> Result<(Self, Sender<af_xdp::Port>), OpenError> {
        let sets = || {
            let any = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            let frames = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            if let Some(fd) = packets.wakes() {
                any.add(fd, readable())?;
            }
            frames.add(packets.socket(), readable())?;
            Ok((any, frames))
        };
        let (any, frames) = sets().map_err(|error: nix::Error| {
            OpenError::system("make the sets that wake (epoll)")(error.into())
        })?;
        let (sender, come) = channel();
        let queues = Vec::new();
        Ok((Self { packets, queues, come, next: 0, any, frames, redirected: 0 }, sender))
    }

    fn take_in(&mut self, queue: af_xdp::Port) -> io::Result<()> {
        self.any.add(queue.socket(), readable())?;
        self.frames.add(queue.socket(), readable())?;
        self.queues.push(queue);
        Ok(())
    }

    /// From that one, of which the first is the packet socket.
    fn receive_from(
        &mut self,
        source: usize,
        budget: usize,
        each: &mut dyn FnMut(Received<'_>),
    ) -> io::Result<usize> {
        let Some(queue) = source.checked_sub(1) else { return self.packets.receive(budget, each) };
        let received = self.queues[queue].receive(budget, each)?;
        self.redirected += received as u64;
        Ok(received)
    }
}

fn readable() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, 0)
}

impl Driver for Beside {
    fn capabilities(&self) -> Capabilities {
        self.packets.capabilities()
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        let sources = 1 + self.queues.len();
        let mut received = 0;
        for _ in 0..sources {
            received += self.receive_from(self.next, budget - received, each)?;
            self.next = (self.next + 1) % sources;
            if received >= budget {
                break;
            }
        }
        Ok(received)
    }

    fn has_frames(&mut self) -> bool {
        self.packets.has_frames() || self.queues.iter_mut().any(Driver::has_frames)
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        while let Ok(queue) = self.come.try_recv() {
            self.take_in(queue)?;
        }
        self.packets.complete(each)
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        self.packets.offer(fill)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.packets.flush()
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        // It makes ready what it wakes by.
        self.packets.wakes();
        Some(self.any.0.as_fd())
    }

    fn wakes_for_frames(&self) -> Option<BorrowedFd<'_>> {
        let socket = self.packets.socket().as_raw_fd();
        match self.packets.wakes_for_frames() {
            Some(fd) if fd.as_raw_fd() == socket => Some(self.frames.0.as_fd()),
            // It needs more than its frames.
            _ => Some(self.any.0.as_fd()),
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.packets.descriptors();
        all.extend(self.queues.iter().flat_map(Driver::descriptors));
        all.extend([&self.any, &self.frames].map(|set| set.0.as_raw_fd()));
        all
    }

    fn redirected(&self) -> Option<Redirected> {
        let queues = self.queues.iter().map(af_xdp::Port::queue).collect();
        Some(Redirected { queues, frames: self.redirected })
    }
}

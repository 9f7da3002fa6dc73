//! A packet socket, and beside it AF_XDP sockets on some of the device's queues.
//!
//! Where several engines share a device, what an XDP program can redirect depends on the queue by which a frame has
//! come, but its owner does not (uncork-bpf, `RedirectByQueue`). So each engine has a packet socket that receives all of
//! its frames, and those that come by a queue of its own take a shorter path. Everything is sent by the packet socket,
//! in trains and in order.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use uncork_high::high;
use uncork_packet::{Capabilities, Completion, Received, Transmit};

use crate::{Driver, Kick, Offer, OpenError, Redirected, af_packet, af_xdp};

/// Epoll sets over frames and completions, and over frames only. Queues are added to both.
#[derive(Debug)]
struct Wakes {
    any: Epoll,
    frames: Epoll,
}

impl Wakes {
    fn new(packets: &af_packet::Port) -> nix::Result<Self> {
        let set = || Ok(Epoll(high(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?.0)));
        let (any, frames) = (set()?, set()?);
        if let Some(fd) = packets.wakes() {
            any.add(fd, readable())?;
        }
        frames.add(packets.socket(), readable())?;
        Ok(Self { any, frames })
    }
}

/// The sender by which any thread adds queues to a [`Beside`].
#[derive(Debug)]
pub struct Door {
    queues: Sender<af_xdp::Port>,
    wakes: Arc<Wakes>,
}

impl Door {
    /// Adds a queue of the device. From now on it wakes threads that sleep on the driver.
    ///
    /// # Errors
    ///
    /// If it cannot wake anybody, or the driver is gone: then no frames may be redirected to the queue.
    pub fn bring(&self, queue: af_xdp::Port) -> io::Result<()> {
        self.wakes.any.add(queue.socket(), readable())?;
        self.wakes.frames.add(queue.socket(), readable())?;
        self.queues.send(queue).map_err(|_| io::ErrorKind::NotConnected.into())
    }
}

/// A device by a packet socket, with queues that may be added at any time.
#[derive(Debug)]
pub struct Beside {
    packets: af_packet::Port,
    queues: Vec<af_xdp::Port>,
    come: Receiver<af_xdp::Port>,
    /// Whose turn it is: the packet socket's, or one of the queues'.
    next: usize,
    wakes: Arc<Wakes>,
    /// Frames that came by the queues.
    redirected: u64,
}

impl Beside {
    /// Uses a packet socket, and the queues of its device that come through the door.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn new(packets: af_packet::Port) -> Result<(Self, Door), OpenError> {
        let wakes = Wakes::new(&packets)
            .map_err(|error| OpenError::system("make the sets that wake (epoll)")(error.into()))?;
        let wakes = Arc::new(wakes);
        let (sender, come) = channel();
        let door = Door { queues: sender, wakes: Arc::clone(&wakes) };
        let queues = Vec::new();
        Ok((Self { packets, queues, come, next: 0, wakes, redirected: 0 }, door))
    }

    /// Receives from one source, the first of which is the packet socket.
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
        // The memory of a queue's frames was laid out for the MTU at the time: a longer frame would be lost there.
        let capabilities = self.packets.capabilities();
        let mtus = self.queues.iter().map(|queue| queue.capabilities().mtu);
        Capabilities { mtu: mtus.fold(capabilities.mtu, u16::min), ..capabilities }
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        self.queues.extend(self.come.try_iter());
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
        self.queues.extend(self.come.try_iter());
        self.packets.has_frames() || self.queues.iter_mut().any(Driver::has_frames)
    }

    fn lost(&mut self) -> Option<u64> {
        let queues = self.queues.iter_mut().filter_map(Driver::lost).sum::<u64>();
        Some(self.packets.lost()? + queues)
    }

    fn is_filling(&mut self) -> bool {
        self.packets.is_filling() || self.queues.iter_mut().any(Driver::is_filling)
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        self.packets.complete(each)
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        self.packets.offer(fill)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.packets.flush()
    }

    fn flush_later(&mut self) -> io::Result<Option<Kick>> {
        self.packets.flush_later()
    }

    fn settle(&self) {
        self.packets.settle();
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        // The port arms what it wakes by.
        self.packets.wakes();
        Some(self.wakes.any.0.as_fd())
    }

    fn wakes_for_frames(&self) -> Option<BorrowedFd<'_>> {
        let socket = self.packets.socket().as_raw_fd();
        match self.packets.wakes_for_frames() {
            Some(fd) if fd.as_raw_fd() == socket => Some(self.wakes.frames.0.as_fd()),
            // The port needs to be woken by more than frames.
            _ => Some(self.wakes.any.0.as_fd()),
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.packets.descriptors();
        all.extend(self.queues.iter().flat_map(Driver::descriptors));
        all.extend([&self.wakes.any, &self.wakes.frames].map(|set| set.0.as_raw_fd()));
        all
    }

    fn redirected(&self) -> Option<Redirected> {
        let queues = self.queues.iter().map(af_xdp::Port::queue).collect();
        Some(Redirected { queues, frames: self.redirected })
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, Result};
    use uncork_netns::{Namespace, testing};

    use super::*;

    /// Whether a call is made about a queue beside a packet socket while nothing is received. The device is down by
    /// then, which is what the call would say.
    fn calls(zero_copy: bool, asks: bool) -> Result<bool> {
        let namespace = Namespace::new("besidecalls")?;
        namespace.ip("link add eth0 type veth peer name eth1")?;
        namespace.ip("link set eth0 up")?;
        namespace.ip("link set eth1 up")?;
        let (packets, queue) = namespace.within(|| {
            let packets = af_packet::Port::open(&af_packet::Settings::new("eth0"), None)?;
            Ok((packets, af_xdp::Port::open(&af_xdp::Settings::new("eth0"))?))
        })?;
        let (mut beside, door) = Beside::new(packets)?;
        door.bring(queue)?;
        while beside.receive(64, &mut |_| ())? > 0 {}
        namespace.ip("link set eth0 down")?;
        beside.queues.first_mut().context("it has not come")?.pretend(zero_copy, asks);
        while beside.receive(64, &mut |_| ())? > 0 {}
        Ok(beside.queues.first().context("it is gone")?.needs_looking_after())
    }

    #[test]
    fn a_queue_whose_driver_waits_for_memory_is_called_though_nothing_comes() -> Result<()> {
        let name = "a_queue_whose_driver_waits_for_memory_is_called_though_nothing_comes";
        if testing::is_skipped(name) {
            return Ok(());
        }
        assert!(calls(true, true)?, "nobody has called");
        assert!(!calls(true, false)?, "a call for which nobody waits");
        assert!(!calls(false, true)?, "a call of no effect where the kernel copies");
        Ok(())
    }
}

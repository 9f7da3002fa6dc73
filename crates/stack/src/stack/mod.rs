//! A stack: connections and listeners over one device, and the order in which they are processed.

mod arrive;
mod detach;
mod device;
mod ending;
mod fast_open;
mod follow;
pub(crate) mod given_up;
pub(crate) mod join;
mod listen;
mod open;
mod predict;
mod readiness;
mod settle;
mod shared;
mod sockets;
mod transmit;
mod udp;

use std::collections::VecDeque;

use uncork_packet::{Capabilities, Completion, Instant, Received};
use uncork_wire::ethernet::Mac;
use uncork_wire::icmpv6::Listening;

pub use detach::{Detached, Snapshot, SnapshotState};
pub use fast_open::FastConnect;
pub use sockets::{ConnectError, Shutdown};

use crate::config::Config;
use crate::connection::{Bounds, Connection, Population};
use crate::context::Context;
use crate::counters::Counters;
use crate::demux::Demux;
use crate::event::{Change, Event};
use crate::fast_open::FastOpenState;
use crate::handle::{ListenerId, SocketId};
use crate::interface::{Cidr, Interface, Route};
use crate::listener::Listeners;
use crate::memory::{Pool, Queue, Slab};
use crate::requests::Requests;
use crate::secrets::Secrets;
use crate::timer::Wheel;
use crate::udp::table::Sockets;
use crate::units::MaybeInstant;

/// A TCP/IP stack over one device.
#[derive(Debug)]
pub struct Stack {
    interface: Interface,
    connections: Slab<Connection>,
    listeners: Listeners,
    demux: Demux,
    wheel: Wheel,
    /// Places of connections that may have something to send, each once, served round robin.
    ready: Queue<u32>,
    /// Connections that waited for a completion, in the order in which they may go on. They join the
    /// others in one batch, when the next frame is asked for.
    deferred: Queue<u32>,
    /// Number of connections that wait for a completion.
    waiting: u32,
    /// Consecutive segments that are being joined.
    joined: Option<join::Joined>,
    udp: Sockets,
    /// Rate limit of ICMP errors.
    allowance: udp::Allowance,
    /// Ports and connections that were recently taken over or given away.
    quiet: shared::Quiet,
    /// Sockets and listeners with news for their user.
    news: Queue<News>,
    /// Connections created and removed, where the driver keeps a list of them.
    changes: VecDeque<Change>,
    /// The state that is lent to connections.
    shared: Context,
    /// Number of ports tried so far, for the next active open (RFC 6056 §3.3.3).
    next_port: u32,
    /// When a SYN was last answered with a cookie.
    cookie_sent_at: MaybeInstant,
}

fn bounded_pool(config: &Config) -> Pool {
    let mut pool = Pool::new(config.kept_storage_bytes);
    pool.set_bounds(config.memory_bytes);
    pool
}

#[derive(Debug, Clone, Copy)]
enum News {
    Socket(u32),
    Incoming(ListenerId),
    Udp(u32),
}

impl Stack {
    /// Makes a stack without an address, over a device. `seed` must be random: sequence numbers, ports and
    /// cookies are as hard to guess as the seed.
    #[must_use]
    pub fn new(config: Config, device: Capabilities, mac: Mac, seed: [u8; 32]) -> Self {
        let shared = config.shares_addresses;
        let secrets = Secrets::new(seed);
        let (keys, cache) = secrets.fast_open;
        Self {
            interface: Interface::new(device, mac, shared),
            connections: Slab::new(),
            listeners: Listeners::default(),
            demux: Demux::new(),
            wheel: Wheel::new(),
            ready: Queue::new(),
            deferred: Queue::new(),
            waiting: 0,
            joined: None,
            udp: Sockets::default(),
            allowance: udp::Allowance::default(),
            quiet: shared::Quiet::default(),
            news: Queue::new(),
            changes: VecDeque::new(),
            next_port: 0,
            cookie_sent_at: MaybeInstant::default(),
            shared: Context {
                now: Instant::ZERO,
                device,
                deferral: join::Deferral::Never,
                pool: bounded_pool(&config),
                population: Population::default(),
                fast_open: FastOpenState::new(config.fast_open, keys, cache),
                timeouts: Bounds::new(config.min_rto, config.max_rto),
                config,
                secrets,
                counters: Counters::default(),
                requests: Requests::default(),
                given_up: given_up::GivenUp::default(),
            },
        }
    }

    /// Adds an address, and the route to its network. Where addresses are shared with the kernel
    /// ([`Config::shares_addresses`]) there is no such route: each remote address is asked for.
    pub fn add_address(&mut self, address: Cidr) {
        self.interface.add_address(address);
    }

    /// Starts multicast listening once all addresses are added: on Ethernet the groups of the IPv6 addresses are reported once
    /// (RFC 3810), and again when a router asks. Where addresses are shared the kernel does that.
    pub fn report_groups(&mut self) {
        self.interface.report_groups(Listening::Begins);
    }

    /// Adds a route, for a stack with addresses of its own. Where they are shared the kernel routes.
    pub fn add_route(&mut self, route: Route) {
        self.interface.add_route(route);
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Returns the bytes of storage of all send and receive buffers, which
    /// [`Config::memory_bytes`](crate::Config::memory_bytes) bounds.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.shared.pool.lent_bytes()
    }

    /// Returns the requests that have come since the last call.
    pub fn take_requests(&mut self) -> Requests {
        std::mem::take(&mut self.shared.requests)
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the number of connections in any state, TIME-WAIT included.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Processes a received frame. Its results are polled later.
    #[inline]
    pub fn handle_frame(&mut self, now: Instant, frame: &Received<'_>) {
        self.shared.counters.frames_in += 1;
        if self.arrive_predicted(now, frame) {
            return;
        }
        if self.arrive(now, frame).is_err() {
            self.shared.counters.malformed += 1;
        }
    }

    /// Notes that frames have left the device. A connection that waited for that is put into the next batch;
    /// nothing is sent from here.
    pub fn handle_completion(&mut self, now: Instant, completion: Completion) {
        let _ = now;
        let id = SocketId::from_u64(completion.owner.0);
        let Some(connection) = self.connections.get_quietly(id.place) else { return };
        let goes_on = connection.user.in_ready;
        if connection.id != id || !connection.device.complete(completion.bytes, goes_on) {
            return;
        }
        self.waiting -= 1;
        if !connection.user.in_ready {
            connection.user.in_ready = true;
            self.deferred.push_back(id.place);
        }
    }

    /// Returns whether a connection waits for frames to leave the device. If none does, completions
    /// need not wake the driver of the stack: they may be reported with the next frames.
    #[must_use]
    pub fn awaits_completion(&self) -> bool {
        self.waiting > 0
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.finish_joining();
        while let Some(place) = self.wheel.pop(&mut self.connections, now) {
            let Some(connection) = self.connections.get_quietly(place) else { continue };
            if connection.handle_timers(self.shared.at(now)) {
                self.settle(place);
            } else {
                let early = connection.timers.take_early();
                self.enter_timers(place, early);
            }
        }
        let unreachable = self.interface.neighbours.handle_timeout(now);
        self.fail_all_unreachable(unreachable, now);
    }

    /// Returns when to call [`Stack::handle_timeout`] next; none if no timer is running.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.wheel.next(), self.interface.neighbours.next_timeout()) {
            (Some(wheel), Some(neighbours)) => Some(wheel.min(neighbours)),
            (wheel, neighbours) => wheel.or(neighbours),
        }
    }

    /// Returns the next event for the user.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.finish_joining();
        while let Some(news) = self.news.pop_front() {
            match news {
                News::Incoming(listener) => return Some(Event::Incoming(listener)),
                News::Udp(place) => {
                    let Some(socket) = self.udp.at_mut(place) else { continue };
                    socket.in_news = false;
                    let ready = std::mem::take(&mut socket.news);
                    if !ready.is_empty() {
                        return Some(Event::Udp(socket.id, ready));
                    }
                }
                News::Socket(place) => {
                    let Some(connection) = self.connections.get_quietly(place) else { continue };
                    connection.user.in_news = false;
                    let ready = std::mem::take(&mut connection.user.news);
                    if connection.user.attached && !ready.is_empty() {
                        return Some(Event::Socket(connection.id, ready));
                    }
                }
            }
        }
        self.interface.neighbours.poll_outside_question().map(Event::Neighbour)
    }

    /// Returns the next connection that was created or removed, oldest first, on addresses that are shared with the
    /// kernel ([`Config::shares_addresses`]): the driver of the stack keeps a list of the stack's connections.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Returns whether [`Stack::poll_event`] may have an event. Writing a frame can raise a request for a
    /// neighbour, so that a driver that polls for frames last has to look again before it sleeps.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.news.is_empty() || self.interface.neighbours.has_outside_question()
    }
}

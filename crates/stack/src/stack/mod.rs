//! A stack: connections and listeners over one device, and the order in which things happen.

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

/// TCP over one device.
#[derive(Debug)]
pub struct Stack {
    interface: Interface,
    connections: Slab<Connection>,
    listeners: Listeners,
    demux: Demux,
    wheel: Wheel,
    /// Places of connections that may have something to send, each once, served in turn.
    ready: Queue<u32>,
    /// Those that have waited for a completion, in the order in which they may go on. They join the
    /// others in one batch, when the next frame is asked for.
    deferred: Queue<u32>,
    /// How many connections wait for a completion.
    waiting: u32,
    /// Segments that have come one behind the other.
    joined: Option<join::Joined>,
    udp: Sockets,
    /// Errors that may be sent.
    allowance: udp::Allowance,
    /// What was taken over or given away a short while ago.
    quiet: shared::Quiet,
    /// Those with news for their user.
    news: Queue<News>,
    /// What came and went, where somebody keeps a list of it.
    changes: VecDeque<Change>,
    /// What connections are lent.
    shared: Context,
    /// Ports tried so far, for the next active open (RFC 6056 §3.3.3).
    next_port: u32,
    /// When a SYN was answered with a cookie last.
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
    /// A stack without an address, over a device. `seed` must be random: sequence numbers, ports and
    /// cookies are as hard to guess as it is.
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

    /// The addresses are all there and are used from now on: on Ethernet it is reported once which multicast groups those of
    /// IPv6 are looked for in (RFC 3810), and again when a router asks. Where addresses are shared the kernel does that.
    pub fn report_groups(&mut self) {
        self.interface.report_groups(Listening::Begins);
    }

    /// Adds a route, for a stack that has its addresses to itself. Where they are shared the kernel routes.
    pub fn add_route(&mut self, route: Route) {
        self.interface.add_route(route);
    }

    /// What it has counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Bytes of storage behind all send and receive buffers, which is what
    /// [`Config::memory_bytes`](crate::Config::memory_bytes) bounds.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.shared.pool.lent_bytes()
    }

    /// The requests that have come since this was asked last.
    pub fn take_requests(&mut self) -> Requests {
        std::mem::take(&mut self.shared.requests)
    }

    /// What it can say of itself in settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Connections in any state, TIME-WAIT included.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Takes a frame in. What it leads to is asked for later.
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

    /// Frames have left the device. Who has waited for that is put into the next batch; nothing is
    /// sent from here.
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

    /// Whether a connection waits for frames to leave the device. If none does, whoever drives the
    /// stack need not be woken by completions: they may be told with the next frames.
    #[must_use]
    pub fn awaits_completion(&self) -> bool {
        self.waiting > 0
    }

    /// Does what is due.
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

    /// When to call [`Stack::handle_timeout`] next; nothing is due if there is no such time.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.wheel.next(), self.interface.neighbours.next_timeout()) {
            (Some(wheel), Some(neighbours)) => Some(wheel.min(neighbours)),
            (wheel, neighbours) => wheel.or(neighbours),
        }
    }

    /// What the user is to be told next.
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

    /// What has come and gone since, oldest first, on addresses that are shared with the kernel
    /// ([`Config::shares_addresses`]): whoever drives the stack keeps a list of what is the stack's.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Whether [`Stack::poll_event`] may have something to tell. To write a frame can raise a question for a
    /// neighbour, so that who polls for frames last has to look before he sleeps.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.news.is_empty() || self.interface.neighbours.has_outside_question()
    }
}

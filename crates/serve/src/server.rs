//! Serves conversations on our own stack.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use rustc_hash::FxHashMap;
use uncork_driver::Driver;
use uncork_engine::{Interest, Program, Watch};
use uncork_stack::{Event, Instant, ListenerId, SocketId, SocketOption, Stack};

use crate::signals::Signals;
use crate::stat::Responder;
use crate::stream::OnStack;
use crate::talk::{Service, Site, Standing, Talk};

/// Octets that are read at once.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;
/// How long a peer may take to send its FIN after ours (nginx's lingering_time is 30 seconds).
pub(crate) const LINGER: Duration = Duration::from_secs(10);
/// While ending: interval at which it is checked whether all is quiet, if nothing else happens.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A server on the user-space stack.
#[derive(Debug)]
pub(crate) struct Server {
    site: Site,
    listeners: Vec<ListenerId>,
    talks: FxHashMap<SocketId, Talk>,
    /// Connections whose FIN was sent, with when they are given up. All wait equally long, so this is
    /// in chronological order.
    lingering: VecDeque<(Instant, SocketId)>,
    scratch: Box<[u8]>,
    signals: Signals,
    responder: Responder,
    grace: Duration,
    ending: Option<Ending>,
}

#[derive(Debug, Clone, Copy)]
struct Ending {
    /// Deadline after which connections are reset.
    deadline: Instant,
    look: Instant,
    over: bool,
}

/// Keys of watched descriptors; the responder has those from the last one on.
const SIGNALS: u64 = 0;
const RESPONDER: u64 = 1;

impl Server {
    pub(crate) fn new(
        service: Service,
        listeners: Vec<ListenerId>,
        signals: Signals,
        responder: Responder,
        grace: Duration,
    ) -> Self {
        Self {
            site: Site::new(service),
            listeners,
            talks: FxHashMap::default(),
            lingering: VecDeque::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            signals,
            responder,
            grace,
            ending: None,
        }
    }

    fn accept(&mut self, stack: &mut Stack, now: Instant, listener: ListenerId) {
        while let Some(socket) = stack.accept(listener) {
            stack.set_option(now, socket, SocketOption::NoDelay(true));
            self.talks.insert(socket, Talk::new(self.site.service()));
            // Its request may have come with the handshake's last segment.
            self.drive(stack, now, socket);
        }
    }

    fn drive(&mut self, stack: &mut Stack, now: Instant, socket: SocketId) {
        self.site.keep_time(now);
        let Some(talk) = self.talks.get_mut(&socket) else { return };
        let lingered = talk.lingers();
        let mut stream = OnStack { stack, now, socket };
        let standing = talk.drive(&self.site, &mut stream, &mut self.scratch);
        if standing == Standing::Over {
            self.talks.remove(&socket);
            stack.close(now, socket);
        } else if talk.lingers() && !lingered {
            self.lingering.push_back((now + LINGER, socket));
        }
    }

    /// Accepts no new connections; existing ones get a FIN after the data that the stack has taken.
    fn begin_to_end(&mut self, stack: &mut Stack, now: Instant) {
        for listener in self.listeners.drain(..) {
            stack.close_listener(now, listener);
        }
        let deadline = now + self.grace;
        self.ending = Some(Ending { deadline, look: now, over: false });
        let sockets: Vec<_> = self.talks.keys().copied().collect();
        for socket in sockets {
            if let Some(talk) = self.talks.get_mut(&socket) {
                talk.finish();
                self.drive(stack, now, socket);
            }
        }
    }

    fn go_on_ending(&mut self, stack: &mut Stack, now: Instant) {
        let Some(ending) = &mut self.ending else { return };
        if ending.over || now < ending.look {
            return;
        }
        ending.look = (now + LOOK_EVERY).min(ending.deadline.max(now));
        if now >= ending.deadline {
            stack.abort_all(now);
            ending.over = true;
        } else {
            ending.over = stack.is_quiet();
        }
    }
}

impl Program for Server {
    fn on_event(&mut self, stack: &mut Stack, now: Instant, event: Event) {
        match event {
            Event::Incoming(listener) => self.accept(stack, now, listener),
            Event::Socket(socket, _) => self.drive(stack, now, socket),
            // It does not use UDP, so there is no such socket; and its stack does not share its
            // addresses.
            Event::Udp(..) | Event::Neighbour(_) => {}
        }
    }

    fn on_turn(&mut self, stack: &mut Stack, now: Instant) {
        while let Some(&(due, socket)) = self.lingering.front() {
            if due > now {
                break;
            }
            self.lingering.pop_front();
            if self.talks.remove(&socket).is_some() {
                stack.close(now, socket);
            }
        }
        self.responder.forget_done();
        self.go_on_ending(stack, now);
    }

    fn watched(&self) -> Vec<Watch<'_>> {
        let signals = Watch { fd: self.signals.fd(), interest: Interest::Read, key: SIGNALS };
        let mut watched = vec![signals];
        self.responder.watched(RESPONDER, &mut watched);
        watched
    }

    fn meet(&mut self, driver: &mut dyn Driver, key: u64) {
        if key >= RESPONDER {
            self.responder.meet(driver);
        }
    }

    fn on_watched(&mut self, stack: &mut Stack, now: Instant, key: u64) -> io::Result<()> {
        if let Some(place) = key.checked_sub(RESPONDER) {
            self.responder.on_watched(stack, now, place);
            return Ok(());
        }
        match (self.signals.fetch(), &mut self.ending) {
            (0, _) => {}
            (1, None) => self.begin_to_end(stack, now),
            // A second signal means that the user does not want to wait.
            (_, None) => {
                self.begin_to_end(stack, now);
                self.hurry(now);
            }
            (_, Some(_)) => self.hurry(now),
        }
        Ok(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        let lingering = self.lingering.front().map(|&(due, _)| due);
        let ending = self.ending.map(|ending| ending.look);
        [lingering, ending].into_iter().flatten().min()
    }

    fn is_over(&self) -> bool {
        self.ending.is_some_and(|ending| ending.over)
    }
}

impl Server {
    fn hurry(&mut self, now: Instant) {
        if let Some(ending) = &mut self.ending {
            ending.deadline = now;
            ending.look = now;
        }
    }
}

//! Moderation: when many frames come, they are taken in less often, as network cards moderate their interrupts (`rx-usecs` and
//! `adaptive-rx` of ethtool(8)).
//!
//! A program that is quicker than its clients is woken for every few of their requests, answers these, and sleeps again; most
//! of what that costs is waking, sleeping and system calls. So frames that come soon after others wait in their ring until there
//! are some more, for as long as that changes little for the clients: by what the last milliseconds have shown ([`Requests`]) for
//! no more than a quarter of the time for which the quicker of them keep an answer before they ask again, and only if [`ENOUGH`]
//! requests are likely to have come by then. A single connection, or a few of them, are not delayed; bulk data is not
//! answered by anyone, and does not count.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::time::Duration;

use uncork_high::Timer;
use uncork_packet::Instant;
use uncork_stack::Requests;

/// How often the delay is computed anew.
const PERIOD: Duration = Duration::from_millis(2);
/// How many requests a delay must be likely to gather.
const ENOUGH: u128 = 4;
/// A delay is at most the time from an answer to the next request divided by this.
const PART: u32 = 4;
/// A shorter delay gathers little, and takes a timer, too.
const SHORTEST: Duration = Duration::from_micros(10);

/// When frames are taken in next.
#[derive(Debug)]
pub(crate) struct Moderation {
    /// The longest delay; zero: there is none.
    longest: Duration,
    /// When the delay was last computed.
    reckoned: Instant,
    /// How long frames may wait for others now.
    delay: Duration,
    /// Until when they do.
    until: Instant,
    /// What wakes a sleeper then, once there has been a delay, and the time that it is set to.
    timer: Option<Timer>,
    set: Instant,
}

impl Moderation {
    /// Returns one without any delay.
    pub(crate) fn off() -> Self {
        Self {
            longest: Duration::ZERO,
            reckoned: Instant::ZERO,
            delay: Duration::ZERO,
            until: Instant::ZERO,
            timer: None,
            set: Instant::ZERO,
        }
    }

    /// Sets how long frames wait at most.
    pub(crate) fn limit(&mut self, longest: Duration) {
        *self = Self { longest, timer: self.timer.take(), ..Self::off() };
    }

    /// Returns whether there is a delay at present.
    pub(crate) fn is_on(&self) -> bool {
        !self.delay.is_zero()
    }

    #[inline]
    pub(crate) fn holds(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Notes that some were taken in: the next ones may wait.
    #[inline]
    pub(crate) fn took(&mut self, now: Instant) {
        if !self.delay.is_zero() {
            self.until = now + self.delay;
        }
    }

    /// Returns whether the delay is to be computed anew.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.longest.is_zero() && now.since(self.reckoned) >= PERIOD
    }

    /// Computes the delay anew from the requests that have come since the last time.
    pub(crate) fn reckon(&mut self, now: Instant, requests: &Requests) {
        let passed = now.since(self.reckoned);
        self.reckoned = now;
        let most = requests.wait().map_or(Duration::ZERO, |wait| wait / PART);
        let delay = most.min(self.longest);
        let gathers =
            u128::from(requests.number()) * delay.as_nanos() >= ENOUGH * passed.as_nanos();
        self.delay = if gathers && delay >= SHORTEST { delay } else { Duration::ZERO };
    }

    /// Returns what wakes a sleeper in place of the frames that wait; none if they do not, or no timer can be had.
    pub(crate) fn wakes(&mut self, now: Instant) -> Option<BorrowedFd<'_>> {
        if !self.holds(now) {
            return None;
        }
        if self.timer.is_none() {
            self.timer = Timer::new().ok();
        }
        let timer = self.timer.as_ref()?;
        if self.set != self.until {
            timer.set(self.until.since(now)).ok()?;
            self.set = self.until;
        }
        Some(timer.as_fd())
    }

    /// Returns the timer's descriptor, which the surrounding program does not know of.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.timer.as_ref().map(Timer::as_raw_fd)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use uncork_driver::Driver as _;
    use uncork_driver::memory::{Port, pair};
    use uncork_packet::{Capabilities, Medium};
    use uncork_stack::{Config, Mac, SocketId, Stack};

    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    /// A server's stack, its clients', and conversations between them.
    struct Talk {
        ends: [(Stack, Port); 2],
        clients: Vec<SocketId>,
        servers: Vec<SocketId>,
        now: Instant,
    }

    impl Talk {
        fn new(conversations: usize) -> Self {
            let capabilities = Capabilities::plain(Medium::Ethernet, 1500);
            let (one, other) = pair(capabilities, 256);
            let stack = |number: u8| {
                let mac = Mac([2, 0, 0, 0, 0, number]);
                let mut stack = Stack::new(Config::default(), capabilities, mac, [number; 32]);
                stack.add_address(format!("10.0.0.{number}/24").parse().unwrap());
                stack
            };
            let ends = [(stack(1), one), (stack(2), other)];
            let (clients, servers) = (Vec::new(), Vec::new());
            let mut talk = Self { ends, clients, servers, now: at(1) };
            let address: SocketAddr = "10.0.0.1:80".parse().unwrap();
            let listener = talk.ends[0].0.listen(address, 64).unwrap();
            for _ in 0..conversations {
                let now = talk.now;
                talk.clients.push(talk.ends[1].0.connect(now, None, address).unwrap());
            }
            (0..8).for_each(|_| talk.carry());
            talk.servers.extend(std::iter::from_fn(|| talk.ends[0].0.accept(listener)));
            assert_eq!(talk.servers.len(), conversations);
            talk
        }

        /// Carries what either end has to send to the other.
        fn carry(&mut self) {
            let now = self.now;
            for (stack, port) in &mut self.ends {
                while port.offer(&mut |slot| stack.poll_transmit(now, slot)).unwrap()
                    == uncork_driver::Offer::Taken
                {}
                port.flush().unwrap();
            }
            for (stack, port) in &mut self.ends {
                port.receive(256, &mut |frame| stack.handle_frame(now, &frame)).unwrap();
                port.complete(&mut |completion| stack.handle_completion(now, completion)).unwrap();
            }
        }

        /// Has each client ask, be answered at once, and ask again after so long; so often.
        fn ask(&mut self, times: usize, pause: Duration) -> Requests {
            for _ in 0..times {
                for way in [1, 0] {
                    let sockets = if way == 1 { &self.clients } else { &self.servers };
                    for socket in sockets {
                        let stack = &mut self.ends[way].0;
                        while stack.recv(self.now, *socket, &mut [0; 64]).is_ok_and(|read| read > 0)
                        {
                        }
                        assert_eq!(stack.send(self.now, *socket, b"octets", false), Ok(6));
                    }
                    self.carry();
                }
                self.now += pause;
            }
            self.ends[0].0.take_requests()
        }
    }

    /// Returns the delay that a moderation of 128 µs makes of it.
    fn delay(conversations: usize, pause: Duration) -> Duration {
        let mut talk = Talk::new(conversations);
        let mut moderation = Moderation::off();
        moderation.limit(Duration::from_micros(128));
        let _ = talk.ask(2, pause);
        moderation.reckon(talk.now, &Requests::default());
        let requests = talk.ask(8, pause);
        assert_eq!(requests.number() as usize, 8 * conversations);
        assert_eq!(requests.wait(), Some(pause));
        moderation.reckon(talk.now, &requests);
        moderation.delay
    }

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn many_requests_are_waited_for_as_long_as_their_peers_do_not_mind() {
        assert_eq!(delay(32, 400 * MICRO), 100 * MICRO, "a quarter");
        assert_eq!(delay(64, 1000 * MICRO), 128 * MICRO, "no longer than was said");
    }

    #[test]
    fn what_would_gather_nothing_is_not_waited_for() {
        assert_eq!(delay(1, 100 * MICRO), Duration::ZERO, "one conversation");
        assert_eq!(delay(15, 400 * MICRO), Duration::ZERO, "a few");
        assert_eq!(delay(32, 10_000 * MICRO), Duration::ZERO, "rarely");
        assert_eq!(delay(32, 36 * MICRO), Duration::ZERO, "quick ones: no timer is worth while");
    }

    #[test]
    fn bulk_is_no_request() {
        let mut talk = Talk::new(32);
        let _ = talk.ask(2, 100 * MICRO);
        for _ in 0..8 {
            for socket in &talk.clients {
                let _ = talk.ends[1].0.send(talk.now, *socket, &[0; 1000], false);
            }
            talk.carry();
            talk.now += 100 * MICRO;
        }
        // Of each client the first segment, which comes with the acknowledgement of the last answer.
        assert_eq!(talk.ends[0].0.take_requests().number(), 32);
    }

    #[test]
    fn frames_behind_others_wait_and_the_first_does_not() {
        let mut moderation = Moderation::off();
        moderation.took(at(10));
        assert!(!moderation.holds(at(10)) && !moderation.is_due(at(1_000_000)), "it is off");
        moderation.limit(128 * MICRO);
        moderation.delay = 100 * MICRO;
        assert!(!moderation.holds(at(20)) && moderation.wakes(at(20)).is_none());
        moderation.took(at(20));
        assert!(moderation.holds(at(119)) && !moderation.holds(at(120)));
        let timer = moderation.wakes(at(30)).unwrap().as_raw_fd();
        assert_eq!(moderation.descriptor(), Some(timer));
        assert_eq!(moderation.wakes(at(40)).unwrap().as_raw_fd(), timer);
        assert!(moderation.wakes(at(120)).is_none(), "the device wakes again");
        assert!(!moderation.is_due(at(1_999)) && moderation.is_due(at(2_000)));
    }
}

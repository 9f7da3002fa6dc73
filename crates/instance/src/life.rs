//! The life of an instance: its devices, its guardian, news from the kernel, and sleep.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::Timespec;
use uncork_attach::record::Ends;
use uncork_driver::{Beside, Door, Driver, OpenError, af_packet, af_xdp};
use uncork_guardian::{Client, Device, Entry, Word};
use uncork_neighbours::{self as neighbours, Answer, Neighbours};
use uncork_stack::{Cidr, Config, FastOpen, Found, Mac};

use crate::asked::Telling;
use crate::floor::{Floor, Host};
use crate::link::Link;

/// How often it looks at anything but frames and commands, while there are enough of those.
const LOOKS_AFTER: Duration = Duration::from_millis(1);

/// How often the host's settings are read: they may change while programs are attached. The kernel reads them whenever needed.
const FOLLOWS_AFTER: Duration = Duration::from_secs(1);

/// Settings of an instance.
#[derive(Debug)]
pub struct Settings {
    /// Where its guardian is found.
    pub place: String,
    /// The token by which the guardian knows it.
    pub token: String,
    /// How long it keeps looking after the last frame before it sleeps.
    pub spin: Duration,
    /// For how long frames may wait for others, at most; ignored if it spins.
    pub moderation: Duration,
    /// Most bytes of one connection in the device queue, if not the stack's own
    /// ([`Config::small_queue_bytes`]).
    pub small_queue_bytes: Option<u32>,
    /// Reports what the operator should know.
    pub say: fn(&str),
}

/// Why an instance has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the guardian has failed.
    #[error("{0}")]
    Guardian(#[from] uncork_guardian::Error),
    /// A device cannot be used.
    #[error("an instance of the stack cannot use {device}: {error}")]
    Device {
        /// Its name.
        device: String,
        /// The reason.
        error: io::Error,
    },
    /// A system call has failed.
    #[error("an instance of the stack cannot go on: {0}")]
    System(#[from] io::Error),
}

/// The guardian, as the instance and its floor both use it.
struct Guardian {
    client: Rc<RefCell<Client>>,
    say: fn(&str),
}

impl Host for Guardian {
    fn enter(&mut self, ends: Ends) -> Option<Entry> {
        self.client.borrow().connections().enter(ends.local, ends.remote)
    }

    fn fast_open(&mut self) -> FastOpen {
        let told = setting("tcp_fastopen");
        told.as_deref().and_then(FastOpen::of_sysctl).unwrap_or_default()
    }

    fn leave(&mut self, entry: Entry) {
        self.client.borrow().connections().remove(entry);
    }

    fn disown(&mut self, ends: Ends) {
        // A guardian that is gone has nothing left to disown, and one that is held up is not waited for.
        let _ = self.client.borrow_mut().over(&[], &[(ends.local, ends.remote)]);
    }

    fn closed(&mut self, ends: Ends) {
        let _ = self.client.borrow_mut().over(&[(ends.local, ends.remote)], &[]);
    }

    fn give(&mut self, program: u32, ends: Ends) -> bool {
        self.client.borrow_mut().give(program, ends.local, ends.remote).is_ok()
    }

    fn words(&mut self) -> Vec<Word> {
        let mut client = self.client.borrow_mut();
        // That the guardian is gone is found elsewhere.
        let _ = client.check();
        std::iter::from_fn(|| client.next_word()).collect()
    }

    fn say(&mut self, what: &str) {
        (self.say)(what);
    }
}

/// Runs an instance, until its guardian is gone.
///
/// # Errors
///
/// [`Error`] says why it has ended sooner.
pub fn run(settings: Settings) -> Result<(), Error> {
    let Settings { place, token, spin, moderation, small_queue_bytes, say } = settings;
    let mut client = Client::serve(&place, &token)?;
    let mut config = Link::config();
    config.follow(&setting);
    config.small_queue_bytes = small_queue_bytes.unwrap_or(config.small_queue_bytes);
    let Devices { mut links, queues, without } = open(&mut client, &config, say)?;
    if spin.is_zero() {
        links.iter_mut().for_each(|link| link.moderate(moderation));
    }
    let client = Rc::new(RefCell::new(client));
    let host = Guardian { client: Rc::clone(&client), say };
    let floor = Floor::new(links, Box::new(host)).without(without);
    let ways = Neighbours::open()?;
    let now = Instant::now();
    let answers = Vec::new();
    let (begun, looked, followed, busy) = (now, now, now, now);
    Life {
        floor,
        client,
        queues,
        ways,
        spin,
        say,
        answers,
        begun,
        looked,
        slept: true,
        followed,
        busy,
    }
    .live()
}

/// Reads a setting of the host, as it is at this moment.
fn setting(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()
}

/// For each device, by its index, the door by which its driver gets queues.
type Queues = Vec<(i32, Door)>;

/// Devices that were opened, and those that could not be: the name of each, and the reason.
#[derive(Default)]
struct Devices {
    links: Vec<Link>,
    queues: Queues,
    without: Vec<String>,
}

/// Opens all devices that can be opened: connections that arrive by another one are the kernel's.
fn open(client: &mut Client, config: &Config, say: fn(&str)) -> Result<Devices, Error> {
    let mut open = Devices::default();
    for device in client.devices().to_vec() {
        let handed = match client.open(device.index) {
            Ok(handed) => handed,
            // It may be down, or deleted. But a device that was handed over and cannot be used counts as open with the
            // guardian: the instance cannot go on like that.
            Err(uncork_guardian::Error::Refused(why)) => {
                say(&format!("an instance of the stack does without {}: {why}", device.name));
                open.without.push(format!("{}: {why}", device.name));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let ((driver, its), mac) = adopt(client, &device, handed)?;
        open.queues.extend(its.map(|its| (device.index, its)));
        let addresses = device.addresses.iter();
        let addresses =
            addresses.map(|address| Cidr { address: address.ip, prefix: address.prefix }).collect();
        let index = device.index.unsigned_abs();
        let named = (device.name, index);
        open.links.push(Link::new(named, driver, mac, addresses, config.clone(), seed()?));
    }
    match open.without.last().filter(|_| open.links.is_empty()) {
        Some(why) => Err(uncork_guardian::Error::Refused(why.clone()).into()),
        None => Ok(open),
    }
}

fn adopt(
    client: &Client,
    device: &Device,
    handed: af_packet::Handed,
) -> Result<(Opened, Mac), Error> {
    let mac = Mac(handed.description.mac());
    let failed =
        |error| Error::Device { device: device.name.clone(), error: io::Error::other(error) };
    let (driver, its) = driver(handed, client.has_queues()).map_err(failed)?;
    Ok(((driver, its), mac))
}

type Opened = (Box<dyn Driver + Send>, Option<Door>);

fn driver(handed: af_packet::Handed, has_queues: bool) -> Result<Opened, OpenError> {
    let port = af_packet::Port::adopt(handed)?;
    if !has_queues {
        return Ok((Box::new(port), None));
    }
    let (driver, queues) = Beside::new(port)?;
    Ok((Box::new(driver), Some(queues)))
}

fn seed() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(bytes)
}

struct Life {
    floor: Floor,
    client: Rc<RefCell<Client>>,
    queues: Queues,
    ways: Neighbours,
    spin: Duration,
    say: fn(&str),
    /// Reports that are being made for those that asked.
    answers: Vec<Telling>,
    begun: Instant,
    looked: Instant,
    /// Whether it has slept since the last look.
    slept: bool,
    /// When it last read the host's settings.
    followed: Instant,
    /// When something last happened.
    busy: Instant,
}

impl Life {
    fn live(&mut self) -> Result<(), Error> {
        loop {
            // Before frames are taken in that had arrived before the guardian's end: a peer that was answered now would be reset
            // by the kernel; one that is not retransmits, and is the kernel's.
            let is_due = self.looked.elapsed() >= LOOKS_AFTER;
            if (is_due || std::mem::take(&mut self.slept)) && !self.look_around(is_due) {
                return Ok(());
            }
            let happened = self.floor.turn()?;
            for (at, remote) in self.floor.take_asked() {
                // Without an answer the stack asks again.
                let _ = self.ways.ask(self.floor.links[at].question(remote));
                self.hear_ways();
            }
            let answers = std::mem::take(&mut self.answers);
            self.answers =
                answers.into_iter().filter_map(|one| one.go_on(&mut self.floor)).collect();
            if happened || !self.answers.is_empty() {
                self.busy = Instant::now();
            } else if self.spin.is_zero() || self.busy.elapsed() >= self.spin {
                self.sleep()?;
            }
        }
    }

    /// Looks at anything but frames and commands, after a while of work (`is_due`) or after a sleep; tells whether the
    /// guardian lives.
    fn look_around(&mut self, is_due: bool) -> bool {
        self.looked = Instant::now();
        let checked = self.client.borrow_mut().check();
        if matches!(checked, Err(uncork_guardian::Error::Gone)) {
            self.floor.abort_all();
            return false;
        }
        self.follow_host();
        self.pass_queues_on();
        self.floor.hear_words();
        while let Some(asker) = self.next_asker() {
            self.answers.push(Telling::begin(&mut self.floor, self.begun, asker));
        }
        // Any guest to which something happened during the sleep has given a sign.
        self.floor.look_for_the_dead(is_due);
        self.hear_ways();
        true
    }

    /// Makes its stacks follow the host's settings.
    fn follow_host(&mut self) {
        if self.followed.elapsed() < FOLLOWS_AFTER {
            return;
        }
        self.followed = Instant::now();
        for link in self.floor.links() {
            link.stack().follow(&setting);
        }
    }

    /// Passes on queues that have come. If one cannot be used nothing is lost: everything comes by packet sockets then.
    fn pass_queues_on(&self) {
        let mut client = self.client.borrow_mut();
        while let Some((device, handed)) = client.next_queue() {
            let to = self.queues.iter().find(|(other, _)| *other == device);
            let brought = match af_xdp::Port::adopt(handed) {
                // There is an engine on each device for as long as the instance lives.
                Ok(port) => to.map_or(Ok(()), |(_, to)| to.bring(port)),
                Err(error) => Err(io::Error::other(error)),
            };
            if let Err(error) = brought {
                (self.say)(&format!("an instance of the stack does without a queue: {error}"));
            }
        }
    }

    fn next_asker(&self) -> Option<OwnedFd> {
        self.client.borrow_mut().next_asker()
    }

    /// Passes on what the kernel says of next hops and of devices' addresses.
    fn hear_ways(&mut self) {
        while let Ok(Some(Answer { question, found })) = self.ways.poll() {
            let found = match found {
                neighbours::Found::At { mac, mtu, .. } => Found::At { mac: Mac(mac), mtu },
                neighbours::Found::Elsewhere => Found::Elsewhere,
                neighbours::Found::Unreachable => Found::Unreachable,
                neighbours::Found::Lapsed => Found::Lapsed,
            };
            for at in 0..self.floor.links.len() {
                if question.device == Some(self.floor.links[at].device) {
                    self.floor.set_neighbour(at, question.remote, found);
                }
            }
        }
        for (device, mac) in self.ways.take_devices() {
            self.floor.set_mac(device, Mac(mac));
        }
    }

    fn sleep(&mut self) -> Result<(), Error> {
        let may = self.floor.lie_down();
        let client = self.client.borrow();
        let may = may && !client.has_news() && !self.ways.has_more();
        let (mut fds, limit) = self.floor.rest();
        fds.extend([client.as_fd(), self.ways.as_fd()]);
        let woken = wait(&fds, if may { limit } else { Some(Duration::ZERO) });
        drop(client);
        self.floor.get_up(woken.as_deref().unwrap_or_default());
        // It may have been woken by a guest's end, or by its guardian's.
        (self.slept, self.looked) = (true, Instant::now());
        woken?;
        Ok(())
    }
}

/// Waits until any of these is readable; returns of each whether it is.
pub(crate) fn wait(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match poll(&mut polled, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.iter().map(|one| !one.revents().is_empty()).collect())
}

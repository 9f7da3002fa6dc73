//! Sets up and runs the engine.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use uncork_driver::{Driver, Record};
use uncork_engine::Engine;
use uncork_stack::{ConnectError, SocketOption, Stack};

use crate::connect::{Dialogue, Ended};
use crate::device::{Opened, Place};
use crate::error::Error;
use crate::kernel::{BACKLOG, KernelServer};
use crate::server::Server;
use crate::signals::Signals;
use crate::stat::{Responder, socket_of};
use crate::talk::Service;

/// What to serve, and where.
#[derive(Debug, Clone)]
pub struct Serve {
    /// The protocol.
    pub service: Service,
    /// The port.
    pub port: u16,
    /// How long connections may take to end when the server is told to end.
    pub grace: Duration,
}

/// The report of a running server.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The service and its addresses.
    pub sentence: String,
    /// A problem, if any.
    pub note: Option<String>,
}

/// Formats several values as an enumeration.
struct All<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for All<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.0.iter().enumerate() {
            let before = match at {
                0 => "",
                at if at + 1 == self.0.len() => " and ",
                _ => ", ",
            };
            write!(f, "{before}{one}")?;
        }
        Ok(())
    }
}

/// The work of the engine, whatever its driver. When nothing can be refused any more, and before
/// a frame passes, the driver begins.
trait Work {
    type Outcome;

    fn does(&self) -> String;

    fn ends(&self) -> Vec<SocketAddr>;

    fn work<D: Driver>(
        self,
        engine: &mut Engine<D>,
        responder: Responder,
        opened: &About,
        begin: impl FnOnce(&mut D) -> Result<(), Error>,
    ) -> Result<Self::Outcome, Error>;
}

/// Description of an open device.
struct About {
    device: String,
    how: Cow<'static, str>,
    note: Option<String>,
}

/// Opens the device, records if asked to, answers queries, and works.
fn run<W: Work>(place: &Place, work: W) -> Result<W::Outcome, Error> {
    let Opened { driver, device, how, note, mac, owned } = place.open()?;
    let stack = place.stack(driver.capabilities(), mac)?;
    let about = About { device, how, note };
    let outcome = match &place.record {
        None => start(place, driver, stack, (work, &about), |_| Ok(())).map(|(outcome, _)| outcome),
        Some(path) => {
            let failed = |error| Error::File { path: path.clone(), error };
            let (file, warn) = (path.clone(), place.warn);
            let driver = Record::later(driver, &about.device).telling(move |error| {
                let file = file.display();
                warn(&format!("{file}: {error}: the recording ends here, and nothing else does"));
            });
            // Begun late, so that a refused start does not overwrite an earlier recording.
            let begin = |driver: &mut Record<_, _>| driver.begin(path).map_err(failed);
            let (outcome, mut driver) = start(place, driver, stack, (work, &about), begin)?;
            match driver.take_error() {
                Some(error) => Err(Error::Recording { path: path.clone(), error }),
                None => Ok(outcome),
            }
        }
    };
    // Only now may the kernel see packets to the stack's addresses.
    drop(owned);
    outcome
}

fn start<D: Driver, W: Work>(
    place: &Place,
    driver: D,
    stack: Stack,
    (work, about): (W, &About),
    begin: impl FnOnce(&mut D) -> Result<(), Error>,
) -> Result<(W::Outcome, D), Error> {
    let mut engine = Engine::new(driver, stack);
    engine.spin_for(place.spin);
    if place.spin.is_zero() {
        engine.moderate(place.moderation);
    }
    let path = place.socket.clone().unwrap_or_else(|| socket_of(std::process::id()));
    let responder =
        Responder::open(&path, work.does(), about.device.clone(), work.ends(), engine.now())
            .map_err(|error| Error::Socket { path, error })?;
    let outcome = work.work(&mut engine, responder, about, begin)?;
    Ok((outcome, engine.into_driver()))
}

/// Serves on the stack until a signal asks for the end. `ready` is called when connections can come.
///
/// # Errors
///
/// [`Error`] says what is missing.
pub fn serve(place: &Place, what: &Serve, ready: &mut dyn FnMut(&Ready)) -> Result<(), Error> {
    let signals = Signals::take().map_err(Error::system("wait for signals"))?;
    run(place, Serving { place, what, ready, signals })
}

struct Serving<'a> {
    place: &'a Place,
    what: &'a Serve,
    ready: &'a mut dyn FnMut(&Ready),
    signals: Signals,
}

impl Work for Serving<'_> {
    type Outcome = ();

    fn does(&self) -> String {
        format!("serve {}", self.what.service.name())
    }

    fn ends(&self) -> Vec<SocketAddr> {
        let port = self.what.port;
        self.place.addresses.iter().map(|ours| SocketAddr::new(ours.address, port)).collect()
    }

    fn work<D: Driver>(
        self,
        engine: &mut Engine<D>,
        responder: Responder,
        about: &About,
        begin: impl FnOnce(&mut D) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let ends = self.ends();
        let stack = engine.stack();
        let mut listeners = Vec::new();
        for &end in &ends {
            let listener =
                stack.listen(end, BACKLOG).map_err(|error| Error::Listen(end.ip(), error))?;
            stack.set_listener_option(listener, SocketOption::NoDelay(true));
            listeners.push(listener);
        }
        begin(engine.driver())?;
        let Self { what: &Serve { service, grace, .. }, ready, signals, .. } = self;
        ready(&Ready {
            sentence: format!(
                "{} at {} over {} ({})",
                service.name(),
                All(&ends),
                about.device,
                about.how
            ),
            note: about.note.clone(),
        });
        let mut server = Server::new(service, listeners, signals, responder, grace);
        engine.run(&mut server).map_err(Error::system("the device has failed"))
    }
}

/// Serves the same on kernel sockets, at addresses of this host.
///
/// # Errors
///
/// [`Error`] says what is missing.
pub fn serve_on_kernel(
    addresses: &[IpAddr],
    what: &Serve,
    ready: &mut dyn FnMut(&Ready),
) -> Result<(), Error> {
    let signals = Signals::take().map_err(Error::system("wait for signals"))?;
    let mut server = KernelServer::open(what.service, addresses, what.port, signals, what.grace)?;
    let ends: Vec<_> =
        addresses.iter().map(|&address| SocketAddr::new(address, what.port)).collect();
    ready(&Ready {
        sentence: format!("{} at {} on kernel sockets", what.service.name(), All(&ends)),
        note: None,
    });
    server.run().map_err(Error::system("wait for connections (epoll)"))
}

/// A connection to make.
#[derive(Debug)]
pub struct Connect {
    /// The peer's address.
    pub remote: SocketAddr,
    /// Descriptor from which the data to send are read.
    pub input: OwnedFd,
    /// Descriptor to which received data are written.
    pub output: OwnedFd,
    /// How long the connection may take to end after a signal.
    pub grace: Duration,
}

/// Connects, and passes octets between the connection and two descriptors until one side is done.
///
/// # Errors
///
/// [`Error`] says what is missing, or what has failed.
pub fn connect(place: &Place, what: Connect, noted: &mut dyn FnMut(&str)) -> Result<Ended, Error> {
    let remote = what.remote;
    if !place.addresses.iter().any(|ours| ours.address.is_ipv4() == remote.is_ipv4()) {
        return Err(Error::Version(remote.ip()));
    }
    let signals = Signals::take().map_err(Error::system("wait for signals"))?;
    match run(place, Connecting { place, what, noted, signals })? {
        Ended::Failed(error) => Err(Error::Connection(remote, error)),
        Ended::OutputFailed(error) => Err(Error::os("what came cannot be written", error)),
        Ended::InputFailed(error) => Err(Error::os("what is to be sent cannot be read", error)),
        ended => Ok(ended),
    }
}

struct Connecting<'a> {
    place: &'a Place,
    what: Connect,
    noted: &'a mut dyn FnMut(&str),
    signals: Signals,
}

impl Work for Connecting<'_> {
    type Outcome = Ended;

    fn does(&self) -> String {
        format!("connect {}", self.what.remote)
    }

    fn ends(&self) -> Vec<SocketAddr> {
        self.place.addresses.iter().map(|ours| SocketAddr::new(ours.address, 0)).collect()
    }

    fn work<D: Driver>(
        self,
        engine: &mut Engine<D>,
        responder: Responder,
        about: &About,
        begin: impl FnOnce(&mut D) -> Result<(), Error>,
    ) -> Result<Ended, Error> {
        let Connect { remote, input, output, grace } = self.what;
        if let Some(note) = &about.note {
            (self.noted)(note);
        }
        let now = engine.now();
        let stack = engine.stack();
        let socket = stack.connect(now, None, remote).map_err(|error| match error {
            ConnectError::NoRoute => Error::NoRoute(remote.ip()),
            error => Error::Connect(error),
        })?;
        // Input is sent at once.
        stack.set_option(now, socket, SocketOption::NoDelay(true));
        let mut dialogue = Dialogue::new(socket, (input, output), self.signals, responder, grace)
            .map_err(Error::system("look at standard output"))?;
        begin(engine.driver())?;
        engine.run(&mut dialogue).map_err(Error::system("the device has failed"))?;
        Ok(dialogue.ended().unwrap_or(Ended::BySignal))
    }
}

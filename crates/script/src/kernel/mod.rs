//! The kernel of this machine: sockets in a network namespace of their own, and a TUN device whose other
//! end is held here.
//!
//! The kernel's TCP has processed a segment that is written to a TUN device when write(2) returns, so
//! an answer "at once" is there already, however busy the machine. Outgoing packets are seen by a packet
//! socket, which gives the time when the kernel sent them, not when this process looked. Only what this
//! process does can be late: so this thread gets real-time priority if it may, and [`crate::play`]
//! accounts for the rest.

mod info;
mod listener;
mod sockets;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use uncork_driver::tap::{Port, Settings};
use uncork_driver::{Driver as _, Offer};
use uncork_netns::Namespace;
use uncork_packet::{Checksum, Medium, Transmit};

use crate::conversation::HOST;
use crate::host::{Answer, Host, HostError, Sent, Tolerance};
use crate::language::{Call, Script, Setup, Side};
use crate::play::{Failure, play};
use listener::Wire;
use sockets::Sockets;

/// Octets of the largest packet on the link.
const MTU: u16 = 1500;

/// A tick is 10 ms at HZ=100, the longest that kernels have. A timer is late by an eighth of its time
/// (kernel/time/timer.c), and by what a busy machine adds; 40 and 200 ms stay distinguishable.
const TOLERANCE: Tolerance = Tolerance {
    early: Duration::from_millis(10),
    late: Duration::from_millis(100),
    at_once: Duration::from_millis(25),
    part: 8,
};

/// A host with the kernel's TCP, in the network namespace of its owner's thread.
#[derive(Debug)]
pub struct Kernel {
    began: SystemTime,
    device: Port,
    wire: Wire,
    sockets: Sockets,
}

impl Kernel {
    /// Plays a script in a namespace that is created for it. `label` becomes part of its name.
    ///
    /// # Errors
    ///
    /// [`HostError`] if it cannot be set up. The inner result is the script's verdict on the kernel.
    pub fn play(label: &str, script: &Script) -> Result<Result<String, Failure>, HostError> {
        if script.setup.old_quick_acks {
            let wants = "the kernel of this machine counts quick ACKs as it does";
            return Err(HostError::Lacking(wants.to_owned()));
        }
        let place = |error: &dyn std::fmt::Display| HostError::Place(error.to_string());
        let namespace = Namespace::new(label).map_err(|error| place(&error))?;
        // The device is created inside, and set up with ip(8), which works from outside.
        let (script, setup) = (script.clone(), script.setup.clone());
        thread::scope(|scope| {
            let (made, ready) = mpsc::channel::<()>();
            let (prepared, go) = mpsc::channel::<Result<(), HostError>>();
            let namespace = &namespace;
            scope.spawn(move || {
                // The channel is closed if the thread inside has ended before it created a device.
                if ready.recv().is_ok() {
                    let _ = prepared.send(prepare(namespace, &setup));
                }
            });
            let played = namespace.within(move || {
                let host = Self::begin(&script.setup, &made, &go);
                Ok(host.map(|mut host| play(&script, &mut host)))
            });
            played.unwrap_or_else(|error| Err(place(&error)))
        })
    }

    fn begin(
        setup: &Setup,
        made: &mpsc::Sender<()>,
        prepared: &mpsc::Receiver<Result<(), HostError>>,
    ) -> Result<Self, HostError> {
        // Of this thread's namespace, as with everything below.
        for (name, value) in baseline().chain(setup.sysctls.clone()) {
            let file = format!("/proc/sys/net/ipv4/{name}");
            if NEW.contains(&name.as_str()) && !std::fs::exists(&file).unwrap_or(false) {
                continue;
            }
            let done = std::fs::write(file, &value);
            done.map_err(|error| HostError::Place(format!("{name} = {value}: {error}")))?;
        }
        let settings = Settings {
            device: DEVICE.to_owned(),
            medium: Medium::Ip,
            mtu: Some(MTU),
            offload: false,
        };
        let device = Port::open(&settings);
        let device = device.map_err(|error| HostError::Place(error.to_string()))?;
        let stopped = || HostError::Place("the thread that prepares the device is gone".into());
        made.send(()).map_err(|_| stopped())?;
        prepared.recv().map_err(|_| stopped())??;
        // Without the privilege the thread keeps its ordinary priority.
        let _ = uncork_link::go_first();
        let began = SystemTime::now();
        let (wire, sockets) = (Wire::open(began)?, Sockets::default());
        Ok(Self { began, device, wire, sockets })
    }
}

const DEVICE: &str = "tun0";

/// Settings that older kernels lack, where the values here are those kernels' behaviour.
const NEW: [&str; 1] = ["tcp_syn_linear_timeouts"];

/// Settings that a script can rely on, whatever this machine's are.
fn baseline() -> impl Iterator<Item = (String, String)> {
    let settings = [
        ("tcp_autocorking", "1"),
        ("tcp_ecn", "2"),
        ("tcp_invalid_ratelimit", "500"),
        // The stack's value; Linux has had 4 MiB since 5.9.
        ("tcp_limit_output_bytes", "131072"),
        // An initial window of 64 KiB and a shift of 7, as the stack has them.
        ("tcp_rmem", "4096 131072 6291456"),
        ("tcp_sack", "1"),
        ("tcp_syncookies", "1"),
        // RFC 6298 doubles from the first retransmission on; Linux since 6.5 from the fifth.
        ("tcp_syn_linear_timeouts", "0"),
        ("tcp_timestamps", "1"),
        ("tcp_window_scaling", "1"),
        // No metrics are remembered for later connections.
        ("tcp_no_metrics_save", "1"),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn prepare(namespace: &Namespace, setup: &Setup) -> Result<(), HostError> {
    let ip = |arguments: &str| {
        namespace.ip(arguments).map_err(|error| HostError::Place(error.to_string()))
    };
    ip(&format!("address add {HOST}/24 dev {DEVICE}"))?;
    // Each segment is a packet of its own from the first queue on.
    ip(&format!("link set {DEVICE} gso_max_segs 1"))?;
    ip(&format!("link set {DEVICE} up"))?;
    if let Some((rate, bucket)) = setup.link {
        let mut tc = namespace.command("tc");
        tc.args(["qdisc", "add", "dev", DEVICE, "root", "tbf"]);
        tc.args(["rate", &format!("{rate}bit"), "burst", &bucket.to_string()]);
        tc.args(["limit", "1000000"]);
        uncork_netns::run(&mut tc).map_err(|error| HostError::Place(error.to_string()))?;
    }
    Ok(())
}

impl Host for Kernel {
    fn side(&self) -> Side {
        Side::Kernel
    }

    fn tolerance(&self) -> Tolerance {
        TOLERANCE
    }

    fn now(&self) -> Duration {
        self.began.elapsed().unwrap_or_default()
    }

    fn sleep_until(&mut self, at: Duration) -> Result<(), HostError> {
        thread::sleep(at.saturating_sub(self.now()));
        Ok(())
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), HostError> {
        let mut once = Some(packet);
        let offered = self.device.offer(&mut |slot| {
            let packet = once.take()?;
            slot.get_mut(..packet.len())?.copy_from_slice(packet);
            Some(Transmit {
                frame_bytes: packet.len() as u32,
                checksum: Checksum::Complete,
                segmentation: None,
                owner: None,
            })
        });
        match offered.map_err(HostError::system("write to the TUN device"))? {
            Offer::Taken => {}
            Offer::Declined | Offer::Full => {
                return Err(HostError::Place("the TUN device did not take a packet".to_owned()));
            }
        }
        self.device.flush().map_err(HostError::system("write to the TUN device"))
    }

    fn next(&mut self, until: Duration) -> Result<Option<Sent>, HostError> {
        // The device queues outgoing packets until they are read, and drops those for which it has no room.
        let taken = self.device.receive(usize::MAX, &mut |_| {});
        taken.map_err(HostError::system("read from the TUN device"))?;
        self.wire.next(until)
    }

    fn call(&mut self, call: &Call, data: &[u8]) -> Result<Answer, HostError> {
        let answer = self.sockets.call(call, data)?;
        Ok(answer.unwrap_or_else(|error| {
            Answer::Failed(Errno::from_raw(error.raw_os_error().unwrap_or_default()))
        }))
    }
}

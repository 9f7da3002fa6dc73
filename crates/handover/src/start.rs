//! The last step: sets the windows, repeats FINs, and ends repair mode.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, shutdown};
use uncork_stack::{Snapshot, SnapshotState};

use crate::error::Error;
use crate::options::{Queue, Window, allow_reuse, set_queue, set_repair, set_window, state};
use crate::segment::{Said, pretend};

// net/tcp_states.h
const FIN_WAIT_2: u8 = 5;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const CLOSING: u8 = 11;

const BETWEEN_LOOKS: Duration = Duration::from_micros(100);
/// How long the kernel is given in any case to receive a packet, and how much longer while such waits are rare: with an untrue
/// snapshot the wait is in vain, and the process that waits has others to serve.
const PATIENCE: Duration = Duration::from_millis(1);
const MORE_PATIENCE: Duration = Duration::from_millis(100);
/// One part in so many of the time may be spent on such waits.
const SHARE: u32 = 100;

/// Releases a socket that was made by [`crate::open`] and filled by [`crate::fill`]. The connection's segments
/// must reach the kernel by now: it asks the peer for its window, and the answer is for the kernel.
///
/// # Errors
///
/// [`Error::RawPrivilege`] without CAP_NET_RAW for a connection that is half closed; [`Error::Privilege`]; or
/// what else the kernel says.
pub fn start(socket: BorrowedFd<'_>, snapshot: &Snapshot) -> Result<(), Error> {
    let window = Window {
        snd_wl1: snapshot.window_seq,
        snd_wnd: snapshot.send_window_bytes,
        max_window: snapshot.largest_send_window_bytes,
        rcv_wnd: snapshot.receive_window_bytes,
        rcv_wup: snapshot.acknowledged,
    };
    set_window(socket, window).map_err(Error::doing("set the windows"))?;
    end(socket, snapshot)?;
    set_queue(socket, Queue::None)
        .and_then(|()| set_repair(socket, false))
        .and_then(|()| allow_reuse(socket))
        .map_err(Error::doing("let the connection go"))
}

/// Repeats both ends' FINs, as far as they were sent, in their original order, or the peer's reset.
fn end(socket: BorrowedFd<'_>, snapshot: &Snapshot) -> Result<(), Error> {
    let ours = |said: bool| if said { shut(socket) } else { Ok(()) };
    match snapshot.state {
        SnapshotState::Established => Ok(()),
        SnapshotState::FinWait1 => ours(snapshot.fin_sent),
        SnapshotState::FinWait2 => {
            shut(socket)?;
            hear(socket, snapshot, Said::HasOurFin, FIN_WAIT_2)
        }
        SnapshotState::Closing => {
            shut(socket)?;
            hear(socket, snapshot, Said::Fin, CLOSING)
        }
        SnapshotState::CloseWait => hear(socket, snapshot, Said::Fin, CLOSE_WAIT),
        SnapshotState::LastAck => {
            hear(socket, snapshot, Said::Fin, CLOSE_WAIT)?;
            ours(snapshot.fin_sent)
        }
        SnapshotState::Reset => hear(socket, snapshot, Said::Reset, CLOSE),
    }
}

/// Sends a segment in the peer's place, and checks that it was received: a packet to this host itself is received at
/// once, unless the kernel leaves that to a thread of its own.
fn hear(socket: BorrowedFd<'_>, snapshot: &Snapshot, said: Said, then: u8) -> Result<(), Error> {
    static WAITED: Mutex<Waited> = Mutex::new(Waited(None));
    pretend(snapshot, said)?;
    let begun = Instant::now();
    let has_heard = || Ok(state(socket).map_err(Error::doing("look at its state"))? == then);
    if has_heard()? {
        return Ok(());
    }
    let lock = || WAITED.lock().unwrap_or_else(PoisonError::into_inner);
    let patience = lock().patience(begun);
    let mut heard = Ok(false);
    while matches!(heard, Ok(false)) && begun.elapsed() < patience {
        std::thread::sleep(BETWEEN_LOOKS);
        heard = has_heard();
    }
    lock().note(begun, begun.elapsed());
    if heard? { Ok(()) } else { Err(Error::Unheard) }
}

/// Until when the time spent on earlier waits is being made up for.
struct Waited(Option<Instant>);

impl Waited {
    /// Returns how long a wait may take now.
    fn patience(&self, now: Instant) -> Duration {
        let owed = self.0.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        PATIENCE + MORE_PATIENCE.saturating_sub(owed / SHARE)
    }

    fn note(&mut self, now: Instant, waited: Duration) {
        let until = self.0.map_or(now, |until| until.max(now)) + waited * SHARE;
        self.0 = Some(until.min(now + MORE_PATIENCE * SHARE));
    }
}

/// Shuts the sending side down. In repair mode, with the send queue chosen, the FIN counts as sent without being sent.
fn shut(socket: BorrowedFd<'_>) -> Result<(), Error> {
    set_queue(socket, Queue::Send).map_err(Error::doing("choose a queue"))?;
    shutdown(socket.as_raw_fd(), Shutdown::Write)
        .map_err(|error| Error::doing("end its sending")(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lets_it_wait_in_vain_again_and_again_does_not_hold_it_up() {
        let (mut waited, begun) = (Waited(None), Instant::now());
        let mut now = begun;
        assert_eq!(waited.patience(now), PATIENCE + MORE_PATIENCE);
        for _ in 0..100 {
            let patience = waited.patience(now);
            now += patience;
            waited.note(now, patience);
        }
        assert!(now - begun < PATIENCE * 100 + MORE_PATIENCE * 2, "{:?}", now - begun);
        // After a while a wait may again take as long as ever.
        let after = now + MORE_PATIENCE * SHARE * 4;
        assert_eq!(waited.patience(after), PATIENCE + MORE_PATIENCE);
    }
}

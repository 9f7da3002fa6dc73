//! How a write is to be made.

use core::sync::atomic::Ordering::Relaxed;

use uncork_cork::{Limits, Verdict};

use crate::config::Hold;
use crate::gather::is_shut;
use crate::kernel::{Errno, Kernel};
use crate::local::local;
use crate::socket::{Socket, count, flag, held};
use crate::{Call, Posix, Socketed};

/// The plan for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// As the program made it.
    Pass,
    /// By send(2), or as the program made it, and nothing has to be done afterwards.
    Alone,
    /// By send(2), with MSG_MORE if `more`, followed by [`Posix::after_send`].
    Send {
        /// Whether the kernel is to hold it.
        more: bool,
    },
    /// By [`Posix::gather`].
    Gather,
    /// Not at all: earlier bytes wait for room in the connection, and this call must not block.
    Fail(Errno),
}

/// What the flags of a send(2) mean to the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// MSG_MORE: the program corks by itself.
    pub more: bool,
    /// Flags or control data with a meaning of their own (MSG_OOB, MSG_ZEROCOPY, MSG_EOR …).
    pub special: bool,
    /// MSG_DONTWAIT.
    pub nonblocking: bool,
}

/// Smallest full segment (RFC 9293 §3.7.1); until more is gathered the actual size does not matter.
const SMALLEST_SEGMENT: u32 = 536;

impl<K: Kernel> Posix<K> {
    /// Plans a write of `bytes` to a tracked socket.
    #[inline]
    pub fn plan_write(&self, at: Socketed<'_>, bytes: usize, flags: WriteFlags) -> Plan {
        let socket = at.socket;
        self.count_write(socket, bytes);
        if socket.is(flag::PASSED) || flags.more || flags.special || bytes == 0 {
            return self.pass_write(at, flags);
        }
        let (previous, vforked) =
            local(|local| (local.current.replace(at.fd), local.vforked.get()));
        if vforked && self.is_vfork_child() {
            local(|local| local.current.set(previous));
            return self.pass_write(at, flags);
        }
        if previous != at.fd && previous >= 0 {
            self.end_other(previous, Call::Turn);
        }
        if self.send_as_always(socket) {
            // Nagle is off, and nothing is held that a failed send would leave behind.
            const UNDELAYED: u32 = flag::ASKED_NODELAY | flag::FORCED_NODELAY;
            let alone = socket.is(UNDELAYED);
            return if alone { Plan::Alone } else { Plan::Send { more: false } };
        }
        if self.disabled.load(Relaxed) {
            return self.pass_write(at, flags);
        }
        const GATHERED: u32 = flag::GATHERS | flag::CONNECTED;
        // Memory for a buffer may have to wait for the end of a fork.
        if socket.flags() & (GATHERED | flag::SHARED) == GATHERED && !self.keeper.is_paused() {
            return Plan::Gather;
        }
        if socket.held.load(Relaxed) == held::KERNEL && self.may_hold_plainly(socket, bytes) {
            return Plan::Send { more: true };
        }
        if socket.is(flag::GATHERED)
            && let Err(error) = self.settle(at, flags.nonblocking)
        {
            return Plan::Fail(error);
        }
        let verdict = self.decide(socket, bytes, u32::MAX);
        let more = verdict == Verdict::Hold;
        if !more {
            self.before_unheld(at);
        }
        Plan::Send { more }
    }

    /// Takes the common case of a program that needs no help: the one write of a packet, on a
    /// socket that has never made more, with nothing held.
    #[inline]
    fn send_as_always(&self, socket: &Socket) -> bool {
        let plain = socket.flags() & (flag::CONNECTED | flag::GATHERED) == flag::CONNECTED;
        let predicts = !self.settings().autocork;
        if !plain || !predicts || socket.held.load(Relaxed) != 0 || !socket.send_only() {
            return false;
        }
        count(&socket.predicted, 1);
        socket.why.store(Call::Predicted as u8, Relaxed);
        true
    }

    /// Takes the common case of [`Posix::decide`] for a burst that the kernel holds already.
    #[inline]
    fn may_hold_plainly(&self, socket: &Socket, bytes: usize) -> bool {
        !self.settings().autocork && socket.hold_another(bytes, u32::MAX)
    }

    /// Asks the policy about a write.
    #[inline]
    pub(crate) fn decide(&self, socket: &Socket, bytes: usize, limit_bytes: u32) -> Verdict {
        let settings = self.settings();
        let limits =
            Limits { writes: settings.max_qlen, bytes: limit_bytes, predict: !settings.autocork };
        let mut cork = socket.cork();
        let verdict = cork.handle_write(bytes, limits);
        socket.set_cork(cork);
        if verdict != Verdict::Hold {
            self.note_verdict(socket, verdict);
        }
        verdict
    }

    /// Notes the result of a send that [`Posix::plan_write`] or [`Posix::gather`] asked for.
    #[inline]
    pub fn after_send(&self, at: Socketed<'_>, more: bool, succeeded: bool) {
        let socket = at.socket;
        if !succeeded {
            // What the send was to take along may still be there.
            if !more {
                self.note_held(at, held::KERNEL);
            }
            return;
        }
        if !socket.is(flag::CONNECTED) {
            self.connected(at);
        }
        if more {
            self.note_held(at, held::KERNEL);
        } else {
            self.ensure_nodelay(at);
        }
    }

    /// Plans a write that the policy does not decide about. What is held goes first, unless this is
    /// a child of vfork: the descriptor may be another one in its own table, and the timer thread
    /// that would end a hold is its parent's.
    #[cold]
    fn pass_write(&self, at: Socketed<'_>, flags: WriteFlags) -> Plan {
        if self.is_vfork_child() {
            return Plan::Pass;
        }
        let socket = at.socket;
        if socket.is(flag::OVER) {
            self.goes_on_after_exec();
        }
        if is_shut(socket) {
            return Plan::Fail(Errno::EPIPE);
        }
        if flags.more && socket.set(flag::USES_MORE) {
            self.say_passed(at);
        }
        if socket.held.load(Relaxed) != 0 {
            self.release(at, Call::Passed);
        }
        if socket.is(flag::GATHERED)
            && let Err(error) = self.settle(at, flags.nonblocking)
        {
            return Plan::Fail(error);
        }
        if self.keeps_ledger() {
            self.ledger_passed(socket);
        }
        Plan::Pass
    }

    /// Notes that the first write has gone through: the socket is connected.
    #[cold]
    fn connected(&self, at: Socketed<'_>) {
        let settings = self.settings();
        let gathers = settings.hold == Hold::User && settings.max_qlen == 0;
        if gathers && !self.kernel_only.load(Relaxed) {
            at.socket.full_bytes.store(SMALLEST_SEGMENT, Relaxed);
            at.socket.set(flag::GATHERS | flag::GATHERED);
        }
        at.socket.set(flag::CONNECTED);
    }

    /// Turns Nagle off after a send that is not held: setting TCP_NODELAY pushes, and set before
    /// the send it would push what the send is to take along. The first send of a connection does
    /// not need it: nothing is in flight that Nagle could wait for.
    #[inline]
    pub(crate) fn ensure_nodelay(&self, at: Socketed<'_>) {
        let flags = at.socket.flags();
        if flags & (flag::ASKED_NODELAY | flag::FORCED_NODELAY) != 0 {
            return;
        }
        if flags & flag::SENT == 0 {
            at.socket.set(flag::SENT);
        } else {
            at.socket.set(flag::FORCED_NODELAY);
            self.kernel.push(at.fd);
        }
    }
}

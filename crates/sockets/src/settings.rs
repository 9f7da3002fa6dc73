//! setsockopt(2), getsockopt(2), and what ioctl(2) tells of queues.

use std::os::fd::RawFd;
use std::sync::Arc;

use nix::errno::Errno;
use uncork_stack::{Config, Info, Ready, SocketOption};

use crate::asked::{Asked, Meaning, TCP_FASTOPEN_KEY, is_of_handshakes};
use crate::outside::Outside;
use crate::table::{Kind, Socket};
use crate::{Sockets, connected, connection, errno, info};

/// linux/sockios.h; SIOCOUTQ is TIOCOUTQ by another name.
const SIOCOUTQNSD: u64 = 0x894b;
/// The options of linux/tcp.h and asm-generic/socket.h that libc does not have everywhere.
const TCP_CC_INFO: i32 = 26;
const SO_MEMINFO: i32 = 55;

/// Returns how long the send and the receive buffer of a new connection are.
fn buffers(config: &Config) -> (u32, u32) {
    (config.send_buffer_bytes.0, config.receive_buffer_bytes.0)
}

/// Returns SO_MEMINFO (sk_get_meminfo) of a connection, none if it is over, in octets of data: what is kept beside is left out.
fn memory(info: Option<&Info>, asked: &Asked, buffers: (u32, u32)) -> Vec<u8> {
    let length = |name| {
        let value = asked.get(libc::SOL_SOCKET, name, buffers);
        value.and_then(|value| value.first_chunk().copied()).map_or(0, u32::from_ne_bytes)
    };
    let of = |bytes: fn(&Info) -> u32| info.map_or(0, bytes);
    // By position: nothing is reserved ahead, kept for options, or waits for a lock; and drops are not counted by connection.
    let [forward, options, backlog, drops] = [0; 4];
    let words = [
        of(|info| info.readable_bytes),
        length(libc::SO_RCVBUF),
        of(|info| info.device_bytes),
        length(libc::SO_SNDBUF),
        forward,
        of(|info| info.queued_bytes),
        options,
        backlog,
        drops,
    ];
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

impl<O: Outside> Sockets<O> {
    /// Does setsockopt(2). False: it is an option that the kernel's descriptor has to keep.
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn set_option(
        &self,
        fd: RawFd,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<bool, Errno> {
        let known = self.call(fd, |world| {
            let (slot, socket) = world.table.find(fd)?;
            if level == libc::SOL_IPV6 && !socket.ipv6 {
                return Err(Errno::ENOPROTOOPT);
            }
            if is_of_handshakes(level, name) && socket.is_connection() {
                // The handshake is over, and the kernel's descriptor knows what is to be read back. Options that it would take as
                // it has no connection itself, but that the kernel takes of no connection, are refused (do_tcp_setsockopt).
                let takes = matches!(name, libc::TCP_DEFER_ACCEPT | TCP_FASTOPEN_KEY);
                return if takes { Ok(false) } else { Err(Errno::EINVAL) };
            }
            let option = match Arc::make_mut(&mut socket.asked).set(level, name, value)? {
                Meaning::Told(option) => option,
                Meaning::Kept => {
                    if (level, name) == (libc::SOL_SOCKET, libc::SO_RCVLOWAT) {
                        world.note(slot);
                    }
                    if is_of_handshakes(level, name) {
                        world.tell_fast_open(slot);
                        world.tell_instances();
                    }
                    return Ok(true);
                }
                Meaning::Other => return Ok(false),
            };
            match &socket.kind {
                Kind::Connection { place, .. } => {
                    let place = *place;
                    let (link, now) = world.link(place)?;
                    link.stack().set_option(now, place.id, option);
                    if changes_readiness(option) {
                        world.note(slot);
                    }
                }
                Kind::Listener(listener) => {
                    for (link, id) in listener.on.clone() {
                        if let Some(link) = world.links().get_mut(link) {
                            link.stack().set_listener_option(id, option);
                        }
                    }
                    world.tell_instances();
                }
                Kind::Elsewhere { .. } => return Err(Errno::ECONNABORTED),
            }
            Ok(true)
        })?;
        // TCP_CORK that is turned off lets something go.
        self.keeper_must_send(self.at(fd));
        Ok(known)
    }

    /// Takes the error of a connection, which is told once (SO_ERROR).
    ///
    /// # Errors
    ///
    /// The connection's error; there is no other.
    pub fn take_error(&self, fd: RawFd) -> Result<(), Errno> {
        let error = self.call(fd, |world| {
            let place = connection(world.table.find(fd)?.1)?;
            // For what has come since.
            world.turn_if_due();
            Ok(world.link(place)?.0.stack().take_error(place.id))
        });
        error.ok().flatten().map_or(Ok(()), |error| Err(errno::of_connection(error)))
    }

    /// Puts an error back that was taken by a call with something else to tell: the next call tells it.
    pub fn put_back_error(&self, fd: RawFd, error: Errno) {
        let Some(error) = errno::to_connection(error) else { return };
        let _ = self.call(fd, |world| {
            let place = connection(world.table.find(fd)?.1)?;
            world.link(place)?.0.stack().put_back_error(place.id, error);
            Ok(())
        });
    }

    /// Does getsockopt(2) of a connection: returns the value, of which the caller takes as much as it has room for.
    /// `Ok(None)`: the kernel's descriptor has it.
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn option(&self, fd: RawFd, level: i32, name: i32) -> Result<Option<Vec<u8>>, Errno> {
        self.call(fd, |world| {
            let (_, socket) = world.table.find(fd)?;
            let Socket { kind: Kind::Connection { place, .. }, asked, ipv6, v6_only, .. } = socket
            else {
                return Ok(None);
            };
            let v6_only = *v6_only;
            if level == libc::SOL_IPV6 && !*ipv6 || is_of_handshakes(level, name) {
                // The kernel knows how to refuse that.
                return Ok(None);
            }
            let (place, asked) = (*place, Arc::clone(asked));
            if matches!(
                (level, name),
                (libc::SOL_SOCKET, libc::SO_ERROR | SO_MEMINFO) | (libc::SOL_TCP, libc::TCP_INFO)
            ) {
                // For what has come since.
                world.turn_if_due();
            }
            let (link, now) = world.link(place)?;
            let stack = link.stack();
            let value = match (level, name) {
                (libc::SOL_SOCKET, libc::SO_ERROR) => {
                    let error = stack.take_error(place.id).map(errno::of_connection);
                    error.map_or(0, |error| error as i32).cast_unsigned()
                }
                (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => 0,
                (libc::SOL_IPV6, libc::IPV6_V6ONLY) => v6_only.into(),
                (libc::SOL_SOCKET, SO_MEMINFO) => {
                    let buffers = buffers(stack.config());
                    let info = stack.info(now, place.id);
                    return Ok(Some(memory(info.as_ref(), &asked, buffers)));
                }
                (libc::SOL_TCP, libc::TCP_INFO) => {
                    let info = stack.info(now, place.id);
                    return Ok(Some(info.map_or_else(info::of_none, |info| info::of(&info))));
                }
                // CUBIC has none.
                (libc::SOL_TCP, TCP_CC_INFO) => return Ok(Some(Vec::new())),
                (libc::SOL_TCP, libc::TCP_MAXSEG) => {
                    stack.info(now, place.id).map_or(536, |info| info.segment_bytes)
                }
                (libc::SOL_IP, libc::IP_MTU) | (libc::SOL_IPV6, libc::IPV6_MTU) => {
                    stack.info(now, place.id).map_or(0, |info| info.path_mtu.into())
                }
                _ => {
                    return Ok(asked.get(level, name, buffers(stack.config())));
                }
            };
            Ok(Some(value.to_ne_bytes().to_vec()))
        })
    }

    /// Returns whether sending with MSG_ZEROCOPY is to tell when the octets are free again (SO_ZEROCOPY).
    #[must_use]
    pub fn has_zero_copy(&self, fd: RawFd) -> bool {
        self.call(fd, |world| Ok(world.table.find(fd)?.1.asked.zero_copy)).unwrap_or(false)
    }

    /// Returns what recvmsg(2) tells beside the octets, if it is to (TCP_INQ): how many are left, and after the peer's FIN one
    /// instead of none (tcp_inq_hint).
    #[must_use]
    pub fn left_to_tell(&self, fd: RawFd) -> Option<i32> {
        let left = self.call(fd, |world| {
            let (_, socket) = world.table.find(fd)?;
            if !socket.asked.tells_what_is_left {
                return Ok(None);
            }
            let (_, place) = connected(world, fd)?;
            let (link, now) = world.link(place)?;
            let left = link.stack().readable_bytes(place.id);
            let over = link.stack().readiness(now, place.id).has(Ready::PEER_CLOSED);
            let left = if left == 0 { u32::from(over) } else { left };
            Ok(Some(i32::try_from(left).unwrap_or(i32::MAX)))
        });
        left.ok().flatten()
    }

    /// Answers FIONREAD, SIOCOUTQ and SIOCOUTQNSD (tcp(7)); `Ok(None)` for what is none of these.
    ///
    /// # Errors
    ///
    /// As ioctl(2) has them.
    pub fn queue(&self, fd: RawFd, request: u64) -> Result<Option<i32>, Errno> {
        self.call(fd, |world| {
            if !matches!(request, libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD) {
                return Ok(None);
            }
            let (_, place) = connected(world, fd).map_err(|error| match error {
                // A listener has no queues of octets.
                Errno::ENOTCONN => Errno::EINVAL,
                other => other,
            })?;
            // For what has come since.
            world.turn_if_due();
            let (link, now) = world.link(place)?;
            let stack = link.stack();
            let bytes = match request {
                libc::FIONREAD => stack.readable_bytes(place.id),
                libc::TIOCOUTQ => stack.info(now, place.id).map_or(0, |info| info.queued_bytes),
                _ => stack.info(now, place.id).map_or(0, |info| info.unsent_bytes),
            };
            Ok(Some(i32::try_from(bytes).unwrap_or(i32::MAX)))
        })
    }
}

/// Returns whether something may be readable or writable from now on that was not (`sk_setsockopt`, `do_tcp_setsockopt` and
/// `tcp_set_rcvlowat` wake threads that wait).
fn changes_readiness(option: SocketOption) -> bool {
    use SocketOption::{NotSentLowWater, ReceiveAtLeast, SendBuffer};
    matches!(option, SendBuffer(_) | NotSentLowWater(_) | ReceiveAtLeast(_))
}

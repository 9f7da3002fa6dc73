//! Socket options. One that the stack does not have fails with ENOPROTOOPT.

use std::os::fd::RawFd;

use nix::errno::Errno;
use uncork_sockets::{Meaning, info};
use uncork_stack::{FastOpen, FastOpenKeys, SocketOption};

use crate::table::Stage;
use crate::world::World;
use uncork_sockets::errno::of_connection as errno_of;

/// linux/tcp.h, linux/in.h, asm-generic/socket.h: those that libc does not have everywhere.
const TCP_CC_INFO: i32 = 26;
const SO_MEMINFO: i32 = 55;
/// Words of SO_MEMINFO (SK_MEMINFO_VARS).
const MEMORY_WORDS: usize = 9;

/// Reads an option's int.
fn int(value: &[u8]) -> Result<i32, Errno> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)
}

fn unsigned(value: &[u8]) -> Result<u32, Errno> {
    u32::try_from(int(value)?).map_err(|_| Errno::EINVAL)
}

impl World {
    /// setsockopt(2).
    ///
    /// # Errors
    ///
    /// The errors of setsockopt(2).
    pub fn set_option(
        &mut self,
        fd: RawFd,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        let Some(option) = self.understand(fd, level, name, value)? else { return Ok(()) };
        let now = self.now;
        let socket = self.table.socket(fd)?;
        match socket.stage {
            Stage::Connecting { id } | Stage::Open { id } => {
                self.stack().set_option(now, id, option);
            }
            Stage::Listening { id } => self.stack().set_listener_option(id, option),
            Stage::New { .. } => {}
        }
        Ok(())
    }

    /// Returns the option for the stack; `None` if it changes nothing here.
    fn understand(
        &mut self,
        fd: RawFd,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<Option<SocketOption>, Errno> {
        match (level, name) {
            // Addresses are always free again here: nothing outlives a script. Zero copy falls back to
            // copying, as in Linux when it cannot send from the program's memory; only MSG_ERRQUEUE could
            // reveal the difference.
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_ZEROCOPY) => return Ok(None),
            // Our packets never allow fragmentation; DONT would permit it, and has no other effect.
            (libc::SOL_IP, libc::IP_MTU_DISCOVER) => {
                let way = value.first().copied().map(i32::from).ok_or(Errno::EINVAL)?;
                let kept = [libc::IP_PMTUDISC_DONT, libc::IP_PMTUDISC_WANT, libc::IP_PMTUDISC_DO];
                return if kept.contains(&way) { Ok(None) } else { Err(Errno::ENOPROTOOPT) };
            }
            (libc::SOL_TCP, _) if self.understand_fast(fd, name, value)? => return Ok(None),
            _ => {}
        }
        match self.table.socket(fd)?.asked.set(level, name, value)? {
            Meaning::Told(option) => Ok(Some(option)),
            Meaning::Kept => Ok(None),
            Meaning::Other => Err(Errno::ENOPROTOOPT),
        }
    }

    /// Handles options of Fast Open, which the stack gets on connect or listen; returns whether this was one.
    fn understand_fast(&mut self, fd: RawFd, name: i32, value: &[u8]) -> Result<bool, Errno> {
        let asked = &mut self.table.socket(fd)?.fast;
        if name == libc::TCP_FASTOPEN_KEY {
            let key = |at: usize| value.get(at..)?.first_chunk::<16>().copied();
            let (primary, backup) = match value.len() {
                16 => (key(0), None),
                32 => (key(0), key(16)),
                _ => (None, None),
            };
            asked.keys = Some(FastOpenKeys::new(primary.ok_or(Errno::EINVAL)?, backup));
            return self.tell_fast_listener(fd).map(|()| true);
        }
        let on = || int(value).map(|value| value != 0);
        match name {
            libc::TCP_FASTOPEN_CONNECT => {
                if !self.follow_fast_open().has(FastOpen::CLIENT) {
                    return Err(Errno::EOPNOTSUPP);
                }
                let asked = &mut self.table.socket(fd)?.fast;
                asked.connect = on()?;
                return Ok(true);
            }
            libc::TCP_FASTOPEN_NO_COOKIE => {
                asked.without_cookie = on()?;
                return self.tell_fast_listener(fd).map(|()| true);
            }
            libc::TCP_FASTOPEN => {
                asked.pending = unsigned(value)?;
                return self.tell_fast_listener(fd).map(|()| true);
            }
            _ => {}
        }
        Ok(false)
    }

    /// getsockopt(2): returns the octets of the value, which the caller truncates to its room.
    ///
    /// # Errors
    ///
    /// The errors of getsockopt(2).
    pub fn option(&mut self, fd: RawFd, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
        let now = self.now;
        let stage = self.table.socket(fd)?.stage;
        let connection = self.connection(fd).ok();
        let asked = self.table.socket(fd)?.asked.clone();
        // A buffer size that was never set reads as the initial value, Linux's tcp_wmem for SO_SNDBUF.
        let defaults = self.stack().config();
        let (send_bytes, receive_bytes) =
            (defaults.send_buffer_bytes.0, defaults.receive_buffer_bytes.0);
        let value = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let error = connection.and_then(|id| self.stack().take_error(id));
                error.map_or(0, |error| errno_of(error) as u32)
            }
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                u32::from(matches!(stage, Stage::Listening { .. }))
            }
            (libc::SOL_SOCKET, SO_MEMINFO) => return Ok(vec![0; MEMORY_WORDS * 4]),
            (libc::SOL_TCP, libc::TCP_INFO) => {
                let info = connection.and_then(|id| self.stack().info(now, id));
                return Ok(info.map_or_else(info::of_none, |info| info::of(&info)));
            }
            // CUBIC has none.
            (libc::SOL_TCP, TCP_CC_INFO) => return Ok(Vec::new()),
            (libc::SOL_TCP, libc::TCP_MAXSEG) if connection.is_some() => {
                let info = connection.and_then(|id| self.stack().info(now, id));
                info.map_or(0, |info| info.segment_bytes)
            }
            _ => {
                let buffers = (send_bytes, receive_bytes);
                return asked.get(level, name, buffers).ok_or(Errno::ENOPROTOOPT);
            }
        };
        Ok(value.to_ne_bytes().to_vec())
    }
}

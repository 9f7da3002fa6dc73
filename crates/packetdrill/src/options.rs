//! Socket options. One that the stack does not have says ENOPROTOOPT.

use std::os::fd::RawFd;
use std::time::Duration;

use nix::errno::Errno;
use uncork_stack::{Algorithm, FastOpen, FastOpenKeys, SocketOption};

use crate::calls::errno_of;
use crate::info;
use crate::table::Stage;
use crate::world::World;

/// linux/tcp.h, linux/in.h, asm-generic/socket.h: those that libc does not have everywhere.
const TCP_CC_INFO: i32 = 26;
const SO_MEMINFO: i32 = 55;
/// Words of SO_MEMINFO (SK_MEMINFO_VARS).
const MEMORY_WORDS: usize = 9;

/// What an SO_SNDBUF that is read back begins with is Linux's tcp_wmem.
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
    /// As the call has them.
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
        socket.asked.keep(option);
        match socket.stage {
            Stage::Connecting { id } | Stage::Open { id } => {
                self.stack().set_option(now, id, option);
            }
            Stage::Listening { id } => self.stack().set_listener_option(id, option),
            Stage::New { .. } => {}
        }
        Ok(())
    }

    /// What the stack is to be told; nothing for what changes nothing here.
    fn understand(
        &mut self,
        fd: RawFd,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<Option<SocketOption>, Errno> {
        let asked = &mut self.table.socket(fd)?.asked;
        let option = match (level, name) {
            // Addresses are always free again here: nothing outlives a script. Copying is what
            // Linux does, too, when it cannot send from the program's memory; it may never be
            // told apart but by MSG_ERRQUEUE.
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_ZEROCOPY) => return Ok(None),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                let bytes = unsigned(value)?;
                asked.send_buffer_bytes = Some(bytes.saturating_mul(2).max(4608));
                SocketOption::SendBuffer(bytes)
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                let bytes = unsigned(value)?;
                asked.receive_buffer_bytes = Some(bytes.saturating_mul(2).max(2304));
                SocketOption::ReceiveBuffer(bytes)
            }
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
                asked.keep_alive = (int(value)? != 0).then_some(asked.keep_alive_wanted);
                SocketOption::KeepAlive(asked.keep_alive)
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                // struct linger: whether, and how many seconds.
                let seconds = unsigned(value.get(4..).ok_or(Errno::EINVAL)?)?;
                let seconds = u16::try_from(seconds).unwrap_or(u16::MAX);
                SocketOption::Linger((int(value)? != 0).then_some(seconds))
            }
            (libc::SOL_IP, libc::IP_TOS) => {
                // One octet does as well (ip(7)).
                let short = value.first().copied().filter(|_| value.len() < 4);
                let class = short.map_or_else(|| int(value), |class| Ok(class.into()))?;
                SocketOption::TrafficClass(u8::try_from(class).map_err(|_| Errno::EINVAL)?)
            }
            (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                SocketOption::TrafficClass(u8::try_from(int(value)?).map_err(|_| Errno::EINVAL)?)
            }
            // Our packets never ask to be fragmented; DONT permits it, and that is all it does.
            (libc::SOL_IP, libc::IP_MTU_DISCOVER) => {
                let way = value.first().copied().map(i32::from).ok_or(Errno::EINVAL)?;
                let kept = [libc::IP_PMTUDISC_DONT, libc::IP_PMTUDISC_WANT, libc::IP_PMTUDISC_DO];
                return if kept.contains(&way) { Ok(None) } else { Err(Errno::ENOPROTOOPT) };
            }
            (libc::SOL_TCP, _) => return self.understand_tcp(fd, name, value),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(Some(option))
    }

    /// Options of Fast Open, which are not the stack's until it connects or listens; whether this was one.
    fn understand_fast(&mut self, fd: RawFd, name: i32, value: &[u8]) -> Result<bool, Errno> {
        let asked = &mut self.table.socket(fd)?.asked;
        if name == libc::TCP_FASTOPEN_KEY {
            let key = |at: usize| value.get(at..)?.first_chunk::<16>().copied();
            let (primary, backup) = match value.len() {
                16 => (key(0), None),
                32 => (key(0), key(16)),
                _ => (None, None),
            };
            asked.fast_keys = Some(FastOpenKeys::new(primary.ok_or(Errno::EINVAL)?, backup));
            return self.tell_fast_listener(fd).map(|()| true);
        }
        let on = int(value)? != 0;
        match name {
            libc::TCP_FASTOPEN_CONNECT => {
                if !self.follow_fast_open().has(FastOpen::CLIENT) {
                    return Err(Errno::EOPNOTSUPP);
                }
                let asked = &mut self.table.socket(fd)?.asked;
                asked.fast_connect = on;
                return Ok(true);
            }
            libc::TCP_FASTOPEN_NO_COOKIE => {
                asked.without_cookie = on;
                return self.tell_fast_listener(fd).map(|()| true);
            }
            libc::TCP_FASTOPEN => {
                asked.fast_pending = unsigned(value)?;
                return self.tell_fast_listener(fd).map(|()| true);
            }
            _ => {}
        }
        Ok(false)
    }

    fn understand_tcp(
        &mut self,
        fd: RawFd,
        name: i32,
        value: &[u8],
    ) -> Result<Option<SocketOption>, Errno> {
        if name == libc::TCP_CONGESTION {
            return match value.strip_suffix(b"\0").unwrap_or(value) {
                b"cubic" => Ok(Some(SocketOption::Congestion(Algorithm::Cubic))),
                b"reno" => Ok(Some(SocketOption::Congestion(Algorithm::NewReno))),
                _ => Err(Errno::ENOENT),
            };
        }
        let on = int(value).map(|value| value != 0);
        let on = if self.understand_fast(fd, name, value)? { return Ok(None) } else { on? };
        let asked = &mut self.table.socket(fd)?.asked;
        Ok(Some(match name {
            libc::TCP_NODELAY => {
                asked.no_delay = on;
                SocketOption::NoDelay(on)
            }
            libc::TCP_CORK => {
                asked.cork = on;
                SocketOption::Cork(on)
            }
            libc::TCP_SYNCNT => {
                SocketOption::SynRetries(u8::try_from(int(value)?).map_err(|_| Errno::EINVAL)?)
            }
            libc::TCP_QUICKACK => SocketOption::QuickAck(on),
            libc::TCP_MAXSEG => {
                let bytes = u16::try_from(int(value)?).map_err(|_| Errno::EINVAL)?;
                // do_tcp_setsockopt: not below TCP_MIN_MSS, not above MAX_TCP_WINDOW.
                if !(88..=32_767).contains(&bytes) {
                    return Err(Errno::EINVAL);
                }
                asked.most_segment_bytes = Some(bytes);
                SocketOption::MaxSegment(bytes)
            }
            libc::TCP_NOTSENT_LOWAT => {
                asked.not_sent_low_water = int(value)?.cast_unsigned();
                SocketOption::NotSentLowWater(
                    Some(asked.not_sent_low_water).filter(|&bytes| bytes > 0 && bytes < u32::MAX),
                )
            }
            libc::TCP_USER_TIMEOUT => {
                asked.user_timeout_millis = unsigned(value)?;
                let millis = u64::from(asked.user_timeout_millis);
                SocketOption::UserTimeout((millis > 0).then(|| Duration::from_millis(millis)))
            }
            libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT => {
                let wanted = &mut asked.keep_alive_wanted;
                let seconds = Duration::from_secs(unsigned(value)?.into());
                match name {
                    libc::TCP_KEEPIDLE => wanted.idle = seconds,
                    libc::TCP_KEEPINTVL => wanted.interval = seconds,
                    _ => wanted.probes = u8::try_from(int(value)?).map_err(|_| Errno::EINVAL)?,
                }
                if asked.keep_alive.is_none() {
                    return Ok(None);
                }
                asked.keep_alive = Some(*wanted);
                SocketOption::KeepAlive(asked.keep_alive)
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }))
    }

    /// getsockopt(2): the octets of the value, of which the caller takes as many as he has room for.
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn option(&mut self, fd: RawFd, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
        let now = self.now;
        let stage = self.table.socket(fd)?.stage;
        let connection = self.connection(fd).ok();
        let asked = self.table.socket(fd)?.asked.clone();
        let defaults = self.stack().config();
        let (send_bytes, receive_bytes) =
            (defaults.send_buffer_bytes.0, defaults.receive_buffer_bytes.0);
        let value = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let error = connection.and_then(|id| self.stack().take_error(id));
                error.map_or(0, |error| errno_of(error) as u32)
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => asked.send_buffer_bytes.unwrap_or(send_bytes),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                asked.receive_buffer_bytes.unwrap_or(receive_bytes)
            }
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM.cast_unsigned(),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                u32::from(matches!(stage, Stage::Listening { .. }))
            }
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => u32::from(asked.keep_alive.is_some()),
            (libc::SOL_SOCKET, SO_MEMINFO) => return Ok(vec![0; MEMORY_WORDS * 4]),
            (libc::SOL_TCP, libc::TCP_INFO) => {
                let info = connection.and_then(|id| self.stack().info(now, id));
                return Ok(info.map_or_else(info::of_none, |info| info::of(&info)));
            }
            // CUBIC has none.
            (libc::SOL_TCP, TCP_CC_INFO) => return Ok(Vec::new()),
            (libc::SOL_TCP, libc::TCP_NODELAY) => u32::from(asked.no_delay),
            (libc::SOL_TCP, libc::TCP_CORK) => u32::from(asked.cork),
            (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT) => asked.not_sent_low_water,
            (libc::SOL_TCP, libc::TCP_USER_TIMEOUT) => asked.user_timeout_millis,
            (libc::SOL_TCP, libc::TCP_MAXSEG) => {
                let info = connection.and_then(|id| self.stack().info(now, id));
                match info {
                    Some(info) => info.segment_bytes,
                    // Before there is a connection: what was asked for, or RFC 1122's.
                    None => asked.most_segment_bytes.unwrap_or(536).into(),
                }
            }
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(value.to_ne_bytes().to_vec())
    }
}

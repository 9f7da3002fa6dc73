//! The options of another process's socket.
//!
//! They are read with two calls of getsockopt on a duplicate of the descriptor (pidfd_getfd(2)).
//! That is allowed to a process that may trace the other, and changes nothing for that.

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use uncork_doctor::Process;

/// Returns whether TCP_NODELAY is in force on the socket with this inode, if that can be seen.
pub(super) fn nodelay(process: &Process, inode: u64) -> Option<bool> {
    let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let socket = pidfd_getfd(&handle, process.fd?, PidfdGetfdFlags::empty()).ok()?;
    // The descriptor may refer to another socket by now.
    let same = rustix::fs::fstat(&socket).is_ok_and(|found| found.st_ino == inode);
    same.then(|| rustix::net::sockopt::tcp_nodelay(&socket).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    use super::super::processes;
    use super::*;

    #[test]
    fn the_option_is_seen_as_it_is_and_another_socket_is_not_taken_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = std::process::id();
        let sockets = processes::sockets(own);
        let (inode, fd) = *sockets.iter().find(|(_, fd)| *fd == stream.as_raw_fd()).unwrap();
        let process = Process { pid: own, fd: Some(fd), ..Process::default() };
        for on in [true, false] {
            stream.set_nodelay(on).unwrap();
            assert_eq!(nodelay(&process, inode), Some(on));
        }
        assert_eq!(nodelay(&process, inode + 1), None);
    }
}

//! Notification of a service manager when a service is ready: a datagram to the socket named in the environment
//! (sd_notify(3), `Type=notify`), so that what is started after the service finds it.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const VARIABLE: &str = "NOTIFY_SOCKET";
const READY: &[u8] = b"READY=1";

/// Says that the service is ready. If the manager does not listen, that cannot be remedied here.
pub(super) fn tell_ready() {
    if let Some(name) = std::env::var_os(VARIABLE) {
        let _ = say(&name, READY);
    }
}

fn say(name: &OsStr, what: &[u8]) -> io::Result<()> {
    let to = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that is busy must not hold up all programs.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(what, &to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_to_a_socket_with_a_path_or_without() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let abstracts = format!("@uncork-notify-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let name = SocketAddr::from_abstract_name(&abstracts[1..]).unwrap();
        let without = UnixDatagram::bind_addr(&name).unwrap();
        for (socket, name) in [(at_path, path.as_os_str()), (without, OsStr::new(&abstracts))] {
            say(name, READY).unwrap();
            let mut heard = [0; 32];
            let count = socket.recv(&mut heard).unwrap();
            assert_eq!(&heard[..count], READY);
        }
        assert!(say(directory.path().join("nobody").as_os_str(), READY).is_err());
    }
}

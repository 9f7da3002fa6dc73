//! The owner of a listening Unix socket.

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, Nla as _};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::unix::nlas::{Nla, UnixDiagName};
use netlink_packet_sock_diag::unix::{ShowFlags, StateFlags, UnixRequest, UnixResponse};

use crate::{SockDiag, message};

// linux/unix_diag.h
const UDIAG_SHOW_UID: u32 = 0x40;
const UNIX_DIAG_UID: u16 = 7;

impl SockDiag {
    /// Returns the user id of the listener at an abstract name (unix(7)); `None` if there is none. Connecting to
    /// ask the listener would need room in its backlog.
    ///
    /// # Errors
    /// The kernel's error: without CONFIG_UNIX_DIAG it does not know the request.
    pub fn listens_at(&mut self, name: &[u8]) -> io::Result<Option<u32>> {
        let request = UnixRequest {
            state_flags: StateFlags::LISTEN,
            inode: 0,
            show_flags: ShowFlags::NAME | ShowFlags::from_bits_retain(UDIAG_SHOW_UID),
            cookie: [0xff; 8],
        };
        let request = message(SockDiagMessage::UnixRequest(request), NLM_F_REQUEST | NLM_F_DUMP);
        let mut found = None;
        self.ask(&request, |answer| {
            if let SockDiagMessage::UnixResponse(response) = answer
                && let Some(uid) = owner(&response, name)
            {
                found = Some(uid);
            }
        })?;
        Ok(found)
    }
}

/// Returns the socket's owner, if it has this name.
fn owner(response: &UnixResponse, name: &[u8]) -> Option<u32> {
    let is_it = |nla: &Nla| matches!(nla, Nla::Name(UnixDiagName::Abstract(its)) if its == name);
    if !response.nlas.iter().any(is_it) {
        return None;
    }
    response.nlas.iter().find_map(|nla| match nla {
        Nla::Other(other) if other.kind() == UNIX_DIAG_UID => {
            let mut value = [0; 4];
            (other.value_len() == value.len()).then(|| other.emit_value(&mut value))?;
            Some(u32::from_ne_bytes(value))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt as _;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

    use super::*;

    #[test]
    fn it_is_told_whose_a_name_is_at_which_somebody_listens() {
        let name = format!("uncork-sockdiag-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let mut kernel = SockDiag::open().unwrap();
        assert_eq!(kernel.listens_at(name.as_bytes()).unwrap(), None);
        let other = UnixDatagram::bind_addr(&address).unwrap();
        assert_eq!(kernel.listens_at(name.as_bytes()).unwrap(), None);
        drop(other);
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let told = kernel.listens_at(name.as_bytes()).unwrap();
        let uid = std::fs::metadata("/proc/self").unwrap().st_uid();
        assert_eq!(told, Some(uid));
        assert_eq!(kernel.listens_at(b"uncork-sockdiag").unwrap(), None);
        // It still answers other queries.
        kernel.listening().unwrap();
    }
}

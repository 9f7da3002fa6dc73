//! A mailbox: a socket that keeps messages, above all descriptors, for as long as any process has it open.
//!
//! A process uses it to leave a connection to its children without knowing which of them will use it, or when: any of them may
//! look, and then has the connection, which is closed with the last descriptor of the mailbox. A mailbox is a datagram socket
//! that is connected to itself, so that one descriptor is enough, and nobody else can send to it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    getsockname, recv, socket_with,
};

use crate::channel::{self, Datagram};

/// A message: what it is about, and a descriptor if there is one.
pub type Mail = (i32, Option<OwnedFd>);

/// Makes a mailbox.
///
/// # Errors
///
/// EMFILE and the like.
pub fn make() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    // The kernel chooses a name that nobody has (unix(7), autobind).
    bind(&made, &SocketAddrUnix::new_unnamed())?;
    connect(&made, &getsockname(&made)?)?;
    // Discards anything that a stranger who saw the name has sent between these two calls.
    while !matches!(recv(&made, &mut [0_u8; 1], RecvFlags::DONTWAIT), Err(Errno::AGAIN)) {}
    Ok(made)
}

/// Puts a message in.
///
/// # Errors
///
/// What the kernel says: ETOOMANYREFS where too many descriptors are under way.
pub fn put(
    mailbox: BorrowedFd<'_>,
    about: i32,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    channel::send(mailbox, &about, descriptor, SendFlags::DONTWAIT)
}

/// Returns the first message, which stays in the mailbox.
#[must_use]
pub fn look(mailbox: BorrowedFd<'_>) -> Option<Mail> {
    mail(mailbox, RecvFlags::PEEK)
}

/// Takes the first message out.
#[must_use]
pub fn take(mailbox: BorrowedFd<'_>) -> Option<Mail> {
    mail(mailbox, RecvFlags::empty())
}

fn mail(mailbox: BorrowedFd<'_>, how: RecvFlags) -> Option<Mail> {
    let came = channel::receive(mailbox, how | RecvFlags::DONTWAIT);
    let Datagram { bytes, descriptor, .. } = came.ok()?;
    Some((serde_json::from_slice(&bytes).ok()?, descriptor))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use rustix::net::sendto;

    use super::*;

    #[test]
    fn what_is_put_in_is_there_for_all_and_goes_with_the_last() {
        let mailbox = make().unwrap();
        assert!(look(mailbox.as_fd()).is_none());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        put(mailbox.as_fd(), 7, Some(ours.as_fd())).unwrap();
        drop(ours);
        let other = mailbox.try_clone().unwrap();
        for one in [&mailbox, &other] {
            let (about, found) = look(one.as_fd()).unwrap();
            assert_eq!(about, 7);
            UnixStream::from(found.unwrap()).write_all(b"here").unwrap();
        }
        drop(mailbox);
        put(other.as_fd(), 8, None).unwrap();
        drop(other);
        let mut said = String::new();
        theirs.read_to_string(&mut said).unwrap();
        assert_eq!(said, "herehere");
    }

    #[test]
    fn what_is_taken_is_there_no_more() {
        let mailbox = make().unwrap();
        put(mailbox.as_fd(), 1, None).unwrap();
        put(mailbox.as_fd(), 2, None).unwrap();
        assert_eq!(take(mailbox.as_fd()).unwrap().0, 1);
        assert_eq!(take(mailbox.as_fd()).unwrap().0, 2);
        assert!(take(mailbox.as_fd()).is_none());
    }

    #[test]
    fn nobody_else_puts_something_in() {
        let mailbox = make().unwrap();
        let flags = SocketFlags::CLOEXEC;
        let stranger = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).unwrap();
        let name = getsockname(&mailbox).unwrap();
        let sent = sendto(&stranger, b"1", SendFlags::DONTWAIT, &name);
        assert_eq!(sent.unwrap_err(), Errno::PERM);
    }
}

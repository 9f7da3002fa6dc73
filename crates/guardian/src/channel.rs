//! Messages over a Unix socket, one per datagram, with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use serde::Serialize;

/// Longest message, in octets: room for some hundred devices.
const MESSAGE_BYTES: usize = 64 * 1024;

/// Most descriptors that can come with one message (SCM_MAX_FD, include/net/scm.h). The kernel closes those that find no room,
/// before recvmsg(2) returns.
const MOST_PASSED: usize = 253;

/// A received message, with its descriptors.
#[derive(Debug)]
pub struct Datagram {
    /// The message; empty if the other side has closed the connection.
    pub bytes: Vec<u8>,
    /// The first descriptor that came with it, if any did.
    pub descriptor: Option<OwnedFd>,
    /// Any further descriptors. No message calls for more than one.
    pub surplus: Vec<OwnedFd>,
    /// Whether the message was longer than what was received of it.
    pub is_cut: bool,
}

/// Sends a message, with a descriptor if there is one.
///
/// # Errors
///
/// What the kernel says. A peer that is gone is an error, not a signal.
pub fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptor: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let passed = descriptor.as_slice();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !passed.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(passed)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    loop {
        let flags = flags | SendFlags::NOSIGNAL;
        match sendmsg(socket, &[IoSlice::new(&bytes)], &mut beside, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives the next message. Of several descriptors only the first is kept.
///
/// # Errors
///
/// What the kernel says; [`io::ErrorKind::InvalidData`] for a message that is too long.
pub fn receive(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Datagram> {
    let came = receive_all(socket, flags)?;
    if came.is_cut { Err(io::ErrorKind::InvalidData.into()) } else { Ok(came) }
}

/// The same, for callers that dispose of surplus descriptors themselves: closing one may take as long as its sender wants.
///
/// # Errors
///
/// What the kernel says.
pub fn receive_all(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Datagram> {
    let mut bytes = room(socket, flags)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let came = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags)?;
    let passed = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(passed) => Some(passed),
        _ => None,
    });
    let mut passed = passed.flatten();
    let (descriptor, surplus) = (passed.next(), passed.collect());
    bytes.truncate(came.bytes);
    let is_cut = came.flags.contains(ReturnFlags::TRUNC);
    Ok(Datagram { bytes, descriptor, surplus, is_cut })
}

/// Returns the next message without removing it or its descriptors; empty if the other side has closed the connection.
///
/// # Errors
///
/// What the kernel says.
pub fn glance(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Vec<u8>> {
    let mut bytes = room(socket, flags)?;
    let (count, _) = recv(socket, &mut bytes[..], flags | RecvFlags::PEEK)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Returns a buffer for the next message.
fn room(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Vec<u8>> {
    // Mostly there is no message, and callers look a thousand times a second; and messages are short. That takes no buffer of the
    // largest size.
    let (_, long) = recv(socket, &mut [0_u8; 1], flags | RecvFlags::PEEK | RecvFlags::TRUNC)?;
    Ok(vec![0; long.clamp(1, MESSAGE_BYTES)])
}

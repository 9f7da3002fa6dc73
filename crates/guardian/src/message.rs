//! What is said, one message a datagram.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use uncork_driver::{af_packet, af_xdp};
use uncork_stack::{FastOpenKeys, Snapshot};

use crate::{Device, Octets};

/// Changes with the meaning of the messages.
pub const VERSION: u32 = 15;

/// Both ends of a connection, ours first.
pub type Ends = (SocketAddr, SocketAddr);

/// What a program asks for, with a number that the answer repeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The number.
    pub id: u32,
    /// What is asked for.
    pub request: Request,
}

/// What a program asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first: who it is. [`Reply::Welcome`], with the table's descriptor.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// Of [`Place`](crate::Place).
        token: String,
    },
    /// The first of an instance: a process with a stack that programs attach to. [`Reply::Welcome`], as a program gets.
    Serve {
        /// [`VERSION`].
        version: u32,
        /// Of this instance alone: another than that of [`Place`](crate::Place).
        token: String,
    },
    /// Of somebody who is no program of the guardian's, with the end of a stream: a program is to tell there what its
    /// stack does (crate `uncork-stat`). It gets [`Reply::Asked`], and the asker [`Reply::Looked`].
    Look {
        /// [`VERSION`].
        version: u32,
        /// Of [`Place`](crate::Place).
        token: String,
        /// The program's process id, in each of its namespaces.
        pids: Vec<u32>,
    },
    /// Of a program: its stack is to be an instance's. [`Reply::Attached`], with one end of a pair of sockets, whose
    /// other end the instance gets ([`Reply::Guest`]). The ports and connections that the program asks for are
    /// the instance's from then on, for this program.
    Attach {
        /// Number of the instance; without it, that with the fewest programs.
        wanted: Option<u32>,
    },
    /// A packet socket on a device, by its number. [`Reply::Opened`], with the socket.
    Open {
        /// The device.
        device: i32,
    },
    /// It has closed the devices that it had opened.
    Closed,
    /// With the kernel's socket that listens there: what comes to this port is the stack's from now on.
    Own {
        /// The port, of one address or all.
        local: SocketAddr,
    },
    /// The same where who comes is the kernel's in any case ([`Reply::Kernels`]); refused elsewhere. No device is needed for it.
    OwnKernels {
        /// The port, of one address or all.
        local: SocketAddr,
    },
    /// The opposite of both.
    Disown {
        /// As it was owned.
        local: SocketAddr,
    },
    /// With the kernel's socket that is bound there: this connection, which the stack opens, is the stack's.
    OwnConnection {
        /// Our end.
        local: SocketAddr,
        /// The other.
        remote: SocketAddr,
    },
    /// The opposite.
    DisownConnection {
        /// Our end.
        local: SocketAddr,
        /// The other.
        remote: SocketAddr,
    },
    /// With a socket of the kernel's, of TCP and of this network namespace: ports to open connections to `remote` from,
    /// which are reserved until they are said to be over. All those connections are the stack's from now on.
    /// [`Reply::Ports`], and to the instance of who is attached to one [`Reply::GrantedPorts`].
    Ports {
        /// The address of ours.
        from: IpAddr,
        /// The other end of them all.
        remote: SocketAddr,
        /// How many. There may be fewer.
        wanted: u16,
    },
    /// Of connections from such ports. There is no answer. Who is attached to an instance says it of those that it has not
    /// opened ([`Reply::RevokedConnection`]), and the instance of the others.
    Over {
        /// Closed, and in TIME-WAIT: the port may be somebody else's, the connection is the stack's.
        closed: Vec<Ends>,
        /// Over, or never opened.
        over: Vec<Ends>,
    },
    /// For an answer behind all that was said before: [`Reply::Done`].
    Settle,
    /// With a connection of the kernel's that waits to be accepted there: it is for another process that owns the
    /// port, as this one listens no more. [`Reply::Passed`] to that one.
    PassOn {
        /// Our end of it.
        local: SocketAddr,
    },
    /// Of an instance: this connection of its is about to be the kernel's, and a program that is attached to it may
    /// see to that ([`Request::TakeOver`]).
    Give {
        /// Number of the program.
        program: u32,
        /// Our end.
        local: SocketAddr,
        /// The other.
        remote: SocketAddr,
    },
    /// This connection was the stack's, and is the kernel's from now on, which has a new socket for it ([`Reply::Taken`]). With
    /// memory (memfd_create(2)) that has what was not read, and behind it what was sent and is not acknowledged, unless
    /// there is nothing of both.
    TakeOver {
        /// The connection.
        snapshot: Snapshot,
        /// Whether the socket is to be of IPv6, whatever the addresses are.
        inet6: bool,
    },
    /// Whether other programs have this port, too, and so those who wait for this one may go to them.
    Others {
        /// As it was owned.
        local: SocketAddr,
    },
    /// It serves one short connection after the other at this port. If other programs have it, too, it is the kernel's from now
    /// on, and those that have it hear of that ([`Reply::Kernels`]).
    TakesTurns {
        /// As it was owned.
        local: SocketAddr,
    },
    /// The kernel is to have who comes to this port, whether others have it, too, or not: as for [`Request::TakesTurns`].
    Renounces {
        /// As it was owned.
        local: SocketAddr,
    },
    /// What cookies of TCP Fast Open are made with, so that all processes of a user take each other's.
    /// [`Reply::FastOpenKeys`].
    FastOpenKeys,
    /// With the kernel's socket of a connection: a segment of its peer's that the stack has got and the kernel has not, as
    /// the one comes when the connection becomes the other's.
    Bring {
        /// Our end.
        local: SocketAddr,
        /// The other.
        remote: SocketAddr,
        /// TCP's header, and what is behind it.
        segment: Octets,
    },
}

/// What the guardian answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the question.
    pub id: u32,
    /// What it says.
    pub reply: Reply,
}

/// What the guardian answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Come in.
    Welcome {
        /// That the program may use.
        devices: Vec<Device>,
        /// Whether programs attach to instances here, and have no stack of their own.
        attaches: bool,
        /// Whether queues of the devices may come ([`Reply::Queue`]).
        queues: bool,
    },
    /// With one end of a pair of sockets: the other is this instance's.
    Attached {
        /// Its number.
        instance: u32,
    },
    /// Here it is.
    Opened {
        /// What it is.
        socket: af_packet::Description,
    },
    /// These are reserved.
    Ports {
        /// One or more.
        ports: Vec<u16>,
    },
    /// What the host's keys make for this user: those themselves are not for programs (net.ipv4.tcp_fastopen_key).
    FastOpenKeys {
        /// These.
        keys: FastOpenKeys,
    },
    /// Who was to be looked at was told to say it.
    Looked {
        /// Why it has fewer queues of the devices than it is to have, a sentence for each device where that is so: the
        /// guardian alone knows that.
        missing: Vec<String>,
    },
    /// With the kernel's socket, which has the connection and is the program's.
    Taken,
    /// It is done.
    Done,
    /// Unasked, with the socket: a connection to be accepted, which another process was to accept.
    Passed {
        /// Our end of it.
        local: SocketAddr,
    },
    /// Unasked, with the end of a stream: somebody wants to know what the stack does.
    Asked,
    /// Unasked, to who has opened this device, with a socket of AF_XDP: what comes by this queue and is his goes there
    /// from now on. [`Reply::Frames`] follows.
    Queue {
        /// Number of the device.
        device: i32,
        /// What it is.
        socket: af_xdp::Description,
    },
    /// Unasked, with the memory of the frames of the socket that has come before.
    Frames,
    /// Unasked, to an instance, with one end of a pair of sockets: a program is attached to it.
    Guest {
        /// Its number: no other has it again.
        program: u32,
        /// Its process id, as the guardian sees it.
        pid: Option<u32>,
        /// The user's number, as the guardian sees it.
        uid: Option<u32>,
    },
    /// Unasked, to an instance: new connections to this port are for this program, or others that have it.
    Granted {
        /// Number of the program.
        program: u32,
        /// The port, of one address or all.
        local: SocketAddr,
    },
    /// Unasked, to an instance: the opposite.
    Revoked {
        /// Number of the program.
        program: u32,
        /// As it was granted.
        local: SocketAddr,
    },
    /// Unasked, to an instance: a connection that this program opens. It is the instance's, which says when it
    /// is over ([`Request::DisownConnection`]).
    GrantedConnection {
        /// Number of the program.
        program: u32,
        /// Our end.
        local: SocketAddr,
        /// The other.
        remote: SocketAddr,
    },
    /// Unasked, to an instance: connections that this program may open, from each of these ports to one remote end.
    GrantedPorts {
        /// Number of the program.
        program: u32,
        /// The address of ours.
        from: IpAddr,
        /// The other end of them all.
        remote: SocketAddr,
        /// The ports.
        ports: Vec<u16>,
    },
    /// Unasked, to an instance: a connection that this program might have opened and will not.
    RevokedConnection {
        /// Number of the program.
        program: u32,
        /// Our end.
        local: SocketAddr,
        /// The other.
        remote: SocketAddr,
    },
    /// Unasked: who comes to this port is the kernel's from now on, as the processes that have it serve one connection
    /// after the other, or leave it to one another again and again. They have it as before.
    Kernels {
        /// The port, as it was asked for.
        local: SocketAddr,
    },
    /// Unasked, and said again until it is done: the guardian is about to end. What is on the stack of this program is to become
    /// the kernel's, and then the connection to the guardian to be closed.
    Leave,
    /// It is not.
    Refused {
        /// One sentence.
        why: String,
    },
}

impl Reply {
    /// Whether it answers no question, whatever number it comes with.
    pub(crate) fn is_unasked(&self) -> bool {
        matches!(
            self,
            Self::Passed { .. }
                | Self::Asked
                | Self::Queue { .. }
                | Self::Frames
                | Self::Guest { .. }
                | Self::Granted { .. }
                | Self::Revoked { .. }
                | Self::GrantedConnection { .. }
                | Self::GrantedPorts { .. }
                | Self::RevokedConnection { .. }
                | Self::Kernels { .. }
                | Self::Leave
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let local = "[fe80::1%3]:80".parse().unwrap();
        let question = Question { id: 7, request: Request::Own { local } };
        let text = serde_json::to_string(&question).unwrap();
        assert_eq!(serde_json::from_str::<Question>(&text).unwrap(), question);
        assert_eq!(text, r#"{"id":7,"request":{"own":{"local":"[fe80::1%3]:80"}}}"#);
    }
}

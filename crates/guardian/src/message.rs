//! The messages of the protocol, one per datagram.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use uncork_driver::{af_packet, af_xdp};
use uncork_stack::{FastOpenKeys, Snapshot};

use crate::{Device, Octets};

/// Version of the protocol; changes with the meaning of the messages.
pub const VERSION: u32 = 15;

/// Both ends of a connection, the local one first.
pub type Ends = (SocketAddr, SocketAddr);

/// A request, and a number that the answer repeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The number.
    pub id: u32,
    /// The request.
    pub request: Request,
}

/// Requests of a program or an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first request of a program. [`Reply::Welcome`], with the descriptor of the table of connections.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The token of the [`Place`](crate::Place).
        token: String,
    },
    /// The first request of an instance, a process with a stack that programs attach to. [`Reply::Welcome`], as for a program.
    Serve {
        /// [`VERSION`].
        version: u32,
        /// The token of this instance alone, which is not that of the [`Place`](crate::Place).
        token: String,
    },
    /// Has a program report on its stack (crate `uncork-stat`) over the stream whose end comes along; the asker need not be one
    /// of the guardian's programs. The program gets [`Reply::Asked`], the asker [`Reply::Looked`].
    Look {
        /// [`VERSION`].
        version: u32,
        /// The token of the [`Place`](crate::Place).
        token: String,
        /// The program's process id, in each of its namespaces.
        pids: Vec<u32>,
    },
    /// Attaches a program to an instance, which is to have its stack. [`Reply::Attached`], with one end of a socket pair whose
    /// other end the instance gets ([`Reply::Guest`]). The ports and connections that the program asks for are
    /// the instance's from then on, for this program.
    Attach {
        /// Number of the instance; without it, the one with the fewest programs.
        wanted: Option<u32>,
    },
    /// Opens a packet socket on a device. [`Reply::Opened`], with the socket.
    Open {
        /// Index of the device.
        device: i32,
    },
    /// Reports that the program has closed the devices that it had opened.
    Closed,
    /// Claims a port: packets to it are the stack's from now on. The kernel's socket that listens there comes along.
    Own {
        /// The port, of one address or of all.
        local: SocketAddr,
    },
    /// Claims a port whose connections are the kernel's in any case ([`Reply::Kernels`]); refused otherwise. Needs no device.
    OwnKernels {
        /// The port, of one address or of all.
        local: SocketAddr,
    },
    /// Gives up a port that was claimed by either request.
    Disown {
        /// The port, as it was claimed.
        local: SocketAddr,
    },
    /// Claims a connection that the stack opens; the kernel's socket that is bound to its local end comes along.
    OwnConnection {
        /// The local end.
        local: SocketAddr,
        /// The remote end.
        remote: SocketAddr,
    },
    /// Gives up a connection that was claimed that way.
    DisownConnection {
        /// The local end.
        local: SocketAddr,
        /// The remote end.
        remote: SocketAddr,
    },
    /// Reserves ports to open connections to `remote` from, until they are reported as over. Any TCP socket of the kernel's in
    /// this network namespace comes along. All those connections are the stack's from now on. [`Reply::Ports`]; for an attached
    /// program also [`Reply::GrantedPorts`] to its instance.
    Ports {
        /// The local address.
        from: IpAddr,
        /// The remote end of all these connections.
        remote: SocketAddr,
        /// How many ports; there may be fewer.
        wanted: u16,
    },
    /// Reports connections from reserved ports as closed or over; there is no answer. An attached program does so for those that
    /// it has not opened ([`Reply::RevokedConnection`]), its instance for the others.
    Over {
        /// Closed, and in TIME-WAIT: others may use the port, but the connection is still the stack's.
        closed: Vec<Ends>,
        /// Over, or never opened.
        over: Vec<Ends>,
    },
    /// Asks for an answer once all earlier requests have been handled: [`Reply::Done`].
    Settle,
    /// Passes a kernel connection that waits to be accepted there, and comes along, to another process that owns the port, as
    /// this one no longer listens. [`Reply::Passed`] to that process.
    PassOn {
        /// The local end of the connection.
        local: SocketAddr,
    },
    /// From an instance: lets an attached program hand this connection of the instance over to the kernel
    /// ([`Request::TakeOver`]).
    Give {
        /// Number of the program.
        program: u32,
        /// The local end.
        local: SocketAddr,
        /// The remote end.
        remote: SocketAddr,
    },
    /// Hands a connection of the stack over to the kernel, which gets a new socket for it ([`Reply::Taken`]). Memory
    /// (memfd_create(2)) comes along that holds the unread data, followed by data that was sent and is not acknowledged, unless
    /// there is neither.
    TakeOver {
        /// The connection.
        snapshot: Snapshot,
        /// Whether the socket is to be an AF_INET6 one, whatever the addresses are.
        inet6: bool,
    },
    /// Asks whether other programs have this port, too, so that connections waiting for this one may go to them.
    Others {
        /// The port, as it was claimed.
        local: SocketAddr,
    },
    /// Reports that the program serves one short connection after another at this port. If other programs have it, too, it
    /// becomes the kernel's, and all that have it are told ([`Reply::Kernels`]).
    TakesTurns {
        /// The port, as it was claimed.
        local: SocketAddr,
    },
    /// Leaves new connections to this port to the kernel, whether other programs have it or not; like [`Request::TakesTurns`].
    Renounces {
        /// The port, as it was claimed.
        local: SocketAddr,
    },
    /// Asks for the keys of TCP Fast Open cookies, so that all processes of a user accept each other's.
    /// [`Reply::FastOpenKeys`].
    FastOpenKeys,
    /// Hands the kernel a segment from the peer that has arrived at the stack and not at the kernel, as happens while a
    /// connection changes hands. The kernel's socket of the connection comes along.
    Bring {
        /// The local end.
        local: SocketAddr,
        /// The remote end.
        remote: SocketAddr,
        /// The TCP header, and what follows it.
        segment: Octets,
    },
}

/// An answer of the guardian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the question.
    pub id: u32,
    /// The reply.
    pub reply: Reply,
}

/// Replies of the guardian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The program or instance is served from now on.
    Welcome {
        /// Devices that the program may use.
        devices: Vec<Device>,
        /// Whether programs attach to instances here, and have no stack of their own.
        attaches: bool,
        /// Whether queues of the devices may follow ([`Reply::Queue`]).
        queues: bool,
    },
    /// The program is attached. One end of a socket pair comes along; the instance has the other.
    Attached {
        /// The instance's number.
        instance: u32,
    },
    /// The packet socket that was asked for.
    Opened {
        /// How it was set up.
        socket: af_packet::Description,
    },
    /// The ports that were reserved.
    Ports {
        /// One or more.
        ports: Vec<u16>,
    },
    /// Keys derived from the host's for this user: the host's own are not for programs (net.ipv4.tcp_fastopen_key).
    FastOpenKeys {
        /// The keys.
        keys: FastOpenKeys,
    },
    /// The program in question was told to report.
    Looked {
        /// Why it has fewer queues of the devices than it should, a sentence for each such device: only the guardian knows that.
        missing: Vec<String>,
    },
    /// The kernel has the connection. Its socket comes along, and is the program's.
    Taken,
    /// The request was carried out.
    Done,
    /// Unasked: a connection to be accepted, which another process was to accept. Its socket comes along.
    Passed {
        /// The local end of the connection.
        local: SocketAddr,
    },
    /// Unasked: the program is to report on its stack, over the stream whose end comes along.
    Asked,
    /// Unasked, to a program that has opened this device: from now on the program's packets on a queue go to the AF_XDP socket
    /// that comes along. [`Reply::Frames`] follows.
    Queue {
        /// Index of the device.
        device: i32,
        /// How it was set up.
        socket: af_xdp::Description,
    },
    /// Unasked: the memory of the preceding socket's frames comes along.
    Frames,
    /// Unasked, to an instance: a program is attached to it. One end of a socket pair comes along.
    Guest {
        /// The program's number, which no other program ever gets.
        program: u32,
        /// Its process id, as the guardian sees it.
        pid: Option<u32>,
        /// Its user id, as the guardian sees it.
        uid: Option<u32>,
    },
    /// Unasked, to an instance: new connections to this port are for this program, or others that have it.
    Granted {
        /// Number of the program.
        program: u32,
        /// The port, of one address or of all.
        local: SocketAddr,
    },
    /// Unasked, to an instance: this program no longer has this port.
    Revoked {
        /// Number of the program.
        program: u32,
        /// The port, as it was granted.
        local: SocketAddr,
    },
    /// Unasked, to an instance: a connection that this program opens. It belongs to the instance, which reports when it
    /// is over ([`Request::DisownConnection`]).
    GrantedConnection {
        /// Number of the program.
        program: u32,
        /// The local end.
        local: SocketAddr,
        /// The remote end.
        remote: SocketAddr,
    },
    /// Unasked, to an instance: connections that this program may open, from any of these ports to one remote end.
    GrantedPorts {
        /// Number of the program.
        program: u32,
        /// The local address.
        from: IpAddr,
        /// The remote end of all these connections.
        remote: SocketAddr,
        /// The ports.
        ports: Vec<u16>,
    },
    /// Unasked, to an instance: a connection that this program could have opened and will not.
    RevokedConnection {
        /// Number of the program.
        program: u32,
        /// The local end.
        local: SocketAddr,
        /// The remote end.
        remote: SocketAddr,
    },
    /// Unasked: new connections to this port are the kernel's from now on, as the processes that have it serve one connection
    /// after another, or leave it to one another again and again. They keep the port as before.
    Kernels {
        /// The port, as it was claimed.
        local: SocketAddr,
    },
    /// Unasked, and repeated until it is done: the guardian is about to end. The program is to hand what it has on the stack over
    /// to the kernel, and then to close its connection to the guardian.
    Leave,
    /// The request is refused.
    Refused {
        /// The reason, in one sentence.
        why: String,
    },
}

impl Reply {
    /// Tells whether this answers no question, whatever number it comes with.
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

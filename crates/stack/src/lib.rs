//! TCP/IP as a state machine: frames go in and come out, the caller asks for timers and passes the time in.
//!
//! It has no thread, no clock, no socket, no source of randomness and no `unsafe`; nothing is
//! allocated per packet. The owner of a [`Stack`] drives it, in this order:
//!
//! 1. **handle**: [`Stack::handle_frame`] for each received frame, [`Stack::handle_completion`] for what
//!    has left the device, [`Stack::handle_timeout`] when [`Stack::poll_timeout`] says so;
//! 2. **do** what the user wants: [`Stack::connect`], [`Stack::send`], [`Stack::recv`] and the like;
//! 3. **poll**: [`Stack::poll_transmit`] until it returns nothing more, each time with an empty slot;
//!    [`Stack::poll_event`] for sockets that have become ready; [`Stack::poll_timeout`] for the next deadline.
//!
//! ```text
//! frame ─▶ interface/ ─▶ demux ─▶ connection/arrival ─▶ receive/ ─▶ recv()
//!              │           └─▶ listener/ (SYN)              └─▶ recovery/, congestion/
//!              └─▶ replies (ARP, NDP, ICMP, resets, cookies)        │
//! send() ─▶ connection/send ─▶ decision ─▶ emit ─▶ frame ─▶ the driver's slot
//!                                 └─ Blocked: why not
//! ```
#![forbid(unsafe_code)]

mod address;
mod config;
mod connection;
mod context;
mod counters;
mod demux;
mod event;
mod fast_open;
mod frame;
mod handle;
mod hash;
mod interface;
mod listener;
mod memory;
mod requests;
mod secrets;
mod stack;
mod sysctl;
mod timer;
mod udp;
mod units;

pub use config::{Algorithm, Config, Ecn, QuickAckCounting};
pub use connection::{
    Blocked, Cause, ConnectionError, FastOpenFailure, Info, KeepAlive, Phase, RecvError, SendError,
    SocketOption, State,
};
pub use counters::Counters;
pub use event::{Change, Event, Ready};
pub use fast_open::{FastOpen, FastOpenKeys, FastOpenListen};
pub use handle::{ListenerId, SocketId};
pub use interface::{Cidr, Found, Route};
pub use listener::{ListenError, Listening};
pub use requests::Requests;
pub use stack::{ConnectError, Detached, FastConnect, Shutdown, Snapshot, SnapshotState, Stack};
pub use udp::{UdpError, UdpId, UdpReceived};
pub use uncork_packet::Instant;
pub use uncork_wire::ethernet::Mac;

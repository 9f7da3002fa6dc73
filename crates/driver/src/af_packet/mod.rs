//! Any network device, by a packet socket with rings (packet(7)).
//!
//! Frames come into slots of memory that is shared with the kernel and leave from others, so that
//! receiving takes no system call, and sending one for a batch. Each frame has a
//! `struct virtio_net_hdr` before it: checksums are left to the device, and trains of up to 64 KiB
//! cross whole in both directions, as they do for the kernel's own TCP.
//!
//! **Why version 2 of the rings, not 3.** Version 3 packs frames of any length into blocks, which
//! would save memory, but hands a block over when it is full or its timer has run, which is
//! milliseconds: too late for a request. Version 2 hands over frame by frame.
//!
//! **When a frame has left.** A slot is empty again when the kernel destroys the buffer that it made
//! of it (tpacket_destruct_skb): a queueing discipline below has released it, and the device, or
//! the receiver at the other end of a virtual link, has processed it. Small queues need exactly
//! that. As an exception, virtual links copy long frames when they cross.
//!
//! **A frame that the kernel refuses** stays in its slot, at the head of the ring, and no frame after it leaves before
//! it does (`refused`).
//!
//! **The kernel sees everything, too.** Its own copy of a frame continues up the kernel's stack, which would answer
//! with resets for an address that it owns. A filter (uncork-bpf, `owned`) drops that copy after the packet
//! socket has seen it; a second one, attached here, keeps out of the rings what the stack does not own.
//! The socket is bound to all protocols, as only such sockets see a frame before those filters do.
//!
//! **Many sockets on one device** each look at every frame that comes, each with its own filter, unless they are in a [`Group`].
//!
//! **The process that opens it need not use it.** [`Handed::open`] takes the privilege, [`Port::adopt`] maps the
//! rings and takes none; [`Port::open`] does both.

mod geometry;
mod group;
mod handed;
mod kick;
mod long;
mod open;
mod options;
mod port;
mod refused;
mod slots;

pub use group::Group;
pub use handed::{Description, Handed};
pub use kick::Kick;
pub use open::{Fanout, Prepared, Settings, Share};
pub use port::{Port, Statistics};

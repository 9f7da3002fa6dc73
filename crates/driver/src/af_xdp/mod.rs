//! A queue of a network device, by a socket of AF_XDP (Documentation/networking/af_xdp.rst).
//!
//! Frames come into chunks of an area of memory that is shared with the kernel, and leave from others; four
//! rings say which are whose. What comes is chosen by an XDP program (uncork-bpf, `owned`), before the kernel
//! has made anything of it, and the kernel does not see it: nothing has to be taken away from it.
//!
//! **No trains.** Each frame is one segment, both ways. Where a packet socket carries 64 KiB at once, as on
//! virtual devices, that is what bulk pays for; where frames are single anyway, as on most NICs, less is done
//! for each.
//!
//! **Checksums.** Where the kernel copies frames it also fills in their checksums if asked
//! (`struct xsk_tx_metadata`), so that they are left to the device, or to nobody on a virtual link. Frames that
//! come are verified by the stack; but veth brings those of the host's own programs, whose checksums were never
//! filled in. The program that redirects them reads what the kernel knows of each, and leaves a word before it
//! that is believed here. A driver that has such frames and does not say so is refused.
//!
//! **When a frame has left.** Its chunks come back by a ring: copied, when the kernel destroys its buffer, as
//! with a packet socket; not copied, when the device has sent it, of which nobody tells, so that whoever waits
//! for it is woken to look.
//!
//! **Who opens it need not use it.** [`Handed::open`] takes the privilege, [`Port::adopt`] maps the rings and the
//! area and takes none; [`Port::open`] is both.

mod area;
mod geometry;
mod handed;
mod locked;
mod open;
mod options;
mod port;
mod queues;
mod rings;
mod slots;

pub use handed::{Description, Handed};
pub use locked::Locked;
pub use open::{BusyPoll, Copying, Nature, Settings};
pub use port::{Port, Statistics};
pub use queues::Queues;

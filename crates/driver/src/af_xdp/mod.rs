//! A queue of a network device, by an AF_XDP socket (Documentation/networking/af_xdp.rst).
//!
//! Frames come into chunks of an area of memory that is shared with the kernel, and leave from others; four
//! rings say which side owns which. An XDP program (uncork-bpf, `owned`) selects the frames before the kernel's
//! stack has processed them, and the kernel does not see them: no copy has to be dropped there.
//!
//! **No trains.** Each frame is one segment, both ways. Where a packet socket carries 64 KiB at once, as on
//! virtual devices, that is what bulk pays for; where frames are single anyway, as on most NICs, less is done
//! for each.
//!
//! **Checksums.** Where the kernel copies frames it also fills in their checksums if asked (`struct
//! xsk_tx_metadata`), so that they are left to the device, or to nobody on a virtual link. Received frames are
//! verified by the stack; but veth delivers those of the host's own programs, whose checksums were never filled
//! in. The program that redirects them reads what the kernel knows of each, and writes a word before it that is
//! trusted here. A driver that has such frames and does not report them is refused.
//!
//! **When a frame has left.** Its chunks come back by the completion ring: in copy mode when the kernel destroys
//! its buffer, as with a packet socket; in zero-copy mode when the device has sent it, which raises no event, so
//! that a thread that waits for it is woken by a timer to look.
//!
//! **The process that opens it need not use it.** [`Handed::open`] takes the privilege, [`Port::adopt`] maps the
//! rings and the area and takes none; [`Port::open`] does both.

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

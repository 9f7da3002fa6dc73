//! Prints a line for each frame that passes, for debugging the stack.

use std::fmt;
use std::io::{self, Write};

use uncork_packet::{Capabilities, Checksum, Completion, Medium, Received, Transmit, Trust};
use uncork_wire::link::LinkType;
use uncork_wire::{Segment, Unread, read_frame};

use crate::clock::Clock;
use crate::decorator::as_inner;
use crate::{Driver, Offer};

/// A driver whose frames are printed. Errors of the output are ignored; the traffic goes on.
pub struct Trace<D, W> {
    inner: D,
    teller: Teller<W>,
}

struct Teller<W> {
    to: W,
    clock: Clock,
    link: LinkType,
}

impl<D: fmt::Debug, W> fmt::Debug for Trace<D, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<D: Driver, W: Write> Trace<D, W> {
    /// Prints to `to`, with the times of `clock`.
    pub fn new(inner: D, to: W, clock: Clock) -> Self {
        let link = match inner.capabilities().medium {
            Medium::Ethernet => LinkType::Ethernet,
            Medium::Ip => LinkType::Raw,
        };
        Self { inner, teller: Teller { to, clock, link } }
    }

    /// The driver below.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }
}

impl<W: Write> Teller<W> {
    fn tell(&mut self, what: fmt::Arguments<'_>) {
        let _ = writeln!(self.to, "{:?} {what}", (self.clock)());
    }

    fn frame(&mut self, direction: &str, bytes: &[u8], train: Option<u16>, checksum: &str) {
        let said = Said { segment: read_frame(self.link, bytes, bytes.len()), train, checksum };
        self.tell(format_args!("{direction} {} {said}", bytes.len()));
    }
}

/// The content of a frame.
struct Said<'a> {
    segment: Result<Segment, Unread>,
    train: Option<u16>,
    checksum: &'a str,
}

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.segment {
            Ok(segment) => segment_line(f, segment)?,
            Err(Unread::NotTcp) => f.write_str("no TCP")?,
            Err(Unread::CutShort) => f.write_str("shorter than its headers")?,
            Err(Unread::Malformed(how)) => write!(f, "{how}")?,
        }
        if let Some(bytes) = self.train {
            write!(f, " cut at {bytes}")?;
        }
        f.write_str(self.checksum)
    }
}

fn segment_line(f: &mut fmt::Formatter<'_>, segment: &Segment) -> fmt::Result {
    write!(f, "{} > {} {}", segment.source, segment.destination, segment.flags)?;
    write!(f, " seq {}+{}", segment.seq.0, segment.payload_bytes)?;
    if let Some(ack) = segment.ack {
        write!(f, " ack {}", ack.0)?;
    }
    write!(f, " win {}", segment.window)?;
    if let Some((left, right)) = segment.sack {
        write!(f, " sack {}-{}", left.0, right.0)?;
    }
    if segment.congestion_experienced {
        f.write_str(" CE")?;
    }
    Ok(())
}

impl<D: Driver, W: Write> Driver for Trace<D, W> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        let teller = &mut self.teller;
        self.inner.receive(budget, &mut |frame| {
            let checksum = if frame.trust == Trust::Good { " checksum good" } else { "" };
            teller.frame("in ", frame.bytes, frame.segment_bytes, checksum);
            each(frame);
        })
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        let teller = &mut self.teller;
        self.inner.complete(&mut |completion| {
            let Completion { owner, bytes } = completion;
            teller.tell(format_args!("left {bytes} of {}", owner.0));
            each(completion);
        })
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        let teller = &mut self.teller;
        self.inner.offer(&mut |slot| {
            let transmit = fill(slot)?;
            let bytes = usize::try_from(transmit.frame_bytes).unwrap_or(usize::MAX);
            let checksum = match transmit.checksum {
                Checksum::Partial { .. } => " checksum by the device",
                Checksum::Complete => "",
            };
            let train = transmit.segmentation.map(|how| how.segment_bytes);
            teller.frame("out", slot.get(..bytes).unwrap_or_default(), train, checksum);
            Some(transmit)
        })
    }

    as_inner!();
}

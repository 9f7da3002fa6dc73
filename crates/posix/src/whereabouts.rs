//! Where the TCP sockets of a process that was started with `--stack` are, and why: reported at its end, and read
//! out of its memory by others on request.
//!
//! A byte a descriptor names either a place or one of the reasons, each of which is kept once with the number of
//! sockets that it applies to. Nothing here locks or allocates: a reason is written once, by the first thread that
//! needs it, and stays.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::collections::BTreeMap;

use crate::report::{StackReport, StackSocket};

/// Number of different reasons that are kept.
pub const REASONS: usize = 200;
/// Number of octets of a reason that are kept.
const TEXT_BYTES: usize = 240;
/// The text for reasons that there was no room for.
const NOT_KEPT: &str = "one of too many different reasons to be kept";

/// The values of a descriptor's byte; from [`FIRST_REASON`] on, it is the number of a reason.
mod place {
    /// Nothing has been decided: it neither listens nor is connected.
    pub(super) const UNDECIDED: u8 = 0;
    /// On the stack, and on the kernel for what comes by other ways.
    pub(super) const LISTENS: u8 = 1;
    /// A connection that was accepted on the stack.
    pub(super) const ACCEPTED: u8 = 2;
    /// A connection that the program has made on the stack.
    pub(super) const CONNECTED: u8 = 3;
    /// It listens, and this process has not waited for a connection yet.
    pub(super) const LATER: u8 = 4;
}
const FIRST_REASON: u8 = 5;
/// The number after the last reason: all others.
const OTHER: u8 = FIRST_REASON + REASONS as u8;

/// How a socket came to be on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStack {
    /// It listens there as well as on the kernel.
    Listens,
    /// It is a connection that was accepted.
    Accepted,
    /// It is a connection that the program has made.
    Connected,
}

/// Why sockets are the kernel's, and how many are or have been for that reason.
#[derive(Debug)]
#[repr(C)]
struct Reason {
    state: AtomicU32,
    text_bytes: AtomicU32,
    sockets: AtomicU64,
    text: [AtomicU8; TEXT_BYTES],
}

const EMPTY: u32 = 0;
const BEING_WRITTEN: u32 = 1;
const WRITTEN: u32 = 2;

impl Reason {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            text_bytes: AtomicU32::new(0),
            sockets: AtomicU64::new(0),
            text: [const { AtomicU8::new(0) }; TEXT_BYTES],
        }
    }

    fn write(&self, text: &str) {
        for (to, from) in self.text.iter().zip(text.bytes()) {
            to.store(from, Relaxed);
        }
        self.text_bytes.store(text.len() as u32, Relaxed);
        self.state.store(WRITTEN, Release);
    }

    /// Returns the text, which is empty while it is being written.
    fn text(&self) -> Option<String> {
        match self.state.load(Acquire) {
            EMPTY => None,
            BEING_WRITTEN => Some(String::new()),
            _ => {
                let bytes = self.text_bytes.load(Relaxed) as usize;
                let text = self.text.iter().take(bytes).map(|octet| octet.load(Relaxed));
                Some(String::from_utf8_lossy(&text.collect::<Vec<_>>()).into_owned())
            }
        }
    }

    fn says(&self, text: &str) -> bool {
        self.text_bytes.load(Relaxed) as usize == text.len()
            && self.text.iter().zip(text.bytes()).all(|(a, b)| a.load(Relaxed) == b)
    }
}

/// The reasons and the counts of a process: our own, or read from another process's memory.
#[derive(Debug)]
#[repr(C)]
pub struct Whereabouts {
    listening: AtomicU64,
    accepted: AtomicU64,
    connected: AtomicU64,
    /// Number of sockets with reasons that there was no room for.
    others: AtomicU64,
    reasons: [Reason; REASONS],
    /// Not a reason: the address of the stack's guardian. A reader of this may do what the process may.
    guardian: Reason,
}

impl Default for Whereabouts {
    fn default() -> Self {
        Self::new()
    }
}

impl Whereabouts {
    /// Creates it for a process in which nothing has happened yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            listening: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            others: AtomicU64::new(0),
            reasons: [const { Reason::new() }; REASONS],
            guardian: Reason::new(),
        }
    }

    /// Records the address of the guardian; called once.
    pub fn guarded_at(&self, place: &str) {
        self.guardian.write(cut(place, TEXT_BYTES));
    }

    /// Records that a socket is on the stack; `byte` is its descriptor's.
    pub fn on_stack(&self, byte: &AtomicU8, how: OnStack) {
        let (place, count) = match how {
            OnStack::Listens => (place::LISTENS, &self.listening),
            OnStack::Accepted => (place::ACCEPTED, &self.accepted),
            OnStack::Connected => (place::CONNECTED, &self.connected),
        };
        if byte.swap(place, Relaxed) != place {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Records that a socket listens: whether on the stack too is decided when the process waits for a connection.
    pub fn listens_later(&self, byte: &AtomicU8) {
        byte.store(place::LATER, Relaxed);
    }

    /// Starts anew in a child of fork, with the bytes of all descriptors: the counts were the parent's.
    pub fn restart<'a>(&self, bytes: impl Iterator<Item = &'a AtomicU8>) {
        for count in [&self.listening, &self.accepted, &self.connected, &self.others] {
            count.store(0, Relaxed);
        }
        for reason in &self.reasons {
            reason.sockets.store(0, Relaxed);
        }
        for byte in bytes.filter(|byte| byte.load(Relaxed) == place::LISTENS) {
            self.listens_later(byte);
        }
    }

    /// Records that a socket stays with the kernel, or has become its.
    pub fn kernels(&self, byte: &AtomicU8, reason: &str) {
        self.set(byte, self.number_of(reason));
    }

    /// Sets the byte, and counts the socket if it is new: recording the same again is one socket.
    fn set(&self, byte: &AtomicU8, number: u8) {
        if byte.swap(number, Relaxed) != number {
            self.count(number).fetch_add(1, Relaxed);
        }
    }

    /// Records that a socket is the kernel's for the same reason as another one; returns whether there is one.
    pub fn kernels_likewise(&self, byte: &AtomicU8, other: &AtomicU8) -> bool {
        let number = other.load(Relaxed);
        let there_is = number >= FIRST_REASON;
        if there_is {
            self.set(byte, number);
        }
        there_is
    }

    fn count(&self, number: u8) -> &AtomicU64 {
        let reason = self.reasons.get(usize::from(number.saturating_sub(FIRST_REASON)));
        reason.map_or(&self.others, |reason| &reason.sockets)
    }

    /// Returns the number of a reason, which is written down if it is new.
    fn number_of(&self, reason: &str) -> u8 {
        let text = cut(reason, TEXT_BYTES);
        for (number, reason) in (FIRST_REASON..).zip(&self.reasons) {
            let (own, other) = (Acquire, Acquire);
            match reason.state.compare_exchange(EMPTY, BEING_WRITTEN, own, other) {
                Ok(_) => {
                    reason.write(text);
                    return number;
                }
                Err(WRITTEN) if reason.says(text) => return number,
                // Another thread's, or left half written by a fork: if it is the same, it is there twice.
                Err(_) => {}
            }
        }
        OTHER
    }

    /// Makes the report of all of it, with the `open` descriptors and their bytes.
    pub fn report(&self, open: impl Iterator<Item = (i32, u8)>) -> StackReport {
        let mut kernel = BTreeMap::new();
        let texts = self.texts();
        for (text, reason) in texts.iter().zip(&self.reasons) {
            let sockets = reason.sockets.load(Relaxed);
            if sockets > 0 {
                let all: &mut u64 = kernel.entry(text.clone()).or_default();
                *all = all.saturating_add(sockets);
            }
        }
        let others = self.others.load(Relaxed);
        if others > 0 {
            kernel.insert(NOT_KEPT.to_owned(), others);
        }
        StackReport {
            listening: self.listening.load(Relaxed),
            accepted: self.accepted.load(Relaxed),
            connected: self.connected.load(Relaxed),
            kernel,
            guardian: self.guardian.text(),
            sockets: open.map(|(fd, byte)| socket(fd, byte, &texts)).collect(),
        }
    }

    fn texts(&self) -> Vec<String> {
        self.reasons.iter().map_while(Reason::text).collect()
    }

    /// Copies what is in another process's memory.
    pub(crate) fn from_image(image: &[u8]) -> Self {
        const COUNTS_BYTES: usize = 4 * size_of::<u64>();
        let own = Self::new();
        let word = |at: usize| {
            let bytes = image.get(at..at + 8).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        for (at, count) in
            [&own.listening, &own.accepted, &own.connected, &own.others].into_iter().enumerate()
        {
            count.store(word(at * size_of::<u64>()), Relaxed);
        }
        let images =
            image.get(COUNTS_BYTES..).unwrap_or_default().chunks_exact(size_of::<Reason>());
        for (reason, image) in own.reasons.iter().chain([&own.guardian]).zip(images) {
            let half = |at: usize| {
                let bytes = image.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
                bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
            };
            reason.state.store(half(0), Relaxed);
            reason.text_bytes.store(half(4), Relaxed);
            let sockets = image.get(8..16).and_then(|bytes| bytes.first_chunk());
            reason.sockets.store(sockets.map_or(0, |bytes| u64::from_ne_bytes(*bytes)), Relaxed);
            for (to, from) in reason.text.iter().zip(&image[16..]) {
                to.store(*from, Relaxed);
            }
        }
        own
    }
}

/// Returns the beginning of a text that fits into `bytes`, cut between two characters.
#[must_use]
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn socket(fd: i32, byte: u8, texts: &[String]) -> StackSocket {
    let said = |place: &str, why: &str| (place.to_owned(), why.to_owned());
    let (place, why) = match byte {
        place::UNDECIDED => said("undecided", "it neither listens nor has it been connected"),
        place::LISTENS => said("stack", "it listens there, and on the kernel for other ways"),
        place::ACCEPTED => said("stack", "it was accepted there"),
        place::CONNECTED => said("stack", "it was connected there"),
        place::LATER => said("undecided", "it listens, and its process has not waited there yet"),
        number => {
            let text = texts.get(usize::from(number - FIRST_REASON)).map(String::as_str);
            said("kernel", text.unwrap_or(NOT_KEPT))
        }
    };
    StackSocket { fd, peer: None, place, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte() -> AtomicU8 {
        AtomicU8::new(0)
    }

    /// The bytes as they are in the other process's memory.
    fn image_of(own: &Whereabouts) -> Vec<u8> {
        let mut image = Vec::new();
        for count in [&own.listening, &own.accepted, &own.connected, &own.others] {
            image.extend(count.load(Relaxed).to_ne_bytes());
        }
        for reason in own.reasons.iter().chain([&own.guardian]) {
            image.extend(reason.state.load(Relaxed).to_ne_bytes());
            image.extend(reason.text_bytes.load(Relaxed).to_ne_bytes());
            image.extend(reason.sockets.load(Relaxed).to_ne_bytes());
            image.extend(reason.text.iter().map(|octet| octet.load(Relaxed)));
        }
        assert_eq!(image.len(), size_of::<Whereabouts>());
        image
    }

    #[test]
    fn each_reason_is_kept_once_and_counted_and_can_be_read_from_outside() {
        let own = Whereabouts::new();
        own.guarded_at("@somewhere");
        let bytes = [byte(), byte(), byte(), byte(), byte()];
        own.on_stack(&bytes[0], OnStack::Listens);
        own.on_stack(&bytes[1], OnStack::Accepted);
        own.kernels(&bytes[2], "its way is another");
        own.kernels(&bytes[3], "it has an option");
        assert!(own.kernels_likewise(&bytes[4], &bytes[2]));
        assert!(!own.kernels_likewise(&bytes[4], &bytes[1]));
        let open = || (0..).zip(bytes.iter().map(|byte| byte.load(Relaxed)));
        let report = own.report(open());
        assert_eq!((report.listening, report.accepted, report.connected), (1, 1, 0));
        let kernel: Vec<_> = report.kernel.iter().map(|(why, n)| (why.as_str(), *n)).collect();
        assert_eq!(kernel, [("it has an option", 1), ("its way is another", 2)]);
        let places: Vec<_> = report.sockets.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, ["stack", "stack", "kernel", "kernel", "kernel"]);
        assert_eq!(report.sockets[4].why, "its way is another");
        assert_eq!(report.guardian.as_deref(), Some("@somewhere"));
        assert_eq!(Whereabouts::from_image(&image_of(&own)).report(open()), report);

        own.restart(bytes.iter());
        let report = own.report(open());
        assert!(!report.is_anything());
        let places: Vec<_> = report.sockets.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, ["undecided", "stack", "kernel", "kernel", "kernel"]);
    }

    #[test]
    fn reasons_beyond_the_room_are_counted_and_long_ones_cut_between_characters() {
        let own = Whereabouts::new();
        let last = byte();
        own.kernels(&last, &"ä".repeat(500));
        assert_eq!(
            own.report([(3, last.load(Relaxed))].into_iter()).sockets[0].why,
            "ä".repeat(120)
        );
        for number in 0..REASONS + 5 {
            last.store(0, Relaxed);
            own.kernels(&last, &format!("reason {number}"));
            own.kernels(&last, &format!("reason {number}"));
        }
        let report = own.report([(3, last.load(Relaxed))].into_iter());
        assert_eq!(report.kernel[NOT_KEPT], 6);
        assert_eq!(report.sockets[0].why, NOT_KEPT);
        assert_eq!(report.kernel.len(), REASONS + 1);
    }

    #[test]
    fn an_image_that_makes_no_sense_is_read_without_harm() {
        let image = vec![0xff; size_of::<Whereabouts>()];
        let report = Whereabouts::from_image(&image).report([(3, 255), (4, 4)].into_iter());
        assert_eq!(report.sockets[0].why, NOT_KEPT);
        assert!(Whereabouts::from_image(&[]).report(core::iter::empty()).kernel.is_empty());
    }
}

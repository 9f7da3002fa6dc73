//! What the programs report.

use uncork_doctor::live::Event;

/// One report of the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// An event for the doctor.
    Event {
        /// The event.
        event: Event,
        /// Number of the place in the program that caused it, if that was asked for.
        place: Option<u64>,
    },
    /// A traced process executes a program.
    Program {
        /// The process.
        pid: u32,
        /// The program's arguments, each NUL-terminated; cut after 2048 octets.
        arguments: Vec<u8>,
    },
    /// The stack at a place.
    Stack(Stack),
}

impl Told {
    pub(crate) fn of(event: Event) -> Self {
        Self::Event { event, place: None }
    }
}

/// A thread's registers and its stack on entry to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The thread's process.
    pub pid: u32,
    /// Number of the place, which events refer to.
    pub place: u64,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, where the program keeps one.
    pub fp: u64,
    /// Link register, where the machine has one.
    pub lr: u64,
    /// The content of the stack, from `sp` upwards.
    pub copy: Vec<u8>,
}

impl Stack {
    /// Returns the word at an address, if it was copied.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.sp)?).ok()?;
        let bytes = self.copy.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_copied_is_read() {
        let (sp, copy) = (0x7fff_0000, 7_u64.to_ne_bytes().repeat(2));
        let stack = Stack { pid: 1, place: 1, ip: 0, sp, fp: 0, lr: 0, copy };
        assert_eq!((stack.word(sp), stack.word(sp + 8)), (Some(7), Some(7)));
        for outside in [0, sp - 1, sp + 9, sp + 16, u64::MAX] {
            assert_eq!(stack.word(outside), None, "{outside:#x}");
        }
    }
}

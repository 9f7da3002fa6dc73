//! Shims that leave no trace on the stack.
//!
//! They are written in assembly because the program's call must go on exactly as it was made: with all its arguments
//! (variadic ones too), without a frame of ours below a call that sleeps, is cancelled, returns twice (vfork) or never
//! (exec), and, for descriptors that are not ours, at the cost of a few instructions.

/// The end of a shim: jumps to the real function, or, at 3 or if that was not looked up yet, to the hook.
macro_rules! straight_on {
    () => {
        "mov r11, qword ptr [rip + {real}]\n\
         test r11, r11\n\
         je 3f\n\
         jmp r11\n\
         3:\n\
         jmp {hook}\n\
         .cfi_endproc"
    };
}
pub(crate) use straight_on;

/// `descriptor_shim!(name => hook, when tcp | known | tcp or held)`: jumps to `hook`, which has the real function's
/// prototype, if the state byte of the descriptor (first argument) is TCP or above (`tcp`), or not UNKNOWN (`known`), or
/// if anything is held on any socket (`or held`); otherwise straight on to the real function.
macro_rules! descriptor_shim {
    ($name:ident => $hook:path, when tcp) => {
        $crate::jump::descriptor_shim!(@ $name, $hook, "cmp r11d, 3", "jae 3f", "");
    };
    ($name:ident => $hook:path, when known) => {
        $crate::jump::descriptor_shim!(@ $name, $hook, "test r11d, r11d", "jne 3f", "");
    };
    ($name:ident => $hook:path, when tcp or held) => {
        $crate::jump::descriptor_shim!(@ $name, $hook, "cmp r11d, 3", "jae 3f",
            "cmp dword ptr [rip + {count}], 0\n jne 3f");
    };
    (@ $name:ident, $hook:path, $compare:literal, $jump:literal, $held:literal) => {
        /// See the hook.
        ///
        /// # Safety
        /// As the libc function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name() {
            // Only call-clobbered registers that carry no argument are used: r10, r11.
            core::arch::naked_asm!(
                ".cfi_startproc",
                "mov r10d, edi",
                "cmp r10d, {descriptors}",
                "jae 2f",
                "lea r11, [rip + {states}]",
                "movzx r11d, byte ptr [r11 + r10]",
                $compare,
                $jump,
                "2:",
                $held,
                $crate::jump::straight_on!(),
                "/* {count} */",
                descriptors = const $crate::table::DESCRIPTORS,
                states = sym $crate::table::STATES,
                count = sym $crate::table::HELD_COUNT,
                real = sym $crate::real::slot::$name,
                hook = sym $hook,
            )
        }
    };
}
pub(crate) use descriptor_shim;

/// `set_shim!(name => hook, note note)`, for epoll_ctl(2), which some programs call several times a message. Without a
/// stack it goes straight on, after `note(set, operation, descriptor)` if a TCP socket is added or modified. With a stack
/// it goes to `hook`.
macro_rules! set_shim {
    ($name:ident => $hook:path, note $note:path) => {
        /// See the hook.
        ///
        /// # Safety
        /// As the libc function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "cmp byte ptr [rip + {stacked}], 0",
                "jne 3f",
                "cmp esi, {delete}",
                "je 2f",
                "mov r10d, edx",
                "cmp r10d, {descriptors}",
                "jae 2f",
                "lea r11, [rip + {states}]",
                "cmp byte ptr [r11 + r10], {tcp}",
                "jne 2f",
                // Four registers, eight more octets and the return address: the stack is aligned for the call.
                "push rdi", "push rsi", "push rdx", "push rcx",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 40",
                "call {note}",
                "add rsp, 8",
                "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                ".cfi_adjust_cfa_offset -40",
                "2:",
                $crate::jump::straight_on!(),
                stacked = sym $crate::stacked::ON,
                delete = const libc::EPOLL_CTL_DEL,
                descriptors = const $crate::table::DESCRIPTORS,
                states = sym $crate::table::STATES,
                tcp = const uncork_posix::kernel::state::TCP,
                note = sym $note,
                real = sym $crate::real::slot::$name,
                hook = sym $hook,
            )
        }
    };
}
pub(crate) use set_shim;

/// The arguments of a call as the shim found them: in registers, then on the stack.
#[repr(C)]
pub(crate) struct Registers {
    /// The sixth argument to the first.
    arguments: [usize; 6],
    /// The number of vector registers that a variadic function has to save.
    _rax: usize,
    /// The return address.
    caller: usize,
}

impl Registers {
    /// Returns the arguments in their order, as many as are in registers.
    pub(crate) fn first_six(&self) -> [usize; 6] {
        let [f, e, d, c, b, a] = self.arguments;
        [a, b, c, d, e, f]
    }

    /// Returns an address in the caller.
    pub(crate) fn caller(&self) -> usize {
        self.caller
    }

    /// Returns an argument, counted from zero. A variadic function has as many as its caller says.
    pub(crate) fn argument(&mut self, position: usize) -> &mut usize {
        if let Some(at) = 5_usize.checked_sub(position) {
            return &mut self.arguments[at];
        }
        // SAFETY: arguments after the sixth are on the stack above the return address (System V ABI, 3.2.3). The caller
        // asks for one that the program has given.
        unsafe { &mut *(&raw mut *self).add(1).cast::<usize>().add(position - 6) }
    }
}

/// `changing_shim!(name => prepare)`: calls `prepare(&mut Registers)`, which may change the arguments, then jumps to the
/// function that it returns, or to the real one.
macro_rules! changing_shim {
    ($($name:ident => $prepare:expr;)+) => { $(
        #[allow(non_snake_case)]
        pub(crate) mod $name {
            #[unsafe(link_section = "uncork_slots")]
            static SLOT: $crate::real::Slot = $crate::real::Slot::new($crate::real::name!($name));

            /// Prepares, and returns the function to jump to.
            extern "C" fn before(call: &mut $crate::jump::Registers) -> *mut libc::c_void {
                #[allow(unused_imports)]
                use super::*;
                let prepare: fn(&mut $crate::jump::Registers) -> Option<*mut libc::c_void> = $prepare;
                prepare(call).unwrap_or_else(|| SLOT.get(call.caller()))
            }

            /// See `prepare`.
            ///
            /// # Safety
            /// As the libc function of this name.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name() {
                // In the order of Registers. With the return address the stack is aligned for the call. Below that are the
                // vector registers: a variadic function may have floating-point arguments (dprintf).
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "push rax", "push rdi", "push rsi", "push rdx",
                    "push rcx", "push r8", "push r9",
                    ".cfi_adjust_cfa_offset 56",
                    "mov rdi, rsp",
                    "sub rsp, 128",
                    ".cfi_adjust_cfa_offset 128",
                    "movaps [rsp], xmm0", "movaps [rsp + 16], xmm1",
                    "movaps [rsp + 32], xmm2", "movaps [rsp + 48], xmm3",
                    "movaps [rsp + 64], xmm4", "movaps [rsp + 80], xmm5",
                    "movaps [rsp + 96], xmm6", "movaps [rsp + 112], xmm7",
                    "call {before}",
                    "mov r11, rax",
                    "movaps xmm0, [rsp]", "movaps xmm1, [rsp + 16]",
                    "movaps xmm2, [rsp + 32]", "movaps xmm3, [rsp + 48]",
                    "movaps xmm4, [rsp + 64]", "movaps xmm5, [rsp + 80]",
                    "movaps xmm6, [rsp + 96]", "movaps xmm7, [rsp + 112]",
                    "add rsp, 128",
                    ".cfi_adjust_cfa_offset -128",
                    "pop r9", "pop r8", "pop rcx",
                    "pop rdx", "pop rsi", "pop rdi", "pop rax",
                    ".cfi_adjust_cfa_offset -56",
                    "jmp r11",
                    ".cfi_endproc",
                    before = sym before,
                )
            }
        }
    )+ };
}
pub(crate) use changing_shim;

/// `passing_shim!(name => prepare)`: calls `prepare(first six arguments)`, then jumps to the real function with everything
/// as it was.
macro_rules! passing_shim {
    ($($name:ident => $prepare:path;)+) => {
        $crate::jump::changing_shim! { $(
            $name => |call: &mut $crate::jump::Registers| {
                $prepare(call.first_six());
                None
            };
        )+ }
    };
}
pub(crate) use passing_shim;

/// `also_named!(name => other)`: a second name under which libc exports a function.
macro_rules! also_named {
    ($($name:ident => $shim:path;)+) => { $(
        /// The second name of the shim of that function.
        ///
        /// # Safety
        /// As for that function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "jmp {shim}",
                ".cfi_endproc",
                shim = sym $shim,
            )
        }
    )+ };
}
pub(crate) use also_named;

//! Kernels of a few instructions, which do what real ones do only when they are broken.

/// How such a kernel ends.
#[derive(Clone, Copy)]
pub(crate) enum Ending {
    /// It halts.
    Hang,
    /// It resets the machine, as a panicking kernel does.
    Reset,
}

/// Builds an image by the boot protocol (Documentation/x86/boot.rst) that writes `text` to the
/// first serial port and ends in this way.
pub(crate) fn image(text: &str, ending: Ending) -> Vec<u8> {
    // The real-mode part is this boot sector and one more; the entry point begins the second one.
    const ENTRY: usize = 0x200;
    const CODE: usize = 0x280;
    const SETUP_BYTES: usize = 0x400;
    let mut code = vec![
        0xba, 0xf8, 0x03, // mov dx, 0x3f8: the port of ttyS0
        0xbe, 0x00, 0x00, // mov si, text
        0x2e, 0xac, // cs lodsb
        0x84, 0xc0, // test al, al
        0x74, 0x03, // jz past the loop
        0xee, // out dx, al
        0xeb, 0xf7, // jmp to lodsb
    ];
    if matches!(ending, Ending::Reset) {
        // mov al, 0xfe; out 0x64, al: the keyboard controller's reset.
        code.extend([0xb0, 0xfe, 0xe6, 0x64]);
    }
    code.extend([0xfa, 0xf4, 0xeb, 0xfd]); // cli; hlt; jmp to hlt
    let text_at = u16::try_from(CODE - ENTRY + code.len()).unwrap();
    code[4..6].copy_from_slice(&text_at.to_le_bytes());
    code.extend(text.bytes());
    code.push(0);

    let mut image = vec![0; SETUP_BYTES + 4096];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[1]); // setup_sects
    put(0x1fe, &[0x55, 0xaa]);
    let distance = u8::try_from(CODE - ENTRY - 2).unwrap();
    put(ENTRY, &[0xeb, distance]); // jmp to the code
    put(0x202, b"HdrS");
    put(0x206, &0x020f_u16.to_le_bytes());
    put(0x211, &[1]); // loadflags: LOADED_HIGH
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes()); // initrd_addr_max
    put(0x236, &1_u16.to_le_bytes()); // xloadflags: XLF_KERNEL_64
    put(0x238, &0x7ff_u32.to_le_bytes()); // cmdline_size
    put(CODE, &code);
    image
}

//! Stack unwinding: from a thread's registers and a copy of its stack, by the tables that compilers
//! leave for exceptions (.eh_frame), or by frame pointers where there are none.

use std::ops::Range;
use std::rc::Rc;

use uncork_bpf::Stack;

use super::symbols::Image;

/// How many calls are followed.
const DEEPEST: usize = 128;

/// The unwind tables of a file.
#[derive(Debug, Default, Clone)]
pub(super) struct Tables {
    /// Address and data of the section.
    pub(super) eh_frame: Option<(u64, Rc<[u8]>)>,
    pub(super) eh_frame_hdr: Option<(u64, Rc<[u8]>)>,
    pub(super) debug_frame: Option<Rc<[u8]>>,
    pub(super) got: Option<Range<u64>>,
}

/// Returns the places in the code that led to the call, innermost first: each is inside the calling
/// instruction.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn calls(stack: &Stack, image: &Image) -> Vec<u64> {
    use framehop::{CacheNative, Unwinder as _, UnwinderNative};

    let mut unwinder: UnwinderNative<Rc<[u8]>, _> = UnwinderNative::new();
    image.mappings.iter().filter_map(module).for_each(|module| unwinder.add_module(module));
    let mut cache: CacheNative<_> = CacheNative::new();
    let mut word = |address| stack.word(address).ok_or(());
    let mut frames = unwinder.iter_frames(stack.ip, registers(stack), &mut cache, &mut word);
    let mut calls = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        calls.push(frame.address_for_lookup());
        if calls.len() == DEEPEST {
            break;
        }
    }
    calls
}

#[cfg(target_arch = "x86_64")]
fn registers(stack: &Stack) -> framehop::x86_64::UnwindRegsX86_64 {
    framehop::x86_64::UnwindRegsX86_64::new(stack.ip, stack.sp, stack.fp)
}

#[cfg(target_arch = "aarch64")]
fn registers(stack: &Stack) -> framehop::aarch64::UnwindRegsAarch64 {
    framehop::aarch64::UnwindRegsAarch64::new(stack.lr, stack.sp, stack.fp)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn module(mapping: &super::symbols::Mapping) -> Option<framehop::Module<Rc<[u8]>>> {
    use framehop::ExplicitModuleSectionInfo;

    let file = mapping.file.as_ref()?;
    let tables = file.tables.clone();
    let span = |(at, data): &(u64, Rc<[u8]>)| *at..*at + data.len() as u64;
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        got_svma: tables.got,
        eh_frame_svma: tables.eh_frame.as_ref().map(span),
        eh_frame: tables.eh_frame.map(|(_, data)| data),
        eh_frame_hdr_svma: tables.eh_frame_hdr.as_ref().map(span),
        eh_frame_hdr: tables.eh_frame_hdr.map(|(_, data)| data),
        debug_frame: tables.debug_frame,
        ..ExplicitModuleSectionInfo::default()
    };
    // Where address 0 of the file is mapped.
    let base = mapping.from.wrapping_sub(file.meant(mapping.offset)?);
    Some(framehop::Module::new(String::new(), mapping.from..mapping.to, base, sections))
}

/// Without tables for this machine, returns the caller of the kernel, and its caller.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn calls(stack: &Stack, _image: &Image) -> Vec<u64> {
    let mut calls = vec![stack.ip];
    calls.extend((stack.lr > 0).then(|| stack.lr - 1));
    calls.truncate(DEEPEST);
    calls
}

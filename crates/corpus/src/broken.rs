//! Deliberately broken files: what the readers must survive, and report.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::rewrite::{self, Records};

/// Writes the broken files, each made from the good pcap file `from`.
///
/// # Errors
/// If `from` cannot be read, or a file cannot be written.
pub fn write(out: &Path, from: &Path) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    let mut good = rewrite::read(&bytes)?;
    good.records.truncate(20);
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    for (name, bytes) in files(&good) {
        let path = out.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn files(good: &Records) -> Vec<(&'static str, Vec<u8>)> {
    let (pcap, pcapng) = (rewrite::to_pcap(good), rewrite::to_pcapng(good));
    // Offsets of the second record, and of the second packet's block.
    let record = 24 + 16 + good.records[0].frame.len();
    let block = 28 + 32 + 32 + good.records[0].frame.len().next_multiple_of(4);
    vec![
        ("empty.pcap", Vec::new()),
        ("header-only.pcap", pcap[..24].to_vec()),
        ("cut-in-file-header.pcap", pcap[..13].to_vec()),
        ("cut-in-record-header.pcap", pcap[..record + 7].to_vec()),
        ("cut-in-record.pcap", pcap[..record + 16 + 30].to_vec()),
        ("wrong-magic.pcap", patched(&pcap, 0, 0x1234_5678)),
        ("record-of-4-gb.pcap", patched(&pcap, record + 8, u32::MAX)),
        ("record-longer-than-snaplen.pcap", patched(&pcap, record + 8, 70_000)),
        ("record-longer-than-its-frame.pcap", patched(&pcap, record + 12, 1)),
        ("unknown-link-layer.pcap", patched(&pcap, 20, 147)),
        ("zeros.pcap", vec![0; 65_536]),
        ("zeros-after-header.pcap", [&pcap[..24], &[0; 8192]].concat()),
        ("text.pcap", b"this is no capture\n".repeat(40)),
        ("cut-in-section-header.pcapng", pcapng[..17].to_vec()),
        ("cut-in-block.pcapng", pcapng[..block + 40].to_vec()),
        ("block-of-4-gb.pcapng", patched(&pcapng, block + 4, u32::MAX)),
        ("block-of-nothing.pcapng", patched(&pcapng, block + 4, 0)),
        ("block-of-odd-length.pcapng", patched(&pcapng, block + 4, 61)),
        ("packet-longer-than-block.pcapng", patched(&pcapng, block + 20, 0x00ff_ffff)),
        ("packet-of-unknown-interface.pcapng", patched(&pcapng, block + 8, 9)),
        ("wrong-byte-order-magic.pcapng", patched(&pcapng, 8, 0x0102_0304)),
        ("ip-lies.pcap", each_frame(good, |frame| put(frame, 16, &[0xff, 0xff]))),
        ("ip-header-too-short.pcap", each_frame(good, |frame| put(frame, 14, &[0x41]))),
        ("tcp-header-lies.pcap", each_frame(good, |frame| put(frame, 46, &[0xf0]))),
        ("tcp-header-too-short.pcap", each_frame(good, |frame| put(frame, 46, &[0x10]))),
        ("option-of-length-0.pcap", each_frame(good, |frame| put(frame, 54, &[8, 0]))),
        ("option-beyond-the-end.pcap", each_frame(good, |frame| put(frame, 54, &[8, 255]))),
        ("time-runs-back.pcap", {
            let mut back = good.clone();
            back.records.reverse();
            rewrite::to_pcap(&back)
        }),
    ]
}

/// Returns a copy with one word replaced.
fn patched(bytes: &[u8], at: usize, word: u32) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    put(&mut copy, at, &word.to_le_bytes());
    copy
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + new.len()) {
        place.copy_from_slice(new);
    }
}

/// Returns a copy with every second frame changed (if all were, nothing could be read).
fn each_frame(good: &Records, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut copy = good.clone();
    for record in copy.records.iter_mut().skip(1).step_by(2) {
        change(&mut record.frame);
    }
    rewrite::to_pcap(&copy)
}

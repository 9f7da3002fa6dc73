//! Any file: it is read to its end or to a sentence, and what it yields goes all the way to a
//! report.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncork_capture::Capture;
use uncork_doctor::Doctor;

fuzz_target!(|file: &[u8]| {
    let mut capture = match Capture::open(file) {
        Ok(capture) => capture,
        Err(error) => return sentence(&error),
    };
    let mut doctor = Doctor::default();
    let mut bytes = 0;
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                // Each frame takes its own record of the file, so there is an end.
                bytes += frame.bytes.len() + 12;
                assert!(bytes <= file.len() && frame.wire_bytes >= frame.bytes.len());
                match uncork_wire::read_frame(frame.link, frame.bytes, frame.wire_bytes) {
                    Ok(segment) => doctor.segment(frame.time, &segment),
                    Err(unread) => doctor.unread(unread),
                }
            }
            Ok(None) => break,
            Err(error) => {
                sentence(&error);
                break;
            }
        }
    }
    assert!(matches!(capture.next_frame(), Ok(None)));
    let _ = doctor.finish();
});

fn sentence(error: &uncork_capture::Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
}

//! Connections played segment by segment, and what the doctor must report of them.

mod chaos;
mod clock;
mod ends;
mod lookalikes;
mod sentences;
mod stalls;
mod trace;

/// A hundred thousand connections are to fit into 200 MB, with the hash table that finds them.
#[test]
fn a_connection_that_rests_is_small() {
    let bytes = size_of::<crate::connection::Connection>();
    assert!(bytes <= 1224, "{bytes}");
}

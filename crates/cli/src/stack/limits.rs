//! What guardians, and the instances of a service, need of their limits.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Each program is a few descriptors of its guardian's, with one for each port that it opens a connection from, and more of its
/// instance's, which inherits this.
pub(crate) fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer it goes on, too.
    let _ = setrlimit(Resource::Nofile, limit);
}

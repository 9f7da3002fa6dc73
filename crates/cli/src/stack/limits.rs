//! What the processes of a service need of this one's limits.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Each program is a few descriptors of its guardian's, and more of its instance's, which inherits this.
pub(super) fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer it goes on, too.
    let _ = setrlimit(Resource::Nofile, limit);
}

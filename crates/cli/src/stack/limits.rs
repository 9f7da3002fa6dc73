//! Resource limits of guardians, and of the instances of a service.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of descriptors: a program costs its guardian a few, and one for each port from which it opens a connection,
/// and costs its instance, which inherits the limit, more.
pub(crate) fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A lower limit is no failure.
    let _ = setrlimit(Resource::Nofile, limit);
}

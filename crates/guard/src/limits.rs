//! Limits on what one user may have of the guardian and of kernel memory, so that something is left for others.
//!
//! A program's packet socket has rings, kernel memory that is charged to no account: it lives for as long as any process has
//! the socket, even one that the guardian does not know. So the kernel's list tells which sockets still exist.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::fstat;
use rustix::process::{Resource, getrlimit};

/// Kernel memory that the rings of a packet socket take: 25 MiB of slots, and what manages them.
pub const RINGS_BYTES: u64 = 29 << 20;

/// The user without limits: it could end the guardian as well.
pub(crate) const ROOT: u32 = 0;
/// One part in so many of the machine's memory may go to the rings of one user's programs, and to those of all users.
const OF_A_USER: u64 = 3;
const OF_ALL: u64 = 2;
/// How many of the guardian's descriptors a program counts as: its connection, process, table and sockets, with half of them left
/// to ports. One user may have half of that.
const DESCRIPTORS: usize = 8;
/// How many places the filters have room for (LISTENERS in bpf/owned/maps.h). Each takes a descriptor, too.
const PLACES: usize = 16_384;
/// The memory that is assumed if the kernel does not tell how much there is.
const MEMORY_BYTES: u64 = 4 << 30;

/// How much one user may have, and how much all users may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Octets of the rings of one user's programs.
    pub rings_of_a_user_bytes: u64,
    /// Octets of the rings of all users' programs.
    pub rings_bytes: u64,
    /// Programs of one user. A thread with a stack of its own counts as one.
    pub programs_of_a_user: usize,
    /// Programs of all users.
    pub programs: usize,
    /// Places, each an address and a port, at which one user's programs have a port on the stack.
    pub places_of_a_user: usize,
    /// Places of all users.
    pub places: usize,
}

impl Limits {
    /// Returns limits in proportion to this host's memory and this process's descriptors.
    #[must_use]
    pub fn of_this_host() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let memory = memory_bytes().unwrap_or(MEMORY_BYTES);
        let programs = descriptors / DESCRIPTORS;
        Self {
            rings_of_a_user_bytes: memory / OF_A_USER,
            rings_bytes: memory / OF_ALL,
            programs_of_a_user: programs / 2,
            programs,
            places_of_a_user: (descriptors / 8).min(PLACES / 4),
            places: (descriptors / 4).min(PLACES / 2),
        }
    }

    /// Checks that this user may have a port at another place, besides those that there are.
    pub(crate) fn admit_place(
        &self,
        user: Option<u32>,
        of_user: usize,
        of_all: usize,
    ) -> Result<(), String> {
        let (most, most_of_all) = (self.places_of_a_user, self.places);
        if user == Some(ROOT) {
            return Ok(());
        }
        if of_user >= most {
            let named = named(user);
            return Err(format!(
                "{named} has ports at {most} addresses, which is all that the guardian takes from the kernel for one user"
            ));
        }
        if of_all >= most_of_all {
            return Err(format!(
                "there are ports at {most_of_all} addresses on the stack, which is all that the guardian takes from the kernel"
            ));
        }
        Ok(())
    }

    /// Checks that this user may have another program besides those that there are.
    pub(crate) fn admit(
        &self,
        user: Option<u32>,
        there: impl Iterator<Item = Option<u32>> + Clone,
    ) -> Result<(), String> {
        let of_user = there.clone().filter(|other| *other == user).count();
        let of_all = there.filter(|other| *other != Some(ROOT)).count();
        let (named, is_root) = (named(user), user == Some(ROOT));
        let most = self.programs_of_a_user;
        if !is_root && of_user >= most {
            return Err(format!(
                "{named} has {most} programs, or threads, with a stack, which is all that the guardian serves of one user"
            ));
        }
        let most = self.programs;
        if !is_root && of_all >= most {
            return Err(format!(
                "there are {most} programs with a stack, which is all that the guardian serves"
            ));
        }
        Ok(())
    }
}

fn memory_bytes() -> Option<u64> {
    let told = fs::read_to_string("/proc/meminfo").ok()?;
    let total = told.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

fn named(user: Option<u32>) -> String {
    user.map_or_else(|| "an unknown user".to_owned(), |user| format!("the user {user}"))
}

/// Packet sockets that were given to programs, by inode number, each with the program's user.
#[derive(Debug, Default)]
pub(crate) struct Given {
    of: HashMap<u64, Option<u32>>,
    /// How many were left when it was last checked which still exist.
    left: usize,
}

impl Given {
    /// Records a socket that was given to a program of this user's.
    pub(crate) fn note(&mut self, socket: &OwnedFd, user: Option<u32>) -> io::Result<()> {
        self.of.insert(fstat(socket.as_fd())?.st_ino, user);
        // Otherwise the list would grow with each socket that comes and goes.
        if self.of.len() >= 2 * self.left + usize::from(u8::MAX) {
            self.look();
        }
        Ok(())
    }

    /// Checks that a program of this user's may have another socket, besides those that the user, and all users, wait for.
    pub(crate) fn admit(
        &mut self,
        limits: &Limits,
        user: Option<u32>,
        (waited_by_user, waited): (usize, usize),
    ) -> Result<(), String> {
        if user == Some(ROOT) {
            return Ok(());
        }
        let refused = self.refusal(limits, user, (waited_by_user, waited));
        if refused.is_none() {
            return Ok(());
        }
        self.look();
        self.refusal(limits, user, (waited_by_user, waited)).map_or(Ok(()), Err)
    }

    fn refusal(
        &self,
        limits: &Limits,
        user: Option<u32>,
        (waited_by_user, waited): (usize, usize),
    ) -> Option<String> {
        let bytes = |count: usize| RINGS_BYTES.saturating_mul(count as u64 + 1);
        let of_user = self.of.values().filter(|other| **other == user).count();
        let of_all = self.of.values().filter(|other| **other != Some(ROOT)).count();
        let mib = |bytes: u64| bytes >> 20;
        let most = limits.rings_of_a_user_bytes;
        if bytes(of_user + waited_by_user) > most {
            let (named, most) = (named(user), mib(most));
            return Some(format!(
                "the packet sockets of {named} take all of the {most} MiB of memory that those of one user may take"
            ));
        }
        let most = limits.rings_bytes;
        (bytes(of_all + waited) > most).then(|| {
            let most = mib(most);
            format!("the packet sockets of all users take all of the {most} MiB of memory that they may take")
        })
    }

    /// Forgets sockets that no process has any more. If the kernel does not tell, all stays as it was.
    fn look(&mut self) {
        if let Some(there) = packet_sockets() {
            self.of.retain(|socket, _| there.contains(socket));
        }
        self.left = self.of.len();
    }
}

/// Returns the inode numbers of all packet sockets of this thread's network namespace.
fn packet_sockets() -> Option<HashSet<u64>> {
    let told = fs::read_to_string("/proc/thread-self/net/packet").ok()?;
    let number = |line: &str| line.split_whitespace().next_back()?.parse().ok();
    Some(told.lines().skip(1).filter_map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        rings_of_a_user_bytes: RINGS_BYTES * 2,
        rings_bytes: RINGS_BYTES * 3,
        programs_of_a_user: 2,
        programs: 3,
        places_of_a_user: 2,
        places: 3,
    };

    #[test]
    fn one_user_has_so_many_programs_all_have_so_many_and_root_as_many_as_he_likes() {
        let (one, other, root) = (Some(1), Some(2), Some(ROOT));
        let admits = |user, there: &[Option<u32>]| LIMITS.admit(user, there.iter().copied());
        assert_eq!(admits(one, &[one, root, root, root]), Ok(()));
        let why = admits(one, &[one, one]).unwrap_err();
        assert!(why.starts_with("the user 1 has 2 programs, or threads, with a stack"), "{why}");
        assert_eq!(admits(other, &[one, one, root]), Ok(()));
        let why = admits(other, &[one, one, other]).unwrap_err();
        assert!(why.starts_with("there are 3 programs with a stack"), "{why}");
        assert_eq!(admits(root, &[root, root, root, root, one, one, other]), Ok(()));
    }

    #[test]
    fn ports_of_one_user_and_of_all_are_bounded_and_roots_are_not() {
        assert_eq!(LIMITS.admit_place(Some(1), 1, 2), Ok(()));
        let why = LIMITS.admit_place(Some(1), 2, 2).unwrap_err();
        assert!(why.starts_with("the user 1 has ports at 2 addresses"), "{why}");
        let why = LIMITS.admit_place(Some(2), 0, 3).unwrap_err();
        assert!(why.starts_with("there are ports at 3 addresses on the stack"), "{why}");
        assert_eq!(LIMITS.admit_place(Some(ROOT), 9, 9), Ok(()));
    }

    #[test]
    fn rings_of_one_user_and_of_all_are_bounded_and_roots_are_not() {
        let mut given = Given::default();
        given.of.extend([(1, Some(1)), (2, Some(ROOT)), (3, Some(ROOT)), (4, Some(ROOT))]);
        let refusal = |given: &Given, user, waited| given.refusal(&LIMITS, Some(user), waited);
        assert_eq!(refusal(&given, 1, (0, 0)), None);
        let why = refusal(&given, 1, (1, 1)).unwrap();
        assert!(
            why.ends_with("all of the 58 MiB of memory that those of one user may take"),
            "{why}"
        );
        assert_eq!(refusal(&given, 2, (0, 1)), None);
        let why = refusal(&given, 2, (0, 2)).unwrap();
        assert!(why.starts_with("the packet sockets of all users take all of the 87 MiB"), "{why}");
        assert_eq!(given.admit(&LIMITS, Some(ROOT), (9, 9)), Ok(()));
    }

    #[test]
    fn this_host_has_room_for_some() {
        let limits = Limits::of_this_host();
        assert!(limits.rings_of_a_user_bytes >= RINGS_BYTES && limits.programs > 2, "{limits:?}");
        assert!(memory_bytes().is_some() && packet_sockets().is_some());
    }
}

//! Calls that change the user or the namespaces of the process. libc carries a change of user over
//! to all threads that it knows; the keeper is not one of them.

use libc::{c_char, c_int, gid_t, size_t, uid_t};

use crate::{keeper, real};

macro_rules! credentials {
    ($($name:ident($($arg:ident: $type:ty),*);)+) => { $(
        /// See the module.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the program's own call.
            keeper::without(|| unsafe { real::$name()($($arg),*) })
        }
    )+ };
}

credentials! {
    setuid(user: uid_t);
    setgid(group: gid_t);
    seteuid(user: uid_t);
    setegid(group: gid_t);
    setreuid(real_user: uid_t, effective: uid_t);
    setregid(real_group: gid_t, effective: gid_t);
    setresuid(real_user: uid_t, effective: uid_t, saved: uid_t);
    setresgid(real_group: gid_t, effective: gid_t, saved: gid_t);
    setgroups(number: size_t, groups: *const gid_t);
    initgroups(user: *const c_char, group: gid_t);
    unshare(flags: c_int);
    setns(fd: c_int, kind: c_int);
}

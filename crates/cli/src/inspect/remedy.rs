//! The sentences of a refusal: why, and what works for such a program instead.

use std::path::Path;

use super::privilege::{Gained, group_name, user_name};
use super::{Identity, Subject};

/// What helps without preloading, whichever side this program is.
const WITHOUT_PRELOADING: &str = "Instead, turn on TCP_NODELAY in the program's own \
     configuration if it has such an option, or let the receiving host acknowledge at once: \
     there, `ip route change ROUTE quickack 1`, with ROUTE as `ip route show` prints the one \
     to the sender";

pub(super) fn statically_linked(subject: &Subject<'_>) -> String {
    format!(
        "{subject} is statically linked: no loader runs that could preload a library. \
         {WITHOUT_PRELOADING}"
    )
}

pub(super) fn go(subject: &Subject<'_>) -> String {
    format!(
        "{subject} is a Go program: its system calls do not go through the C library, so a \
         preloaded library would see none of its sockets. Go sets TCP_NODELAY by itself; \
         instead, gather its small writes with a bufio.Writer, or if it is the other end that \
         stalls, let the receiving host acknowledge at once: there, `ip route change ROUTE \
         quickack 1`, with ROUTE as `ip route show` prints the one to the sender"
    )
}

/// The kernel takes it for the last letter of the interpreter's name.
pub(super) fn carriage_return(subject: &Subject<'_>) -> String {
    format!(
        "{subject} cannot be executed: its first line ends with a carriage return, as DOS writes lines, which \
         is no part of any interpreter's name; `sed -i 's/\\r$//' {}` takes them out",
        subject.file.display()
    )
}

pub(super) fn other_architecture(subject: &Subject<'_>, its: Identity, ours: Identity) -> String {
    let (its, ours) = (its.name(), ours.name());
    format!(
        "{subject} is built for {its}, this uncork and its library for {ours}: the loader \
         would ignore the library. Instead, build uncork for {its}, or run the program's \
         {ours} build"
    )
}

pub(super) fn other_library(subject: &Subject<'_>, loader: &Path) -> String {
    let loader = loader.display();
    let named = match loader.to_string() {
        name if name.contains("ld-musl") => "musl",
        name if name.contains("ld-uClibc") => "uClibc",
        name if name.contains("/linker") => "Android's",
        _ => "another",
    };
    format!(
        "{subject} uses {named} C library (its loader is {loader}), and libuncork.so is built \
         for glibc. {WITHOUT_PRELOADING}; or run a build of the program for glibc"
    )
}

pub(super) fn privileged(subject: &Subject<'_>, gained: Gained) -> String {
    let (what, instead) = match gained {
        Gained::User(uid) => {
            let name = user_name(uid);
            let run = format!("run it as its owner: `sudo -u '{name}' uncork run -- …`");
            (format!("is set-user-ID {name}"), run)
        }
        Gained::Group(gid) => {
            let name = group_name(gid);
            let run = format!("run it in its group: `sg '{name}' -c 'uncork run -- …'`");
            (format!("is set-group-ID {name}"), run)
        }
        Gained::Capabilities => (
            "has file capabilities".to_owned(),
            "run it as root, or run a copy of it (cp leaves the capabilities out) as a user \
             who needs none of them"
                .to_owned(),
        ),
    };
    format!(
        "{subject} {what}: the loader ignores preloaded libraries for programs that gain \
         rights. Instead, {instead}"
    )
}

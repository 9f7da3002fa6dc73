//! The sentences of a refusal: why, and what works for such a program instead.

use std::path::Path;

use super::privilege::{Gained, group_name, user_name};
use super::{For, Identity, Subject};

/// What helps without preloading, at whichever end this program is.
const WITHOUT_PRELOADING: &str = "Instead, start it without uncork and set TCP_NODELAY from outside by \
     `sudo uncork tune --nodelay --pid PID`, or turn it on in the program's own \
     configuration if it has such an option, or let the receiving host acknowledge at once: \
     there, `ip route change ROUTE quickack 1`, with ROUTE as `ip route show` prints the one \
     to the sender";

/// What works without the stack for a program that was to have it.
const WITHOUT_THE_STACK: &str =
    "Instead, run it without --stack and without uncork, on the kernel's sockets";

fn without_preloading(subject: &Subject<'_>) -> &'static str {
    match subject.what {
        For::Writes => WITHOUT_PRELOADING,
        For::Stack => WITHOUT_THE_STACK,
    }
}

pub(super) fn statically_linked(subject: &Subject<'_>) -> String {
    let instead = without_preloading(subject);
    format!(
        "{subject} is statically linked: no loader runs that could preload a library. {instead}; or run a \
         dynamically linked build of the program"
    )
}

pub(super) fn go(subject: &Subject<'_>) -> String {
    let instead = match subject.what {
        For::Stack => WITHOUT_THE_STACK,
        For::Writes => {
            "Go sets TCP_NODELAY by itself, and `sudo uncork tune --nodelay --pid PID` sets it where the \
             program has taken it back; instead, gather its small writes with a bufio.Writer, or if it is the \
             other end that stalls, let the receiving host acknowledge at once: there, `ip route change ROUTE \
             quickack 1`, with ROUTE as `ip route show` prints the one to the sender"
        }
    };
    format!(
        "{subject} is a Go program: its system calls do not go through the C library, so a \
         preloaded library would see none of its sockets. {instead}"
    )
}

/// Refuses a carriage return, which the kernel takes for the last letter of the interpreter's name.
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
    let instead = without_preloading(subject);
    let named = match loader.to_string() {
        name if name.contains("ld-musl") => "musl",
        name if name.contains("ld-uClibc") => "uClibc",
        name if name.contains("/linker") => "Android's",
        _ => "another",
    };
    format!(
        "{subject} uses {named} C library (its loader is {loader}), and libuncork.so is built \
         for glibc. {instead}; or run a build of the program for glibc"
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

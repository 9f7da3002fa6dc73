//! `uncork stack why`: where the sockets of a program under `uncork run --stack` are, and why.
//!
//! It is read from the program's memory, as `uncork status` does: the program is neither asked nor stopped.

use std::str::FromStr;

use uncork_posix::report::{StackReport, StackSocket};

use crate::failure::Failure;
use crate::output::{print, shown};
use crate::status::{self, Looked};
use crate::tables::{Width, lines, table};

use super::arguments::Why;

/// On the stack, or the sockets were listed.
const ON_STACK: i32 = 0;
/// The kernel's, or undecided.
const ELSEWHERE: i32 = 1;

/// A process, or one of its descriptors: `4711` or `4711:9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pid: i32,
    fd: Option<i32>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pid, fd) = match text.split_once(':') {
            Some((pid, fd)) => (pid, Some(fd)),
            None => (text, None),
        };
        let number =
            |text: &str| text.parse::<u32>().ok().and_then(|number| number.try_into().ok());
        let pid = number(pid).filter(|pid| *pid > 0);
        let fd = fd.map(|fd| number(fd).ok_or(())).transpose();
        match (pid, fd) {
            (Some(pid), Ok(fd)) => Ok(Self { pid, fd }),
            _ => Err("a process, or a process and its descriptor: 4711 or 4711:9".to_owned()),
        }
    }
}

/// Prints the answer; the exit status says it, too.
pub(super) fn why(wanted: &Why) -> Result<i32, Failure> {
    let Target { pid, fd } = wanted.target;
    let Looked { program, report } = status::looked_into(pid, "uncork stack why")?;
    let program = shown(&program).into_owned();
    let Some(mut stack) = report.stack else {
        return Err(Failure::no_such_process(format!(
            "process {pid} ({program}) does not run on the stack: it is not below \
             `uncork run --stack`"
        )));
    };
    if let Some(fd) = fd {
        stack.sockets.retain(|socket| socket.fd == fd);
        if stack.sockets.is_empty() {
            return Err(Failure::unusable(format!(
                "descriptor {fd} of process {pid} ({program}) is no TCP socket; \
                 `uncork stack why {pid}` lists those that are"
            )));
        }
    }
    status::fill_in_peers(pid, stack.sockets.iter_mut().map(|one| (one.fd, &mut one.peer)));
    let text = match &stack.sockets[..] {
        _ if wanted.json => {
            let json = serde_json::to_string_pretty(&stack);
            json.map_err(|error| Failure::left(error.to_string()))? + "\n"
        }
        [one] if fd.is_some() => format!("process {pid} ({program}), {}\n", sentence(one)),
        _ => format!("process {pid} ({program}), {}", list(&stack)),
    };
    print(&text)?;
    let elsewhere = fd.is_some() && stack.sockets.iter().any(|one| one.place != "stack");
    Ok(if elsewhere { ELSEWHERE } else { ON_STACK })
}

fn sentence(one: &StackSocket) -> String {
    let peer = one.peer.as_ref().map(|peer| format!(" to {}", shown(peer))).unwrap_or_default();
    let place = match one.place.as_str() {
        "stack" => "on the stack",
        "kernel" => "the kernel's",
        _ => "undecided",
    };
    format!("descriptor {}{peer}: {place}: {}", one.fd, shown(&one.why))
}

fn list(stack: &StackReport) -> String {
    // The counts are those of the process's life.
    let now = stack.sockets.iter().any(|one| one.place == "stack");
    let been = if now || !stack.is_anything() { "" } else { "has been " };
    let mut text = format!("{been}{}\n", stack.sentence());
    if stack.sockets.is_empty() {
        return text + "no open TCP sockets\n";
    }
    let mut rows = table(&["fd", "peer", "place", "why"], &[0], Width::of_stdout());
    for one in &stack.sockets {
        rows.add_row([
            one.fd.to_string(),
            one.peer.as_deref().map_or_else(|| "-".to_owned(), |peer| shown(peer).into_owned()),
            shown(&one.place).into_owned(),
            shown(&one.why).into_owned(),
        ]);
    }
    text += &lines(&rows);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What listened there is the kernel's once the stack has ended.
    #[test]
    fn what_is_on_the_stack_no_more_has_been_there() {
        let of = |place: &str| {
            let one = StackSocket { fd: 3, place: place.to_owned(), ..StackSocket::default() };
            list(&StackReport { listening: 1, sockets: vec![one], ..StackReport::default() })
        };
        assert!(of("stack").starts_with("on the stack: 1 listener, "), "{}", of("stack"));
        assert!(
            of("kernel").starts_with("has been on the stack: 1 listener, "),
            "{}",
            of("kernel")
        );
        assert!(list(&StackReport::default()).starts_with("on the stack: 0 listeners, "));
    }

    #[test]
    fn a_target_is_a_process_or_one_of_its_descriptors() {
        assert_eq!("4711".parse(), Ok(Target { pid: 4711, fd: None }));
        assert_eq!("4711:0".parse(), Ok(Target { pid: 4711, fd: Some(0) }));
        for wrong in ["", ":", "4711:", ":3", "0", "-1", "4711:-1", "4711:3:4", "4294967295", "x"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}

//! The programs, where they attach, and what is not reported without each of them.

use std::fmt;

use libbpf_rs::btf::{Btf, types};

/// One program of `src/bpf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// Name of the program.
    pub program: &'static str,
    /// Attachment point.
    pub target: Target,
    /// The program that takes its place on kernels that lack the target.
    pub otherwise: Option<&'static str>,
    /// What is not reported if neither runs.
    pub without: Lack,
}

/// What is lost if a program does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Tracing as a whole.
    Everything,
    /// The named information.
    Of(&'static str),
    /// Nothing: it only substitutes for another program.
    Nothing,
}

/// The attachment point of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A kernel function, on entry (fentry).
    Entry(&'static str),
    /// A kernel function, on return (fexit).
    Exit(&'static str),
    /// A tracepoint, by its BTF type (tp_btf).
    Tracepoint(&'static str),
    /// An iterator, which is read instead of attached.
    Iterator(&'static str),
    /// Calls of setsockopt in the root of the cgroup v2 hierarchy.
    SetSockOpt,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(name) => write!(f, "fentry/{name}"),
            Self::Exit(name) => write!(f, "fexit/{name}"),
            Self::Tracepoint(name) => write!(f, "tp_btf/{name}"),
            Self::Iterator(name) => write!(f, "iter/{name}"),
            Self::SetSockOpt => f.write_str("cgroup/setsockopt"),
        }
    }
}

/// A program that does not run on this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// The program.
    pub hook: Hook,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hook { program, target, without, .. } = self.hook;
        write!(f, "the program {program} ({target}) could not be attached: {}", self.why)?;
        match without {
            Of(what) => write!(f, "; not told: {what}"),
            Everything | Nothing => Ok(()),
        }
    }
}

const fn hook(program: &'static str, target: Target, without: Lack) -> Hook {
    Hook { program, target, otherwise: None, without }
}

const fn or(otherwise: &'static str, first: Hook) -> Hook {
    Hook { otherwise: Some(otherwise), ..first }
}

use Lack::{Everything, Nothing, Of};
use Target::{Entry, Exit, Iterator, SetSockOpt, Tracepoint};

/// Without these, the program's times are only known to the kernel's tick.
const BEGINS: Lack = Of("times of the program to less than a tick");

/// All programs. A substitute follows the program that it replaces.
pub(crate) const HOOKS: [Hook; 17] = [
    // The tracepoints of writes exist since Linux 6.16 and 6.3.
    or("write_begins_fn", hook("write_begins_tp", Tracepoint("tcp_sendmsg_locked"), BEGINS)),
    hook("write_begins_fn", Entry("tcp_sendmsg_locked"), Nothing),
    or("write_ended_fn", hook("write_ended_tp", Tracepoint("sock_send_length"), Everything)),
    hook("write_ended_fn", Exit("tcp_sendmsg"), Nothing),
    hook("data_came", Tracepoint("sk_data_ready"), BEGINS),
    // Some kernels have the first and refuse it (EPERM).
    or("sockets_left_in", hook("sockets_left", Iterator("bpf_sk_storage_map"), Everything)),
    hook("sockets_left_in", Iterator("tcp"), Nothing),
    hook("leaves", Tracepoint("net_dev_queue"), Of("how long bytes are held")),
    hook("timer_begins", Tracepoint("timer_expire_entry"), Of("who delays ACKs on this host")),
    hook("timer_ends", Tracepoint("timer_expire_exit"), Of("who delays ACKs on this host")),
    hook(
        "state_changes",
        Tracepoint("inet_sock_set_state"),
        Of("connections that begin or end while tracing"),
    ),
    hook(
        "descriptors_open",
        Iterator("task_file"),
        Of("connections that there were before tracing"),
    ),
    hook(
        "program_begun",
        Tracepoint("sched_process_exec"),
        Of("arguments of short-lived programs"),
    ),
    hook("process_begun", Tracepoint("sched_process_fork"), Of("processes started meanwhile")),
    hook("process_ended", Tracepoint("sched_process_exit"), Nothing),
    hook("sent_again", Tracepoint("tcp_retransmit_skb"), Of("when segments were sent again")),
    hook("option_asked", SetSockOpt, Of("which options the programs ask for")),
];

/// Whether the running kernel has the program's attachment point.
pub(crate) fn exists(kernel: &Btf<'_>, target: Target) -> bool {
    let function = |name: &str| kernel.type_by_name::<types::Func<'_>>(name).is_some();
    match target {
        Entry(name) | Exit(name) => function(name),
        Tracepoint(name) => {
            let name = format!("btf_trace_{name}");
            kernel.type_by_name::<types::Typedef<'_>>(name.as_str()).is_some()
        }
        Iterator(name) => function(&format!("bpf_iter_{name}")),
        SetSockOpt => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_the_place_of_another_program_exists() {
        for hook in HOOKS {
            let Some(otherwise) = hook.otherwise else { continue };
            let other = HOOKS.iter().find(|other| other.program == otherwise).unwrap();
            assert_eq!(other.without, Nothing, "{otherwise}");
        }
    }

    #[test]
    fn an_absent_program_is_told_by_name_with_what_it_costs() {
        let hook = *HOOKS.iter().find(|hook| hook.program == "sent_again").unwrap();
        let text = Absent { hook, why: "no such tracepoint".to_owned() }.to_string();
        assert_eq!(
            text,
            "the program sent_again (tp_btf/tcp_retransmit_skb) could not be attached: no such \
             tracepoint; not told: when segments were sent again"
        );
    }
}

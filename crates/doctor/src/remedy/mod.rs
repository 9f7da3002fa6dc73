//! What to do about a finding, as lines that can be copied.
//!
//! A remedy works at one end. `uncork run` is named only at the end that holds the bytes, or that
//! sends them in needless pieces: at the other end, which holds an ACK, it would change nothing.

mod network;
mod programs;

use std::net::IpAddr;

use crate::{Kind, Party, Remedy, Role};
use programs::Setting;

/// More than these do not help: one remedy at each end, and what else the program offers.
const MOST: usize = 6;

/// The facts on which the remedies depend.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The end that opened the connection, with its process if that is known.
    pub client: &'a Party,
    /// The end that accepted it.
    pub server: &'a Party,
    /// The end whose data it is about; for [`Kind::Application`] the end whose program took its time.
    pub sender: Role,
    /// The end that held the bytes.
    pub bytes_held_by: Option<Role>,
    /// The end that held the ACK.
    pub ack_held_by: Option<Role>,
}

impl Context<'_> {
    fn party(&self, role: Role) -> &Party {
        match role {
            Role::Client => self.client,
            Role::Server => self.server,
        }
    }

    /// Returns the address that the end `role` talks to.
    fn peer_of(&self, role: Role) -> IpAddr {
        self.party(role.other()).endpoint.address
    }

    /// Returns whether both ends are on one host, so that its local routing table is the one that counts.
    fn same_host(&self) -> bool {
        let (client, server) = (self.client.endpoint.address, self.server.endpoint.address);
        client == server || (client.is_loopback() && server.is_loopback())
    }

    /// Returns the name of the program at an end, if a shell takes it for a single word.
    fn program(&self, role: Role) -> Option<&str> {
        let name = self.party(role).process.as_ref()?.name.as_str();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
        let word = !name.is_empty() && !name.starts_with('-') && name.chars().all(plain);
        word.then_some(name)
    }

    /// Returns the command line of the program at an end, if a shell can take it.
    fn command(&self, role: Role) -> Option<&str> {
        let process = self.party(role).process.as_ref()?;
        process.command.as_deref().or_else(|| self.program(role))
    }

    fn pid(&self, role: Role) -> Option<u32> {
        self.party(role).process.as_ref().map(|process| process.pid)
    }

    /// Returns the process at an end, if its network is not the one in which the remedies are read.
    fn elsewhere(&self, role: Role) -> Option<u32> {
        let process = self.party(role).process.as_ref()?;
        process.elsewhere.then_some(process.pid)
    }

    /// Returns what comes before a command about the network at an end.
    fn enter(&self, role: Role) -> String {
        self.elsewhere(role).map(|pid| format!("nsenter -t {pid} -n ")).unwrap_or_default()
    }

    /// Returns the option of `uncork tune` for the network at an end.
    fn netns(&self, role: Role) -> String {
        self.elsewhere(role).map(|pid| format!(" --netns /proc/{pid}/ns/net")).unwrap_or_default()
    }

    /// Returns which connections `uncork tune` is to change at an end: its process's, or, where
    /// that is not known, those like this one.
    fn scope(&self, role: Role) -> String {
        let port = self.server.endpoint.port;
        match (self.pid(role), role) {
            (Some(pid), _) => format!("--pid {pid}"),
            (None, Role::Server) => format!("--port {port}"),
            (None, Role::Client) => format!("--peer {} --port {port}", self.peer_of(role)),
        }
    }
}

/// Returns the ways to cure a finding of this kind, best first; none where nothing is known to help.
#[must_use]
pub fn remedies(kind: Kind, context: &Context<'_>) -> Vec<Remedy> {
    let mut list = List { context, found: Vec::new() };
    match kind {
        Kind::NagleDelayedAck | Kind::Runt => {
            list.let_go_of_bytes();
            list.acknowledge_at_once();
        }
        Kind::NoDelayNotInForce => {
            list.own_options(Cause::Nagle);
            list.set_nodelay_late();
            list.tune_nodelay();
            list.uncork_run();
            list.own_code();
        }
        // Nagle's algorithm held no byte, so there is nothing to release at the sender.
        Kind::DelayedAck => list.acknowledge_at_once(),
        Kind::QuickAckExhausted => {
            list.acknowledge_at_once();
            list.mend_quick_acks();
        }
        Kind::CorkTimeout => {
            list.own_options(Cause::Cork);
            list.uncork_in_time();
        }
        Kind::TinyPackets => {
            list.uncork_run_at(context.sender);
            list.write_once();
        }
        Kind::SenderQueue => network::shorten_queue(&mut list),
        Kind::ZeroWindow => network::open_window(&mut list),
        Kind::Retransmission => network::lose_less(&mut list),
        Kind::Application => list.watch_program(),
    }
    list.found.truncate(MOST);
    list.found
}

/// The trouble that a program's own option has to cure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Nagle,
    Cork,
}

/// The remedies found so far.
struct List<'a> {
    context: &'a Context<'a>,
    found: Vec<Remedy>,
}

impl List<'_> {
    fn add(&mut self, at: Role, line: impl Into<String>, why: impl Into<String>) {
        let (line, why) = (line.into(), why.into());
        if self.found.iter().all(|known| known.line != line || known.at != at) {
            self.found.push(Remedy { at, line, why });
        }
    }

    /// Adds all that makes the end with the bytes send them without waiting for an ACK.
    fn let_go_of_bytes(&mut self) {
        let known = self.own_options(Cause::Nagle);
        self.uncork_run();
        self.tune_nodelay();
        let known = self.own_code() || known;
        self.likely_options();
        if !known {
            self.set_nodelay();
        }
    }

    /// Adds what takes effect on existing connections, of any program.
    fn tune_nodelay(&mut self) {
        let Some(at) = self.context.bytes_held_by else { return };
        let line = format!("uncork tune --nodelay {}", self.context.scope(at));
        self.add(
            at,
            line,
            "sets TCP_NODELAY while it runs (as root; uncork tune undo takes it back)",
        );
    }

    fn uncork_run(&mut self) {
        if let Some(at) = self.context.bytes_held_by {
            self.uncork_run_at(at);
        }
    }

    fn uncork_run_at(&mut self, at: Role) {
        if self.context.party(at).process.as_ref().is_some_and(|p| p.beyond_preload) {
            return;
        }
        let known = self.context.party(at).process.as_ref().and_then(|p| p.command.as_deref());
        let whole = known.is_some_and(|command| !command.ends_with('…'));
        let with = if whole { "" } else { ", with its usual arguments" };
        let line = format!("uncork run -- {}", self.context.command(at).unwrap_or("COMMAND"));
        self.add(
            at,
            line,
            format!("start it like this{with}: each message leaves at once and whole"),
        );
    }

    /// Adds options of the program that is known to hold the bytes; returns whether there are any.
    fn own_options(&mut self, cause: Cause) -> bool {
        let Some(at) = self.context.bytes_held_by else { return false };
        let Some(name) = self.context.program(at) else { return false };
        let before = self.found.len();
        for Setting { line, why, .. } in programs::of_name(name, cause, at) {
            self.add(at, line, why);
        }
        self.found.len() > before
    }

    /// Adds lines of code in the language of the program that holds the bytes; returns whether it is known.
    fn own_code(&mut self) -> bool {
        let Some(at) = self.context.bytes_held_by else { return false };
        let Some(name) = self.context.program(at) else { return false };
        let lines = programs::of_language(name, at);
        let known = !lines.is_empty();
        for Setting { line, why, .. } in lines {
            self.add(at, line, why);
        }
        known
    }

    /// Adds options of programs that usually listen on this port, where the program is not known.
    fn likely_options(&mut self) {
        let Some(at) = self.context.bytes_held_by else { return };
        if self.context.program(at).is_some() {
            return;
        }
        let port = self.context.server.endpoint.port;
        for Setting { line, why, program } in programs::of_port(port, at) {
            self.add(at, line, format!("if it is {program}: {why}"));
        }
    }

    fn set_nodelay(&mut self) {
        let Some(at) = self.context.bytes_held_by else { return };
        self.add(
            at,
            "setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));",
            "in the program, once for each connection; and write each message with one call",
        );
    }

    fn set_nodelay_late(&mut self) {
        let Some(at) = self.context.bytes_held_by else { return };
        self.add(
            at,
            "setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));",
            "on the connected descriptor itself, after connect or accept, and look at what it \
             returns",
        );
    }

    /// Adds what makes the end with the ACK send it.
    fn acknowledge_at_once(&mut self) {
        let Some(at) = self.context.ack_held_by else { return };
        let peer = self.context.peer_of(at);
        let (same_host, enter) = (self.context.same_host(), self.context.enter(at));
        let Some(route) = network::route(peer, same_host, "quickack 1", &enter) else {
            let line = format!("uncork tune --delack-max 10ms {}", self.context.scope(at));
            self.add(at, line, "delays no ACK for longer than that (as root)");
            self.add(
                at,
                "setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, sizeof(int));",
                "in the program, after each read: the kernel forgets it again",
            );
            return;
        };
        let line = format!("uncork tune --quickack --peer {peer}{}", self.context.netns(at));
        self.add(at, line, "acknowledges everything from there at once (as root)");
        self.add(at, route, "the same without uncork");
    }

    fn mend_quick_acks(&mut self) {
        let Some(at) = self.context.ack_held_by else { return };
        self.add(
            at,
            "uname -r  # 6.6, 6.1.57 or a later one of its tree?",
            "older kernels spend a quick-ACK credit for every segment sent (mended by commit \
             059217c18be6)",
        );
    }

    fn uncork_in_time(&mut self) {
        let Some(at) = self.context.bytes_held_by else { return };
        self.add(
            at,
            "setsockopt(fd, IPPROTO_TCP, TCP_CORK, &(int){0}, sizeof(int));",
            "in the program, at the end of each message; or send its last part without MSG_MORE",
        );
    }

    fn write_once(&mut self) {
        let at = self.context.sender;
        let party = self.context.party(at);
        let shape = if party.segments_per_message > 1 && party.message_bytes > 0 {
            let (bytes, segments) = (party.message_bytes, party.segments_per_message);
            format!("; its messages of {bytes} octets leave in {segments} segments")
        } else {
            String::new()
        };
        self.add(
            at,
            "writev(fd, parts, sizeof parts / sizeof parts[0]);",
            format!("in the program: gather a message and write it with one call{shape}"),
        );
    }

    fn watch_program(&mut self) {
        let at = self.context.sender;
        let Some(pid) = self.context.pid(at) else { return };
        self.add(
            at,
            format!("perf trace --duration 1 --pid {pid}"),
            "shows in which system calls longer than 1 ms it spends its time",
        );
    }
}

#[cfg(test)]
mod tests;

//! Options of known programs that make them send small writes at once.
//!
//! The facts are from each program's own manual. A program that sets TCP_NODELAY itself, and cannot be
//! told not to, is not in the list: where it stalls nevertheless, an option is not the reason.

use super::Cause;
use crate::Role;

/// A setting that a program offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    /// The program's name, for a sentence.
    pub(super) program: &'static str,
    /// The line for its configuration, its code or a shell.
    pub(super) line: &'static str,
    /// Where the line goes, and what it does.
    pub(super) why: &'static str,
}

/// A program, recognised by what a capture or a trace shows of it.
struct Program {
    name: &'static str,
    /// Prefixes of the process name (comm, 15 octets at most).
    processes: &'static [&'static str],
    /// The end at which it runs.
    end: Role,
    /// Ports on which it usually listens or, for a client, to which it connects.
    ports: &'static [u16],
    /// Lines against Nagle's algorithm.
    nagle: &'static [(&'static str, &'static str)],
    /// Lines against a corked tail.
    cork: &'static [(&'static str, &'static str)],
}

const HTTP: &[u16] = &[80, 443, 8080, 8443];

const PROGRAMS: &[Program] = &[
    Program {
        name: "nginx",
        processes: &["nginx"],
        end: Role::Server,
        ports: HTTP,
        nagle: &[("tcp_nodelay on;", "in http, server or location")],
        cork: &[
            ("tcp_nopush off;", "in http, server or location: no TCP_CORK around sendfile"),
            ("tcp_nodelay on;", "in http, server or location: takes the cork out at the end"),
        ],
    },
    Program {
        name: "HAProxy",
        processes: &["haproxy"],
        end: Role::Server,
        ports: HTTP,
        nagle: &[("option http-no-delay", "in defaults, frontend or backend")],
        cork: &[("option http-no-delay", "in defaults, frontend or backend: no MSG_MORE")],
    },
    Program {
        name: "Python's http.server",
        processes: &[],
        end: Role::Server,
        ports: &[8000],
        nagle: &[(
            "wbufsize = -1",
            "in the class of the request handler: header and body leave in one write",
        )],
        cork: &[],
    },
    Program {
        name: "uWSGI",
        processes: &["uwsgi"],
        end: Role::Server,
        ports: &[],
        nagle: &[("tcp-nodelay = true", "in its ini file")],
        cork: &[],
    },
    Program {
        name: "redis",
        processes: &["redis-server", "valkey-server"],
        end: Role::Server,
        ports: &[],
        nagle: &[(
            "redis-cli config set repl-disable-tcp-nodelay no",
            "for the connections to its replicas; those to clients have TCP_NODELAY",
        )],
        cork: &[],
    },
    Program {
        name: "PHP's Memcached",
        processes: &[],
        end: Role::Client,
        ports: &[11211],
        nagle: &[(
            "$memcached->setOption(Memcached::OPT_TCP_NODELAY, true);",
            "after the object is made, before servers are added",
        )],
        cork: &[],
    },
    Program {
        name: "librdkafka",
        processes: &[],
        end: Role::Client,
        ports: &[9092, 9093],
        nagle: &[("socket.nagle.disable=true", "in the client's configuration")],
        cork: &[],
    },
    Program {
        name: "a driver that is not libpq",
        processes: &[],
        end: Role::Client,
        ports: &[5432, 6432],
        nagle: &[(
            "setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));",
            "libpq and the server do it themselves, not every driver and pooler does",
        )],
        cork: &[],
    },
    Program {
        name: "RabbitMQ",
        processes: &[],
        end: Role::Server,
        ports: &[5672],
        nagle: &[("tcp_listen_options.nodelay = true", "in rabbitmq.conf")],
        cork: &[],
    },
    Program {
        name: "Samba",
        processes: &["smbd"],
        end: Role::Server,
        ports: &[445],
        nagle: &[("socket options = TCP_NODELAY", "in [global] of smb.conf")],
        cork: &[],
    },
    Program {
        name: "OpenVPN",
        processes: &["openvpn"],
        end: Role::Server,
        ports: &[1194],
        nagle: &[("tcp-nodelay", "in the server's configuration; it tells its clients, too")],
        cork: &[],
    },
];

/// Languages whose programs all have the same process name, with the line of code.
const RUNTIMES: &[(&[&str], &str, &str)] = &[
    (&["node", "nodejs", "deno", "bun"], "Node.js", "socket.setNoDelay(true);"),
    (&["java"], "Java", "socket.setTcpNoDelay(true);"),
    (
        &["python", "gunicorn"],
        "Python",
        "sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)",
    ),
    (&["php"], "PHP", "stream_context_create(['socket' => ['tcp_nodelay' => true]]);"),
    (&["ruby", "puma"], "Ruby", "socket.setsockopt(:TCP, :NODELAY, 1)"),
    (&["perl"], "Perl", "setsockopt($socket, IPPROTO_TCP, TCP_NODELAY, 1);"),
    (&["beam.smp", "erl_child_setup"], "Erlang", "inet:setopts(Socket, [{nodelay, true}])."),
    (&["dotnet", ".NET"], ".NET", "socket.NoDelay = true;"),
];

/// Returns what the program with this process name offers at its end of the connection.
pub(super) fn of_name(name: &str, cause: Cause, end: Role) -> Vec<Setting> {
    let named = |processes: &[&str]| processes.iter().any(|process| name.starts_with(process));
    PROGRAMS
        .iter()
        .filter(|program| named(program.processes))
        // A proxy is a client, too, and its options are for both sides.
        .filter(|program| program.end == end || program.ports == HTTP)
        .flat_map(|program| program.options(cause))
        .collect()
}

/// Returns what the code of the program with this process name can do, if its language is known.
pub(super) fn of_language(name: &str, end: Role) -> Vec<Setting> {
    let named = |processes: &&[&str]| processes.iter().any(|process| name.starts_with(process));
    let mut lines = Vec::new();
    if name.starts_with("python") && end == Role::Server {
        lines.push(Setting {
            program: "Python",
            line: "wbufsize = -1",
            why: "in a http.server's request handler: header and body leave in one write",
        });
    }
    let language = RUNTIMES.iter().find(|(processes, ..)| named(processes));
    lines.extend(language.map(|&(_, program, line)| Setting {
        program,
        line,
        why: "in the program, once for each connection",
    }));
    lines
}

/// Returns what programs that usually serve this port offer at that end. On the ports of HTTP anything
/// may listen: there a guess would not help.
pub(super) fn of_port(port: u16, end: Role) -> Vec<Setting> {
    let speaks = |program: &&Program| {
        program.end == end && program.ports != HTTP && program.ports.contains(&port)
    };
    PROGRAMS.iter().filter(speaks).flat_map(|program| program.options(Cause::Nagle)).collect()
}

impl Program {
    fn options(&self, cause: Cause) -> impl Iterator<Item = Setting> {
        let lines = match cause {
            Cause::Nagle => self.nagle,
            Cause::Cork => self.cork,
        };
        lines.iter().map(|&(line, why)| Setting { program: self.name, line, why })
    }
}

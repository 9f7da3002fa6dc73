//! Man pages and shell completions, from the single definition of the command line and the sections
//! in `man/` that a definition cannot hold.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::arguments::{Generate, Generated, Uncork};
use crate::failure::Failure;

/// Pages of uncork's own commands, and what follows the options in each.
const PAGES: [(&str, &str); 26] = [
    ("uncork", include_str!("../man/uncork.roff")),
    ("uncork-run", include_str!("../man/uncork-run.roff")),
    ("uncork-doctor", include_str!("../man/uncork-doctor.roff")),
    ("uncork-tune", include_str!("../man/uncork-tune.roff")),
    ("uncork-tune-small-queues", include_str!("../man/uncork-tune-small-queues.roff")),
    ("uncork-tune-sink", include_str!("../man/uncork-tune-sink.roff")),
    ("uncork-tune-list", include_str!("../man/uncork-tune-list.roff")),
    ("uncork-tune-undo", include_str!("../man/uncork-tune-undo.roff")),
    ("uncork-status", include_str!("../man/uncork-status.roff")),
    ("uncork-library", include_str!("../man/uncork-library.roff")),
    ("uncork-ack", include_str!("../man/uncork-ack.roff")),
    ("uncork-ack-server", include_str!("../man/uncork-ack-server.roff")),
    ("uncork-ack-client", include_str!("../man/uncork-ack-client.roff")),
    ("uncork-lab", include_str!("../man/uncork-lab.roff")),
    ("uncork-lab-nodelay", include_str!("../man/uncork-lab-nodelay.roff")),
    ("uncork-lab-tsq", include_str!("../man/uncork-lab-tsq.roff")),
    ("uncork-lab-quickack", include_str!("../man/uncork-lab-quickack.roff")),
    ("uncork-lab-kernels", include_str!("../man/uncork-lab-kernels.roff")),
    ("uncork-lab-link", include_str!("../man/uncork-lab-link.roff")),
    ("uncork-stack", include_str!("../man/uncork-stack.roff")),
    ("uncork-stack-serve", include_str!("../man/uncork-stack-serve.roff")),
    ("uncork-stack-connect", include_str!("../man/uncork-stack-connect.roff")),
    ("uncork-stack-start", include_str!("../man/uncork-stack-start.roff")),
    ("uncork-stack-guard", include_str!("../man/uncork-stack-guard.roff")),
    ("uncork-stack-stat", include_str!("../man/uncork-stack-stat.roff")),
    ("uncork-stack-why", include_str!("../man/uncork-stack-why.roff")),
];
const CLIENT: &str = include_str!("../man/tcp_nodelay_client.roff");
const SERVER: &str = include_str!("../man/tcp_nodelay_server.roff");

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// `uncork generate`.
pub(crate) fn generate(arguments: &Generate) -> Result<i32, Failure> {
    let directory = &arguments.out;
    let written = fs::create_dir_all(directory).and_then(|()| match arguments.what {
        Generated::Man => man(directory),
        Generated::Completions => completions(directory),
    });
    let failed = |error| Failure::own(format!("{}: {error}", directory.display()));
    written.map(|()| 0).map_err(failed)
}

fn man(directory: &Path) -> io::Result<()> {
    let mut uncork = visible().disable_help_subcommand(true).subcommand_required(true);
    uncork.build();
    for (name, sections) in PAGES {
        let command = named(&uncork, name);
        let command = command.ok_or_else(|| io::Error::other(format!("no command {name}")))?;
        page(directory, name, command.clone(), sections)?;
    }
    page(directory, "tcp_nodelay_client", uncork_nodelay::client::command(), CLIENT)?;
    page(directory, "tcp_nodelay_server", uncork_nodelay::server::command(), SERVER)
}

/// Returns the command of a page: its own name and those above it are joined by hyphens, which
/// names may contain as well.
fn named<'a>(command: &'a Command, page: &str) -> Option<&'a Command> {
    match page.strip_prefix(command.get_name())? {
        "" => Some(command),
        rest => {
            let rest = rest.strip_prefix('-')?;
            command.get_subcommands().find_map(|below| named(below, rest))
        }
    }
}

/// Returns the definition without what is hidden, which the generators do not leave out.
fn visible() -> Command {
    let all = Uncork::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let shown: Vec<_> = shown.collect();
    let mut only = Command::new("uncork").subcommands(shown).version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = all.get_about() {
        only = only.about(about.clone());
    }
    match all.get_long_about() {
        Some(about) => only.long_about(about.clone()),
        None => only,
    }
}

fn page(directory: &Path, name: &str, command: Command, sections: &str) -> io::Result<()> {
    // The help ends with what the sections describe in more detail; other commands have only the help.
    let notes = command.get_after_help().filter(|_| !name.starts_with("uncork"));
    let notes = notes.map(|notes| notes.to_string()).unwrap_or_default();
    let has_subcommands = command.has_subcommands();
    let usage = command.clone().render_usage().to_string();
    let man = Man::new(command).title(name);
    let mut text = Vec::new();
    man.render_name_section(&mut text)?;
    writeln!(text, ".SH SYNOPSIS\n{}", synopsis(&usage))?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_subcommands {
        man.render_subcommands_section(&mut text)?;
    }
    if !notes.is_empty() {
        writeln!(text, ".SH NOTES\n{}", paragraphs(&notes))?;
    }
    text.write_all(sections.as_bytes())?;
    fs::write(directory.join(format!("{name}.1")), whole(name, &text))
}

/// Assembles a page from its parts. Each rendered part begins with the same definitions, which are
/// needed once. The title comes first, and without a date: a page is generated with each build.
fn whole(name: &str, parts: &[u8]) -> String {
    let is_definition = |line: &&str| line.starts_with(".ie ") || line.starts_with(".el ");
    let parts = String::from_utf8_lossy(parts);
    let (definitions, lines): (Vec<_>, Vec<_>) = parts.lines().partition(is_definition);
    let title = format!(
        ".TH \"{}\" 1 \"\" \"uncork {}\" \"User Commands\"",
        name.to_uppercase().replace('-', "\\-"),
        env!("CARGO_PKG_VERSION")
    );
    let definitions = definitions.into_iter().take(2);
    definitions.chain([title.as_str()]).chain(lines).map(|line| format!("{line}\n")).collect()
}

/// Returns the usage lines of the help, one below the other.
fn synopsis(usage: &str) -> String {
    let usage = usage.strip_prefix("Usage:").unwrap_or(usage);
    let lines: Vec<_> = usage.lines().map(|line| paragraphs(line.trim())).collect();
    lines.join("\n.br\n")
}

/// Converts plain text to roff: an empty line begins a paragraph.
fn paragraphs(text: &str) -> String {
    let line = |line: &str| match line {
        "" => ".PP".to_owned(),
        // A line must not begin with what roff takes for a request.
        line => format!("\\&{}", line.replace('\\', "\\\\").replace('-', "\\-")),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn completions(directory: &Path) -> io::Result<()> {
    let commands = [
        ("uncork", visible()),
        ("tcp_nodelay_client", uncork_nodelay::client::command()),
        ("tcp_nodelay_server", uncork_nodelay::server::command()),
    ];
    for (name, command) in commands {
        for shell in SHELLS {
            clap_complete::generate_to(shell, &mut command.clone(), name, directory)?;
        }
    }
    Ok(())
}

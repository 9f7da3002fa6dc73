//! Command lines of processes, as lines for a shell.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use uncork_doctor::live::Live;

use super::processes;
use crate::inspect::{For, inspect};

/// A longer line is cut after an argument.
const LONGEST: usize = 160;
/// Marks a line that was cut.
const CUT: &str = " \u{2026}";

/// Processes whose command lines were read.
#[derive(Debug, Default)]
pub(super) struct Commands {
    seen: HashSet<u32>,
}

/// How a process was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Started {
    /// The line, if it is known.
    pub(super) command: Option<String>,
    /// Whether `uncork run` would take its program.
    pub(super) can_preload: bool,
    /// Whether it is in another network namespace.
    pub(super) elsewhere: bool,
}

impl Started {
    fn with(pid: u32, command: Option<String>) -> Self {
        let (can_preload, elsewhere) = (can_preload(pid), processes::is_elsewhere(pid));
        Self { command, can_preload, elsewhere }
    }

    /// Passes it on.
    pub(super) fn tell(self, pid: u32, live: &mut Live) {
        live.started(pid, self.command, self.can_preload);
        live.elsewhere(pid, self.elsewhere);
    }
}

impl Commands {
    /// Notes that a process executes a program with these arguments, each terminated by a NUL.
    pub(super) fn executed(&mut self, pid: u32, arguments: &[u8]) -> Started {
        self.seen.insert(pid);
        let command = line(arguments).or_else(|| of_process(pid));
        Started::with(pid, command)
    }

    /// Reads the command line of a process that was not seen before. It may be gone by then.
    pub(super) fn met(&mut self, pid: u32) -> Option<Started> {
        let first = pid != 0 && self.seen.insert(pid);
        first.then(|| Started::with(pid, of_process(pid)))
    }
}

/// Decides as `uncork run` does; nothing is held against a process that is gone.
fn can_preload(pid: u32) -> bool {
    let program = format!("/proc/{pid}/exe");
    let program = Path::new(&program);
    !program.exists() || inspect(program, None, For::Writes).is_ok()
}

/// Reads the command line from /proc. Programs that write titles over their arguments ("nginx:
/// worker process") were started as their parents were, if they are the same program.
fn of_process(mut pid: u32) -> Option<String> {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program(pid)?;
    loop {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        if let Some(line) = line(&arguments) {
            return Some(line);
        }
        pid = processes::parent(pid)?;
        if program(pid)? != own {
            return None;
        }
    }
}

/// Returns the arguments quoted for a shell; `None` if they are a title.
fn line(arguments: &[u8]) -> Option<String> {
    let whole = arguments.last() == Some(&0);
    let mut parts: Vec<&[u8]> = arguments.split(|&octet| octet == 0).collect();
    // What follows the last NUL is empty, or was cut.
    let rest = parts.pop();
    let title = |name: &[u8]| !name.starts_with(b"/") && name.contains(&b' ');
    let first = *parts.first()?;
    if first.is_empty() || first.starts_with(b"-") || title(first) {
        return None;
    }
    let mut line = String::new();
    for part in parts {
        let quoted = quoted(&String::from_utf8_lossy(part));
        if !line.is_empty() && line.len() + quoted.len() > LONGEST {
            return Some(line + CUT);
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&quoted);
    }
    let cut = !whole && rest.is_some_and(|rest| !rest.is_empty());
    Some(if cut { line + CUT } else { line })
}

/// Quotes a word for a shell, and for a terminal.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if word.chars().any(char::is_control) {
        let escaped = word.chars().map(|c| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        });
        return format!("$'{}'", escaped.collect::<String>());
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_given_to_a_shell() {
        let of = |arguments: &[&str]| line((arguments.join("\0") + "\0").as_bytes()).unwrap();
        assert_eq!(of(&["python3", "-m", "http.server"]), "python3 -m http.server");
        assert_eq!(of(&["/opt/my app/run", "it's", ""]), r"'/opt/my app/run' 'it'\''s' ''");
        assert_eq!(of(&["echo", "$HOME;rm"]), "echo '$HOME;rm'");
        assert_eq!(of(&["printf", "a\x1b[2J\\"]), r"printf $'a\u001b[2J\\'");
    }

    #[test]
    fn what_is_too_long_is_cut_between_arguments() {
        let long = format!("java\0-cp\0{}\0", "/lib/a.jar:".repeat(40));
        assert_eq!(line(long.as_bytes()).unwrap(), "java -cp …");
        // The tracer has cut it.
        assert_eq!(line(b"java\0-jar\0/opt/a").unwrap(), "java -jar …");
    }

    #[test]
    fn a_title_is_no_command() {
        for title in ["nginx: worker process\0\0\0", "postgres: main: idle\0", "-bash\0", "\0", ""]
        {
            assert_eq!(line(title.as_bytes()), None, "{title:?}");
        }
    }

    #[test]
    fn our_own_is_found() {
        let mut commands = Commands::default();
        let own = commands.met(std::process::id()).unwrap();
        assert!(own.can_preload && !own.elsewhere && own.command.unwrap().contains("uncork"));
        assert_eq!(commands.met(std::process::id()), None, "again");
    }
}

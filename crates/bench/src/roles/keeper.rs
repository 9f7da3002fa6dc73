//! Restoration of what a process that may be killed at any moment has changed outside itself.

use std::fs;
use std::io::{self, BufRead};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A duty, given as a line of standard input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Kill this process group, even if it is stopped: a signal that can be caught would stay pending.
    End(i32),
    /// Write this word back to this file.
    Write {
        /// The file.
        file: PathBuf,
        /// Its old contents.
        word: String,
    },
}

impl Duty {
    /// Returns it as a line.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::End(group) => format!("end {group}\n"),
            Self::Write { file, word } => format!("write {word} {}\n", file.display()),
        }
    }

    fn parse(line: &str) -> Result<Self> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "end" => {
                let group = rest.parse().context("end wants a process group")?;
                // 0 would be the keeper's own group, 1 the machine's.
                ensure!(group > 1, "{group} is no group of ours");
                Ok(Self::End(group))
            }
            "write" => {
                let (word, file) = rest.split_once(' ').context("write wants a word and a file")?;
                Ok(Self::Write { file: file.into(), word: word.to_owned() })
            }
            _ => bail!("{line:?} is no duty"),
        }
    }

    fn fulfil(&self) -> Result<()> {
        match self {
            Self::End(group) => {
                // A group that is already gone needs no ending.
                let _ = killpg(Pid::from_raw(*group), Signal::SIGKILL);
                Ok(())
            }
            Self::Write { file, word } => {
                fs::write(file, word).with_context(|| format!("writing {}", file.display()))
            }
        }
    }
}

/// Reads duties until the end of standard input, then does them, the last one first.
pub(crate) fn run() -> Result<()> {
    let mut duties = Vec::new();
    // The end comes when the last holder of the other end is gone; so does an incomplete line.
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        duties.push(Duty::parse(&line)?);
    }
    // A failed duty does not keep the others from being done.
    let done: Vec<Result<()>> = duties.iter().rev().map(Duty::fulfil).collect();
    done.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let write = Duty::Write { file: "/a b/c".into(), word: "7".to_owned() };
        for duty in [Duty::End(4711), write] {
            assert_eq!(Duty::parse(duty.line().trim_end()).unwrap(), duty);
        }
    }

    #[test]
    fn nobody_elses_group_is_ended() {
        for line in ["end 1", "end 0", "end -7", "end", "end x", "write 7", "", "sweep"] {
            assert!(Duty::parse(line).is_err(), "{line:?}");
        }
    }
}

//! The first line of a script, parsed as the kernel does (fs/binfmt_script.c), and what
//! `/usr/bin/env` in it makes of it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// `#!INTERPRETER [ARGUMENT]`; all that follows the interpreter is one argument.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) interpreter: OsString,
    pub(crate) argument: Option<OsString>,
}

/// Parses the head of a file; `None` if the kernel would not take it for a script.
pub(crate) fn first_line(head: &[u8]) -> Option<Line> {
    let line = head.strip_prefix(b"#!")?;
    let end = line.iter().position(|&byte| byte == b'\n');
    let line = trim(&line[..end.unwrap_or(line.len())]);
    let split = line.iter().position(|&byte| is_blank(byte) || byte == 0);
    // A name that fills all that the kernel reads may be cut off: the kernel refuses it.
    if end.is_none() && split.is_none() && head.len() >= super::HEAD_BYTES {
        return None;
    }
    let (interpreter, rest) = line.split_at(split.unwrap_or(line.len()));
    if interpreter.is_empty() {
        return None;
    }
    let argument = rest.split(|&byte| byte == 0).next().map(trim).unwrap_or_default();
    Some(Line {
        interpreter: os(interpreter),
        argument: (!argument.is_empty()).then(|| os(argument)),
    })
}

/// The program that a first line finally runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// It is not `env`, or `env` has nothing to look up: the interpreter itself counts.
    Nothing,
    /// `env` looks this name up.
    Name(OsString),
    /// `env` is told to clear the environment.
    EmptyEnvironment,
}

/// Follows `env NAME`, `env -S NAME ARGUMENTS…`, with options and assignments before NAME.
pub(crate) fn through_env(line: &Line) -> Behind {
    if Path::new(&line.interpreter).file_name() != Some(OsStr::new("env")) {
        return Behind::Nothing;
    }
    let Some(argument) = &line.argument else { return Behind::Nothing };
    let words = match split_string(argument.as_bytes()) {
        Some(text) => words(text),
        None => vec![argument.as_bytes().to_vec()],
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_slice() {
            b"-" | b"-i" | b"--ignore-environment" => return Behind::EmptyEnvironment,
            b"-u" | b"--unset" | b"-C" | b"--chdir" => {
                words.next();
            }
            b"--" => {}
            option if option.starts_with(b"-") => {}
            assignment if assignment.contains(&b'=') => {}
            _ => return Behind::Name(OsString::from_vec(word)),
        }
    }
    Behind::Nothing
}

/// Returns the text after `-S` (`-S text`, `-Stext`, `-vS text`, `--split-string=`).
fn split_string(argument: &[u8]) -> Option<&[u8]> {
    if let Some(text) = argument.strip_prefix(b"--split-string") {
        return Some(text.strip_prefix(b"=").unwrap_or(text));
    }
    let flags = argument.strip_prefix(b"-")?;
    let at = flags.iter().position(|&byte| byte == b'S')?;
    flags[..at].iter().all(|byte| b"v0".contains(byte)).then(|| &flags[at + 1..])
}

/// Splits at blanks outside quotes, as `env -S` does; a backslash takes the next byte literally.
/// Variables are not expanded: a name that depends on one is looked up as written.
fn words(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, _) if is_blank(byte) => words.extend(word.take()),
            (None, b'#') if word.is_none() => break,
            (_, b'\\') => word.get_or_insert_default().extend(bytes.next()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_blank(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_blank(*last)
    {
        text = rest;
    }
    text
}

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        first_line(text.as_bytes()).unwrap()
    }

    #[test]
    fn interpreter_and_one_argument() {
        let parsed = line("#! /usr/bin/python3 \t -u -x \nprint()");
        assert_eq!(parsed.interpreter, "/usr/bin/python3");
        assert_eq!(parsed.argument.unwrap(), "-u -x");
        assert_eq!(line("#!/bin/sh").argument, None);
        assert_eq!(line("#!/bin/sh\r\n").interpreter, "/bin/sh\r");
    }

    #[test]
    fn what_the_kernel_does_not_take_for_a_script() {
        assert_eq!(first_line(b""), None);
        assert_eq!(first_line(b"#!"), None);
        assert_eq!(first_line(b"#! \t\n/bin/sh"), None);
        assert_eq!(first_line(b"echo hello\n"), None);
        let mut cut_off = b"#!/".to_vec();
        cut_off.resize(super::super::HEAD_BYTES, b'x');
        assert_eq!(first_line(&cut_off), None);
    }

    #[test]
    fn env_in_its_spellings() {
        let name = |name: &str| Behind::Name(name.into());
        for (text, behind) in [
            ("#!/usr/bin/env python3", name("python3")),
            ("#!/usr/bin/env python3 -u", name("python3 -u")),
            ("#!/usr/bin/env -S python3 -u", name("python3")),
            ("#!/usr/bin/env -Snode --flag", name("node")),
            ("#!/usr/bin/env -vS 'my node' x", name("my node")),
            ("#!/usr/bin/env --split-string=perl -w", name("perl")),
            ("#!/usr/bin/env -S LANG=C -u FOO -C /tmp ruby", name("ruby")),
            ("#!/usr/bin/env -S a\\ b c", name("a b")),
            ("#!/usr/bin/env -S -i python3", Behind::EmptyEnvironment),
            ("#!/usr/bin/env", Behind::Nothing),
            ("#!/bin/sh -e", Behind::Nothing),
        ] {
            assert_eq!(through_env(&line(text)), behind, "{text}");
        }
    }
}

//! `uncork`: runs a program under `libuncork.so`, or inspects a running one.
//!
//! This crate contains arguments, tables and the start of programs; what is held and when is
//! decided elsewhere.
#![deny(unsafe_code)]
// See `entry`: the program that is run inherits what a runtime would have changed.
#![cfg_attr(not(test), no_main)]

mod arguments;
mod command;
mod doctor;
#[cfg(test)]
mod documents;
mod entry;
mod environment;
mod failure;
mod fstack;
mod generate;
mod guardian;
mod inspect;
mod lab;
mod library;
mod loader;
mod output;
mod page;
mod pids;
mod place_file;
mod placement;
mod run;
mod stack;
mod stats;
mod status;
mod tables;
mod tune;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::arguments::{Command, Uncork};
use crate::failure::Failure;

/// Parses the command line, does what it says, and returns the exit status.
fn uncork() -> i32 {
    let arguments = match Uncork::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let done = match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Tune(arguments) => tune::tune(&arguments),
        Command::Status(arguments) => status::status(&arguments),
        Command::Ack(arguments) => Ok(uncork_ack::run(&arguments)),
        Command::Lab(arguments) => lab::lab(&arguments),
        Command::Stack(arguments) => stack::stack(arguments),
        Command::Library => library::print(),
        Command::Generate(arguments) => generate::generate(&arguments),
        Command::Guest(arguments) => lab::guest(&arguments),
        Command::Guardian(arguments) => guardian::guardian(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            output::survive_broken_pipes();
            output::complain(&failure);
            failure.code()
        }
    }
}

/// Returns what `uncork doctor trace.pcap` and the like should have been.
fn bare_word(error: &clap::Error) -> Option<String> {
    let mut words = std::env::args_os().skip(1);
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return None,
    };
    let is_doctor = words.next().is_some_and(|first| first == "doctor");
    let is_bare = word == "-" || !word.starts_with('-');
    (is_doctor && is_bare).then(|| doctor::meant(word, words.any(|word| word == "--pcap")))
}

/// Prints a usage error. Help and version are no errors. A wrong `uncork run` line is a failure of
/// uncork itself, which must not be taken for the program's exit status: 125, where others return 2.
fn usage(error: &clap::Error) -> i32 {
    output::survive_broken_pipes();
    if let Some(sentence) = bare_word(error) {
        output::complain(sentence);
        return Failure::USAGE;
    }
    // A closed pipe is no error, and there is no other place to report it.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        _ if std::env::args_os().nth(1).is_some_and(|first| first == "run") => Failure::OWN,
        _ => Failure::USAGE,
    }
}

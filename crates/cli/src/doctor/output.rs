//! The outputs of a report: a table, JSON, a page.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use uncork_doctor::Report;

use super::arguments::Doctor;
use super::{page, table};
use crate::failure::Failure;
use crate::output;
use crate::tables::Width;

/// Prints the report for people, on standard output.
pub(super) fn print_table(report: &Report) -> Result<(), Failure> {
    let text = table::render(report, Width::of_stdout());
    output::print(&text)
}

/// Prints the report for programs, on standard output. It is written as it is generated: of a hundred
/// thousand connections it is long.
pub(super) fn print_json(report: &Report) -> Result<(), Failure> {
    output::survive_broken_pipes();
    let mut out = BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::from);
    match written.and_then(|()| writeln!(out)).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let sentence = format!("standard output cannot be written: {error}");
            Err(Failure::own(sentence))
        }
        _ => Ok(()),
    }
}

/// Returns whether both names are those of one file.
pub(super) fn are_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    file(one).is_some_and(|found| file(other) == Some(found))
}

/// The file of the page, opened before there is anything to write: an hour of tracing must not be
/// wasted on a page that cannot be written.
pub(super) struct Page {
    path: PathBuf,
    file: File,
    /// Whether it was created here, and holds nothing that would be missed.
    is_new: bool,
}

impl Page {
    /// Opens it, if it is asked for.
    pub(super) fn wanted(arguments: &Doctor) -> Result<Option<Self>, Failure> {
        arguments.html.as_deref().map(Self::open).transpose()
    }

    /// Opens the file. Its content is kept until the page is written.
    fn open(path: &Path) -> Result<Self, Failure> {
        let is_new = path.symlink_metadata().is_err();
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), file, is_new })
    }

    /// Writes the page, in place of the old content.
    pub(super) fn write(mut self, report: &Report) -> Result<(), Failure> {
        let text = page::render(report);
        let written = self.replace(text.as_bytes());
        // Part of a page on a full disk is nothing that would be missed either.
        self.is_new &= written.is_err();
        written.map_err(|error| Failure::own(not_written(&self.path, &error)))
    }

    fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        // Pipes and devices have no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let sentence = not_written(path, error);
    match error.kind() {
        ErrorKind::PermissionDenied => Failure::no_permission(sentence),
        _ => Failure::unusable(sentence),
    }
}

fn not_written(path: &Path, error: &io::Error) -> String {
    format!("{}: it cannot be written: {error}", path.display())
}

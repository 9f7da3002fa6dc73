//! Where a report goes: a table, JSON, a page.

use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use uncork_doctor::Report;

use super::{page, table};
use crate::failure::Failure;
use crate::output;
use crate::tables::Width;

/// The report for people, on standard output.
pub(super) fn print_table(report: &Report) -> Result<(), Failure> {
    let text = table::render(report, Width::of_stdout());
    output::print(&text).map_err(|failure| Failure::unusable(failure.to_string()))
}

/// The report for programs, on standard output. Written as it is made: of a hundred thousand
/// connections it is long.
pub(super) fn print_json(report: &Report) -> Result<(), Failure> {
    output::survive_broken_pipes();
    let mut out = BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::from);
    match written.and_then(|()| writeln!(out)).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let sentence = format!("standard output cannot be written: {error}");
            Err(Failure::unusable(sentence))
        }
        _ => Ok(()),
    }
}

/// Whether both names are those of one file.
pub(super) fn are_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    file(one).is_some_and(|found| file(other) == Some(found))
}

/// The page.
pub(super) fn write_page(report: &Report, file: &Path) -> Result<(), Failure> {
    std::fs::write(file, page::render(report)).map_err(|error| {
        let sentence = format!("{}: it cannot be written: {error}", file.display());
        match error.kind() {
            ErrorKind::PermissionDenied => Failure::no_permission(sentence),
            _ => Failure::unusable(sentence),
        }
    })
}

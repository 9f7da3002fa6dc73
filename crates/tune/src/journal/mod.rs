//! The journal of changes, on disk before they are made: even if we are killed, they can be undone.
//!
//! Each entry is a file, written under another name, synchronised and renamed, so that there is
//! always either the old one or the new one. A reader or writer holds a lock on the directory.

mod entry;
mod mark;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

pub use entry::Entry;
pub use mark::{mark, place};

use crate::Error;

/// The default directory of the journal.
pub const DIRECTORY: &str = "/var/lib/uncork/tune";
/// Name of the file with the number of the last entry, so that no number is used twice.
const LAST: &str = "last";
/// Suffix of a file that is renamed when it is complete.
const DRAFT: &str = ".new";

/// The journal, locked.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    /// Closing it releases the lock.
    _lock: Flock<File>,
}

/// An entry, or the error of reading it.
pub type Read = Result<Entry, Error>;

impl Journal {
    /// Opens the journal for writing, and waits for other processes that have it open.
    ///
    /// # Errors
    /// If the directory cannot be created or locked.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let failed = |error| Error::Journal { path: directory.to_owned(), error };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
        let journal = Self::lock(directory, FlockArg::LockExclusive)?;
        journal.remove_drafts().map_err(failed)?;
        Ok(journal)
    }

    /// Removes what killed writers have left: no other process writes while this one has the journal open.
    fn remove_drafts(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)?.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(DRAFT)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Returns its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the mark in bpffs of entries of this journal.
    #[must_use]
    pub fn mark(&self) -> String {
        mark(&self.directory)
    }

    /// Opens the journal for reading; `None` if nothing was ever changed.
    ///
    /// # Errors
    /// If it may not be read.
    pub fn look(directory: &Path) -> Result<Option<Self>, Error> {
        match Self::lock(directory, FlockArg::LockShared) {
            Err(Error::Journal { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(Error::Journal { path, error }) => Err(Error::Unread { path, error }),
            journal => journal.map(Some),
        }
    }

    fn lock(directory: &Path, how: FlockArg) -> Result<Self, Error> {
        let failed = |error| Error::Journal { path: directory.to_owned(), error };
        let file = File::open(directory).map_err(failed)?;
        let lock = Flock::lock(file, how).map_err(|(_, errno)| failed(errno.into()))?;
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// Returns all entries, oldest first. One that cannot be read does not hide the others.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn entries(&self) -> Result<Vec<(u32, Read)>, Error> {
        let mut ids = self.ids()?;
        ids.sort_unstable();
        Ok(ids.into_iter().map(|id| (id, self.entry(id))).collect())
    }

    /// Returns the entries of which anything may be in force, oldest first.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn standing(&self) -> Result<Vec<Entry>, Error> {
        let readable = self.entries()?.into_iter().filter_map(|(_, entry)| entry.ok());
        Ok(readable.filter(|entry| !entry.is_of_another_boot()).collect())
    }

    /// Returns those of them that were made after this one, without reading the others, which may be long.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn standing_after(&self, id: u32) -> Result<Vec<Entry>, Error> {
        let mut ids = self.ids()?;
        ids.retain(|other| *other > id);
        ids.sort_unstable();
        let readable = ids.into_iter().filter_map(|id| self.entry(id).ok());
        Ok(readable.filter(|entry| !entry.is_of_another_boot()).collect())
    }

    /// Returns one entry.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn entry(&self, id: u32) -> Read {
        let path = self.path(id);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoEntry(id));
            }
            text => text.map_err(|error| Error::Unread { path: path.clone(), error })?,
        };
        let damaged = |why: String| Error::Damaged { path: path.clone(), why };
        let entry: Entry =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if entry.version != entry::VERSION || entry.id != id {
            return Err(damaged(format!("version {}, number {}", entry.version, entry.id)));
        }
        Ok(entry)
    }

    /// Returns a number that no entry has had. `others` are in use elsewhere.
    ///
    /// # Errors
    /// If it cannot be written down.
    pub fn next_id(&self, others: &[u32]) -> Result<u32, Error> {
        let last = fs::read_to_string(self.directory.join(LAST)).unwrap_or_default();
        let last: u32 = last.trim().parse().unwrap_or(0);
        let used = self.ids()?.into_iter().chain(others.iter().copied());
        let id = used.max().unwrap_or(0).max(last) + 1;
        self.replace(LAST, format!("{id}\n").as_bytes())?;
        Ok(id)
    }

    /// Writes an entry, and returns when it is on the disk.
    ///
    /// # Errors
    /// If it could not be written; the file that was there before is kept.
    pub fn write(&self, entry: &Entry) -> Result<(), Error> {
        let failed = |error| Error::Journal { path: self.path(entry.id), error };
        let mut text = serde_json::to_vec_pretty(entry).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        self.replace(&format!("{}.json", entry.id), &text)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// If its file cannot be removed.
    pub fn remove(&self, id: u32) -> Result<(), Error> {
        let path = self.path(id);
        let removed = fs::remove_file(&path).and_then(|()| self.synchronise());
        removed.map_err(|error| Error::Journal { path, error })
    }

    /// Returns the text of a note beside the entries; `None` if there is none of this name.
    pub(crate) fn note(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(name)).ok()
    }

    /// Writes a note.
    pub(crate) fn set_note(&self, name: &str, text: &str) -> Result<(), Error> {
        self.replace(name, text.as_bytes())
    }

    /// Removes a note.
    pub(crate) fn remove_note(&self, name: &str) {
        // There may be none.
        let _ = fs::remove_file(self.directory.join(name));
    }

    fn ids(&self) -> Result<Vec<u32>, Error> {
        let failed = |error| Error::Unread { path: self.directory.clone(), error };
        let entries = fs::read_dir(&self.directory).map_err(failed)?.flatten();
        let id = |entry: fs::DirEntry| {
            entry.file_name().to_str()?.strip_suffix(".json")?.parse::<u32>().ok()
        };
        Ok(entries.filter_map(id).collect())
    }

    fn path(&self, id: u32) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    fn replace(&self, name: &str, text: &[u8]) -> Result<(), Error> {
        let draft = self.directory.join(format!(".{name}{DRAFT}"));
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(&draft, self.directory.join(name))?;
            self.synchronise()
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&draft);
            Error::Journal { path: self.directory.join(name), error }
        })
    }

    /// Synchronises the directory, which holds the files' names.
    fn synchronise(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_in_order_and_numbers_are_not_given_twice() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(&directory.path().join("deep/er")).unwrap();
        for expected in [1, 2] {
            let id = journal.next_id(&[]).unwrap();
            assert_eq!(id, expected);
            journal.write(&Entry::new(id, "a test".to_owned())).unwrap();
        }
        assert!(!journal.entry(1).unwrap().is_of_another_boot());
        journal.remove(2).unwrap();
        assert_eq!(journal.next_id(&[]).unwrap(), 3);
        assert_eq!(journal.next_id(&[9]).unwrap(), 10);
        assert!(matches!(journal.entry(2), Err(Error::NoEntry(2))));
    }

    #[test]
    fn an_entry_cut_in_half_is_named_and_hides_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        for id in [1, 2] {
            journal.write(&Entry::new(id, "a test".to_owned())).unwrap();
        }
        let whole = fs::read(directory.path().join("1.json")).unwrap();
        fs::write(directory.path().join("1.json"), &whole[..whole.len() / 2]).unwrap();
        let entries = journal.entries().unwrap();
        assert!(matches!(&entries[0], (1, Err(Error::Damaged { .. }))), "{entries:?}");
        assert!(matches!(&entries[1], (2, Ok(_))), "{entries:?}");
    }

    #[test]
    fn what_a_write_that_was_killed_has_left_is_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in [".19.json.new", ".last.new", ".somebody", "1.new"] {
            fs::write(at(name), "half").unwrap();
        }
        Journal::look(directory.path()).unwrap().unwrap();
        assert!(at(".19.json.new").exists(), "who looks removes nothing");
        Journal::open(directory.path()).unwrap();
        assert!(!at(".19.json.new").exists() && !at(".last.new").exists());
        assert!(at(".somebody").exists() && at("1.new").exists());
    }

    #[test]
    fn where_nothing_was_changed_there_is_no_journal() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Journal::look(&directory.path().join("none")).unwrap().is_none());
        assert!(!directory.path().join("none").exists());
    }

    #[test]
    fn who_only_looks_is_not_told_to_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let said = Journal::look(&path).unwrap().unwrap().entries().unwrap_err().to_string();
        assert!(said.contains("cannot be read") && !said.contains("writable"), "{said}");
    }
}

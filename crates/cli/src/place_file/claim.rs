//! A claimed name, and the file that says where we are.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::{Gid, Group, fchown};

use super::{Name, Service, Told};
use crate::failure::Failure;

/// A name that is ours for the lifetime of this value, and its file.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    file: Flock<File>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Before the lock is released, while it is still ours. Should that fail, the file is one that was left behind.
        let _ = fs::remove_file(&self.path);
    }
}

impl Claim {
    /// Claims a name. Its file then exists, still empty, readable by root and the group.
    pub(crate) fn take(
        service: Service,
        name: &Name,
        group: Option<&str>,
    ) -> Result<Self, Failure> {
        Self::take_in(service.directory(), service, name, group.map(find_group).transpose()?)
    }

    fn take_in(
        directory: &Path,
        service: Service,
        name: &Name,
        group: Option<Gid>,
    ) -> Result<Self, Failure> {
        let path = directory.join(name.as_str());
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Failure::no_permission(format!(
                    "{} cannot be written by this user: {}",
                    path.display(),
                    service.command(name)
                ))
            }
            _ => Failure::left(format!("{} cannot be written: {error}", path.display())),
        };
        make_directory(directory, group.is_some()).map_err(failed)?;
        let file = lock(&path).map_err(failed)?.ok_or_else(|| service.is_taken(name))?;
        let claim = Self { path: path.clone(), file };
        claim.protect(group).map_err(failed)?;
        Ok(claim)
    }

    /// Removes what another process has left in the file, and makes what follows unreadable for others.
    fn protect(&self, group: Option<Gid>) -> io::Result<()> {
        self.file.set_len(0)?;
        // In this order: no process may read it by a mode that was meant for another group.
        self.file.set_permissions(Permissions::from_mode(0o600))?;
        if let Some(group) = group {
            fchown(&*self.file, None, Some(group))?;
            self.file.set_permissions(Permissions::from_mode(0o640))?;
        }
        Ok(())
    }

    /// Publishes what programs need to find the service.
    pub(crate) fn publish(&mut self, told: &Told) -> Result<(), Failure> {
        // In one write, so that no reader sees half of it.
        self.file.write_all(told.write().as_bytes()).map_err(|error| {
            Failure::left(format!("{} cannot be written: {error}", self.path.display()))
        })
    }
}

fn find_group(name: &str) -> Result<Gid, Failure> {
    let found = Group::from_name(name).ok().flatten();
    let by_number = || name.parse().ok().map(Gid::from_raw);
    found.map(|group| group.gid).or_else(by_number).ok_or_else(|| {
        Failure::unusable(format!("there is no group {name}: getent group lists them"))
    })
}

/// Creates the directory, which every user may search. Its parent may have been created for root alone, and stays
/// so unless other users have to pass through it.
fn make_directory(directory: &Path, for_others: bool) -> io::Result<()> {
    let made = DirBuilder::new().mode(0o755).recursive(true).create(directory);
    let found = fs::symlink_metadata(directory).map_err(|error| made.err().unwrap_or(error))?;
    let own = nix::unistd::geteuid();
    if !own.is_root() && found.uid() != own.as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    if !found.is_dir() || found.uid() != own.as_raw() {
        return Err(io::Error::other(format!("{} belongs to another user", directory.display())));
    }
    // Whatever the umask is.
    fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    if let Some(above) = directory.parent().filter(|_| for_others) {
        let mode = fs::metadata(above)?.permissions().mode();
        fs::set_permissions(above, Permissions::from_mode(mode | 0o011))?;
    }
    Ok(())
}

/// Opens a file and locks it. Returns `None` if another process has locked it.
fn lock(path: &Path) -> io::Result<Option<Flock<File>>> {
    loop {
        let mut options = File::options();
        // A symbolic link put there by another user is not followed.
        options.read(true).write(true).create(true).mode(0o600);
        let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)?;
        let locked = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => locked,
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => return Err(error.into()),
        };
        // The previous owner may have removed it in between: then no program would find ours.
        let ours = locked.metadata()?.ino();
        if fs::symlink_metadata(path).is_ok_and(|found| found.ino() == ours) {
            return Ok(Some(locked));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::place_file::find_in;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn take(directory: &Path, name: &Name, group: Option<Gid>) -> Result<Claim, Failure> {
        Claim::take_in(directory, Service::Instances, name, group)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// Looks it up without waiting.
    fn find(directory: &Path, name: &Name) -> Result<Told, Failure> {
        find_in(directory, Service::Instances, name, Duration::ZERO)
    }

    #[test]
    fn a_name_is_one_s_alone_until_it_ends_and_what_is_left_behind_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("uncork/stack");
        let (web, told) =
            (name("web"), Told { place: "@a:b".to_owned(), instances: 1, ..Told::default() });
        let absent = find(&directory, &web).unwrap_err();
        assert_eq!(absent.code(), Failure::OWN);
        assert_eq!(
            absent.to_string(),
            "no instances web of the stack run: sudo uncork stack start --name web starts them"
        );
        let mut claim = take(&directory, &web, None).unwrap();
        let path = directory.join("web");
        assert_eq!((mode(&directory), mode(&path)), (0o755, 0o600));
        // It is not ready yet, and will not be soon.
        assert!(find(&directory, &web).unwrap_err().to_string().contains("are still starting"));
        claim.publish(&told).unwrap();
        assert_eq!(find(&directory, &web).unwrap(), told);
        let again = take(&directory, &web, None).unwrap_err();
        assert_eq!(again.code(), Failure::USAGE);
        assert!(again.to_string().starts_with("instances web of the stack run already"));
        assert_eq!(find(&directory, &web).unwrap(), told, "nothing has happened to it");
        let _other = take(&directory, &name("other"), None).unwrap();
        drop(claim);
        assert!(!path.exists());
        // As left by a process that was killed, readable by its readers of that time.
        fs::write(&path, "@old:place\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let _claim = take(&directory, &web, None).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("", 0o600));
    }

    #[test]
    fn who_comes_while_it_starts_waits_for_it() {
        let root = tempfile::tempdir().unwrap();
        let (directory, web) = (root.path().join("uncork/stack"), name("web"));
        let mut claim = take(&directory, &web, None).unwrap();
        let told = Told { place: "@a:b".to_owned(), ..Told::default() };
        let patience = Duration::from_secs(60);
        thread::scope(|scope| {
            let found = scope.spawn(|| find_in(&directory, Service::Guardian, &web, patience));
            thread::sleep(Duration::from_millis(50));
            assert!(!found.is_finished());
            claim.publish(&told).unwrap();
            assert_eq!(found.join().unwrap().unwrap(), told);
        });
    }

    #[test]
    fn a_group_may_read_it_and_come_there() {
        let root = tempfile::tempdir().unwrap();
        let above = root.path().join("uncork");
        DirBuilder::new().mode(0o700).create(&above).unwrap();
        let directory = above.join("stack");
        let alone = take(&directory, &name("alone"), None).unwrap();
        assert_eq!(mode(&above), 0o700);
        let own = nix::unistd::getegid();
        let _claim = take(&directory, &name("shared"), Some(own)).unwrap();
        assert_eq!((mode(&above), mode(&directory.join("shared"))), (0o711, 0o640));
        drop(alone);
        assert_eq!(find_group("root").unwrap(), Gid::from_raw(0));
        assert_eq!(find_group("4711").unwrap(), Gid::from_raw(4711));
        assert!(find_group("no-such-group").unwrap_err().to_string().contains("getent group"));
    }
}

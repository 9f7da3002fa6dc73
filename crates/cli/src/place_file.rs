//! Where programs find the instances that `uncork stack start` has started: a file of its name, with the place of the
//! guardian, which is a secret.
//!
//! Its first line is the place. Then `instances N`, and `cpu I N` for each instance that has a processor of its own. Who has
//! started them keeps it locked, so that one that was left behind is told from one that is in use.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::{Gid, Group, fchown};

use crate::failure::Failure;

const DIRECTORY: &str = "/run/uncork/stack";
/// The name of instances where none is given.
const DEFAULT_NAME: &str = "default";
/// Those of files may be longer, but who would type them?
const NAME_BYTES: usize = 64;

/// The name of instances; it is that of a file, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"._-".contains(&octet);
        let is_name = (1..=NAME_BYTES).contains(&text.len())
            && !text.starts_with(['.', '-'])
            && text.bytes().all(is_plain);
        is_name.then(|| Self(text.to_owned())).ok_or_else(|| {
            format!(
                "{text:?} is no name of instances: letters, digits, dots, hyphens and underscores"
            )
        })
    }
}

impl Default for Name {
    fn default() -> Self {
        Self(DEFAULT_NAME.to_owned())
    }
}

impl Name {
    /// What starts them.
    fn command(&self) -> String {
        match self.0.as_str() {
            DEFAULT_NAME => "sudo uncork stack start".to_owned(),
            name => format!("sudo uncork stack start --name {name}"),
        }
    }

    /// The option that names them, if they have to be named.
    pub(crate) fn option(&self) -> String {
        match self.0.as_str() {
            DEFAULT_NAME => String::new(),
            name => format!(" --instance {name}"),
        }
    }

    fn is_gone(&self) -> Failure {
        Failure::own(format!(
            "the instances {} of the stack have ended, or are of another network namespace: {}",
            self.0,
            self.command()
        ))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Value of the variable.
    pub(crate) place: String,
    /// How many instances there are.
    pub(crate) instances: u32,
    /// The processors of those that have one of their own.
    pub(crate) cpus: BTreeMap<u32, usize>,
}

impl Told {
    fn write(&self) -> String {
        let mut text = format!("{}\ninstances {}\n", self.place, self.instances);
        for (instance, cpu) in &self.cpus {
            let _ = writeln!(text, "cpu {instance} {cpu}");
        }
        text
    }

    /// None if nothing is said yet. Lines of a later version are passed over.
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let place = lines.next().filter(|line| !line.is_empty())?.to_owned();
        let mut told = Self { place, ..Self::default() };
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["instances", count] => told.instances = count.parse().ok()?,
                ["cpu", instance, cpu] => {
                    told.cpus.insert(instance.parse().ok()?, cpu.parse().ok()?);
                }
                _ => {}
            }
        }
        Some(told)
    }
}

/// What the instances of a name say of themselves.
pub(crate) fn find(name: &Name) -> Result<Told, Failure> {
    find_in(Path::new(DIRECTORY), name)
}

fn find_in(directory: &Path, name: &Name) -> Result<Told, Failure> {
    let path = directory.join(&name.0);
    let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::own(format!(
            "no instances {name} of the stack run: {} starts them",
            name.command()
        )),
        ErrorKind::PermissionDenied => Failure::own(format!(
            "this user may not attach to the instances {name} of the stack: {} --group GROUP lets those of a group",
            name.command()
        )),
        _ => Failure::own(format!("{} cannot be read: {error}", path.display())),
    })?;
    Told::read(&text).ok_or_else(|| name.is_gone())
}

/// What all say that this user may read.
pub(crate) fn all() -> Vec<Told> {
    let files = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    files.filter_map(|file| Told::read(&fs::read_to_string(file.path()).ok()?)).collect()
}

/// What it says of instances that nobody answers for any more.
pub(crate) fn gone(name: &Name) -> Failure {
    name.is_gone()
}

/// A name that is ours as long as this lives, and its file.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    file: Flock<File>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Before the lock is let go of: it is still ours. Should it fail, it is one that was left behind.
        let _ = fs::remove_file(&self.path);
    }
}

impl Claim {
    /// Takes a name. Its file is there then, with nothing in it yet, for root and those of the group.
    pub(crate) fn take(name: &Name, group: Option<&str>) -> Result<Self, Failure> {
        Self::take_in(Path::new(DIRECTORY), name, group.map(find_group).transpose()?)
    }

    fn take_in(directory: &Path, name: &Name, group: Option<Gid>) -> Result<Self, Failure> {
        let path = directory.join(&name.0);
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Failure::no_permission(
                format!("{} cannot be written by this user: {}", path.display(), name.command()),
            ),
            _ => Failure::left(format!("{} cannot be written: {error}", path.display())),
        };
        make_directory(directory, group.is_some()).map_err(failed)?;
        let file = lock(&path).map_err(failed)?.ok_or_else(|| {
            Failure::unusable(format!(
                "instances {name} of the stack run already: end them, or give these another --name"
            ))
        })?;
        let claim = Self { path: path.clone(), file };
        claim.protect(group).map_err(failed)?;
        Ok(claim)
    }

    /// What another has left there is taken out, and nobody else may read what comes.
    fn protect(&self, group: Option<Gid>) -> io::Result<()> {
        self.file.set_len(0)?;
        // In this order: nobody may read it by a mode that was meant for another group.
        self.file.set_permissions(Permissions::from_mode(0o600))?;
        if let Some(group) = group {
            fchown(&*self.file, None, Some(group))?;
            self.file.set_permissions(Permissions::from_mode(0o640))?;
        }
        Ok(())
    }

    /// From now on programs find what they need there.
    pub(crate) fn publish(&mut self, told: &Told) -> Result<(), Failure> {
        // At once, or somebody reads a half.
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

/// The directory, which everybody may search. The one above it may have been made for root alone, and then stays so
/// unless others are to come by.
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
    // Whatever the mask of modes is.
    fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    if let Some(above) = directory.parent().filter(|_| for_others) {
        let mode = fs::metadata(above)?.permissions().mode();
        fs::set_permissions(above, Permissions::from_mode(mode | 0o011))?;
    }
    Ok(())
}

/// Opens a file and locks it. None if somebody else has.
fn lock(path: &Path) -> io::Result<Option<Flock<File>>> {
    loop {
        let mut options = File::options();
        // A link that somebody has put there is not followed.
        options.read(true).write(true).create(true).mode(0o600);
        let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)?;
        let locked = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => locked,
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => return Err(error.into()),
        };
        // Whoever had it may have removed it in between: then nobody finds ours.
        let ours = locked.metadata()?.ino();
        if fs::symlink_metadata(path).is_ok_and(|found| found.ino() == ours) {
            return Ok(Some(locked));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_written_is_read_and_what_comes_later_is_passed_over() {
        let told =
            Told { place: "@name:token".to_owned(), instances: 2, cpus: [(0, 2), (1, 4)].into() };
        assert_eq!(Told::read(&told.write()), Some(told.clone()));
        assert_eq!(Told::read(&(told.write() + "colour blue\n")), Some(told));
        for nothing in ["", "\n", "@name:token\ninstances x\n", "@name:token\ncpu 1 x\n"] {
            assert_eq!(Told::read(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_name_is_one_s_alone_until_it_ends_and_what_is_left_behind_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("uncork/stack");
        let (web, told) =
            (name("web"), Told { place: "@a:b".to_owned(), instances: 1, ..Told::default() });
        let absent = find_in(&directory, &web).unwrap_err();
        assert_eq!(absent.code(), Failure::OWN);
        assert_eq!(
            absent.to_string(),
            "no instances web of the stack run: sudo uncork stack start --name web starts them"
        );
        let mut claim = Claim::take_in(&directory, &web, None).unwrap();
        let path = directory.join("web");
        assert_eq!((mode(&directory), mode(&path)), (0o755, 0o600));
        // Not ready yet.
        assert!(find_in(&directory, &web).unwrap_err().to_string().contains("have ended"));
        claim.publish(&told).unwrap();
        assert_eq!(find_in(&directory, &web).unwrap(), told);
        let again = Claim::take_in(&directory, &web, None).unwrap_err();
        assert_eq!(again.code(), Failure::USAGE);
        assert!(again.to_string().starts_with("instances web of the stack run already"));
        assert_eq!(find_in(&directory, &web).unwrap(), told, "nothing has happened to it");
        let _other = Claim::take_in(&directory, &name("other"), None).unwrap();
        drop(claim);
        assert!(!path.exists());
        // As of somebody who was killed, readable by whoever was to read it then.
        fs::write(&path, "@old:place\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let _claim = Claim::take_in(&directory, &web, None).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("", 0o600));
    }

    #[test]
    fn a_group_may_read_it_and_come_there() {
        let root = tempfile::tempdir().unwrap();
        let above = root.path().join("uncork");
        DirBuilder::new().mode(0o700).create(&above).unwrap();
        let directory = above.join("stack");
        let alone = Claim::take_in(&directory, &name("alone"), None).unwrap();
        assert_eq!(mode(&above), 0o700);
        let own = nix::unistd::getegid();
        let _claim = Claim::take_in(&directory, &name("shared"), Some(own)).unwrap();
        assert_eq!((mode(&above), mode(&directory.join("shared"))), (0o711, 0o640));
        drop(alone);
        assert_eq!(find_group("root").unwrap(), Gid::from_raw(0));
        assert_eq!(find_group("4711").unwrap(), Gid::from_raw(4711));
        assert!(find_group("no-such-group").unwrap_err().to_string().contains("getent group"));
    }

    #[test]
    fn a_name_is_plain() {
        for good in ["default", "web-1", "a.b_c", "9"] {
            assert_eq!(name(good).to_string(), good);
        }
        for wrong in ["", ".", "..", ".a", "-a", "a/b", "a b", "a:1", "ä", &"a".repeat(65)] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
        assert_eq!(name("default").option(), "");
        assert_eq!(name("web").option(), " --instance web");
    }
}

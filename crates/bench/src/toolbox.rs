//! Lookup of our own and third-party programs.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::outcome::Skip;

/// The variable that overrides where our own programs are looked for.
pub(crate) const BIN_DIR: &str = "UNCORK_BIN_DIR";

/// Third-party programs and the Debian packages that contain them.
const PACKAGES: [(&str, &str); 18] = [
    ("cc", "gcc libc6-dev"),
    ("ethtool", "ethtool"),
    ("go", "golang-go"),
    ("initdb", "postgresql"),
    ("ip", "iproute2"),
    ("memcached", "memcached"),
    ("nginx", "nginx"),
    ("pgbench", "postgresql"),
    ("postgres", "postgresql"),
    ("python3", "python3"),
    ("redis-benchmark", "redis-tools"),
    ("redis-server", "redis-server"),
    ("stdbuf", "coreutils"),
    ("tc", "iproute2"),
    ("tcptrace", "tcptrace"),
    ("true", "coreutils"),
    ("tshark", "tshark"),
    ("wrk", "wrk"),
];

/// Our programs: `uncork`, its library and the two experiment programs.
#[derive(Clone, Debug)]
pub(crate) struct Toolbox {
    /// This program, to start its own helpers.
    pub(crate) bench: PathBuf,
    dir: PathBuf,
}

impl Toolbox {
    /// Finds them where [`BIN_DIR`] says, otherwise in the directory of this program.
    pub(crate) fn find() -> Result<Self> {
        let bench = env::current_exe().context("finding this program's own path")?;
        let dir = match env::var_os(BIN_DIR) {
            Some(dir) => PathBuf::from(dir),
            None => bench.parent().map(Path::to_owned).unwrap_or_default(),
        };
        let dir = dir.canonicalize().with_context(|| format!("looking into {}", dir.display()))?;
        Ok(Self { bench, dir })
    }

    /// Returns the path of `uncork`.
    pub(crate) fn uncork(&self) -> Result<PathBuf> {
        self.ours("uncork")
    }

    /// Returns the path of `libuncork.so`.
    pub(crate) fn preload_library(&self) -> Result<PathBuf> {
        self.ours("libuncork.so")
    }

    /// Returns the path of `tcp_nodelay_client`.
    pub(crate) fn nodelay_client(&self) -> Result<PathBuf> {
        self.ours("tcp_nodelay_client")
    }

    /// Returns the path of `tcp_nodelay_server`.
    pub(crate) fn nodelay_server(&self) -> Result<PathBuf> {
        self.ours("tcp_nodelay_server")
    }

    fn ours(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        if !path.exists() {
            let dir = self.dir.display();
            bail!("{name} is not in {dir}: build it with `make`, or set {BIN_DIR} to where it is");
        }
        Ok(path)
    }
}

/// Finds a third-party program; a missing one is a [`Skip`] that names its package.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    match search(name) {
        Some(path) => Ok(path),
        None => {
            let package = PACKAGES.iter().find(|(program, _)| *program == name);
            let package = package.map_or(name, |(_, package)| package);
            let why = format!("{name} is not installed: apt-get install {package}");
            Err(Skip::new(why).into())
        }
    }
}

fn search(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(usual)
        .chain(postgres_dirs())
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// Returns PostgreSQL's directories, which Debian keeps out of PATH; the newest version first.
fn postgres_dirs() -> Vec<PathBuf> {
    let Ok(entries) = Path::new("/usr/lib/postgresql").read_dir() else { return Vec::new() };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, dir)| dir).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_and_a_missing_one_names_its_package() {
        assert!(program("true").unwrap().is_absolute());
        let error = program("no-such-program-here").unwrap_err();
        assert!(error.is::<Skip>());
        assert!(error.to_string().contains("apt-get install no-such-program-here"));
    }

    #[test]
    fn what_is_not_built_says_what_to_do() {
        let tools = Toolbox { bench: PathBuf::new(), dir: PathBuf::from("/nonexistent") };
        let error = tools.preload_library().unwrap_err().to_string();
        assert!(error.contains("libuncork.so is not in /nonexistent"), "{error}");
        assert!(error.contains(BIN_DIR));
    }
}

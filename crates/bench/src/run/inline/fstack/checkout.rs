//! The parts of F-Stack that are needed, in a checkout that the user has built.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A built F-Stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkout {
    /// The program with the stack.
    pub(super) instance: PathBuf,
    /// The library that redirects an unmodified program's calls to it.
    pub(super) adapter: PathBuf,
    /// Its own configuration, for the settings that are not ours.
    pub(super) configuration: PathBuf,
}

impl Checkout {
    /// Returns the checkout in this directory.
    pub(crate) fn at(dir: &Path) -> Result<Self> {
        let file = |name: &str| {
            let path = dir.join(name);
            if !path.is_file() {
                bail!(
                    "there is no built F-Stack in {}: {name} is missing (docs/F-STACK.md says how to build it)",
                    dir.display()
                );
            }
            Ok(path)
        };
        Ok(Self {
            configuration: file("config.ini")?,
            instance: file("adapter/syscall/fstack")?,
            adapter: file("adapter/syscall/libff_syscall.so")?,
        })
    }

    /// Reads its own configuration.
    pub(super) fn configuration(&self) -> Result<String> {
        let path = &self.configuration;
        fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_all_there_is_found() {
        let dir = std::env::temp_dir().join(format!("bench-fstack-{}", std::process::id()));
        fs::create_dir_all(dir.join("adapter/syscall")).unwrap();
        let mut said = Vec::new();
        for name in ["config.ini", "adapter/syscall/fstack", "adapter/syscall/libff_syscall.so"] {
            said.push((name, Checkout::at(&dir).unwrap_err().to_string()));
            fs::write(dir.join(name), "").unwrap();
        }
        let found = Checkout::at(&dir);
        fs::remove_dir_all(&dir).unwrap();
        for (name, error) in said {
            assert!(error.contains(name) && error.contains("F-STACK.md"), "{error}");
        }
        assert!(found.unwrap().adapter.ends_with("adapter/syscall/libff_syscall.so"));
    }
}

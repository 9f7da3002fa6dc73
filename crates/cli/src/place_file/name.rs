//! Names of services.

use std::fmt;
use std::str::FromStr;

/// The name where none is given.
const DEFAULT: &str = "default";
/// File names may be longer, but such a name is not typed.
const NAME_BYTES: usize = 64;

/// The name of instances or of a guardian, which is also a file name.
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
            format!("{text:?} is no name: letters, digits, dots, hyphens and underscores")
        })
    }
}

impl Default for Name {
    fn default() -> Self {
        Self(DEFAULT.to_owned())
    }
}

impl Name {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn is_default(&self) -> bool {
        self.0 == DEFAULT
    }

    /// Returns the option with the name, if it is needed.
    pub(crate) fn option(&self, option: &str) -> String {
        if self.is_default() { String::new() } else { format!(" {option} {self}") }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        for good in ["default", "web-1", "a.b_c", "9"] {
            assert_eq!(name(good).to_string(), good);
        }
        for wrong in ["", ".", "..", ".a", "-a", "a/b", "a b", "a:1", "ä", &"a".repeat(65)] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
        assert_eq!(name("default").option("--instance"), "");
        assert_eq!(name("web").option("--instance"), " --instance web");
    }
}

//! Where a guardian is found, and the token by which it knows whom it serves.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Environment variable that names the place.
pub const VARIABLE: &str = "UNCORK_STACK";
/// Environment variable with the number of an instance, where programs attach to one.
pub const INSTANCE_VARIABLE: &str = "UNCORK_STACK_INSTANCE";
/// Environment variable that is `1` where each thread of a program has a stack of its own.
pub const THREADS_VARIABLE: &str = "UNCORK_STACK_THREADS";

/// Environment variable that is `1` where even what the kernel would serve faster is to stay on the stack.
pub const STAY_VARIABLE: &str = "UNCORK_STACK_STAY";

/// Octets of a token: 128 bits.
const TOKEN_BYTES: usize = 16;

/// Name of an abstract Unix socket, and the token that the guardian expects: `@NAME:TOKEN`. Any process that knows it can do what
/// the program can, so it is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    name: String,
    token: Token,
}

/// A secret that the guardian expects. Any process that knows it is served, so it is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Makes a token from random octets.
    #[must_use]
    pub fn new(octets: [u8; TOKEN_BYTES]) -> Self {
        Self(hex(&octets))
    }

    /// Returns the token as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether this is the token. For texts of its length that takes the same time wherever they differ.
    #[must_use]
    pub fn is(&self, said: &str) -> bool {
        let differences = said.bytes().zip(self.0.bytes()).map(|(ours, theirs)| ours ^ theirs);
        said.len() == self.0.len() && differences.fold(0, |all, one| all | one) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

impl Place {
    /// Makes a place from random octets for its name and its token.
    #[must_use]
    pub fn new(name: [u8; 8], token: [u8; TOKEN_BYTES]) -> Self {
        Self { name: format!("uncork-{}", hex(&name)), token: Token::new(token) }
    }

    /// Returns the name of the socket.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the token that the guardian expects.
    #[must_use]
    pub fn token(&self) -> &str {
        self.token.as_str()
    }

    /// Tells whether this is the token.
    #[must_use]
    pub fn is_token(&self, said: &str) -> bool {
        self.token.is(said)
    }

    /// Returns the value of the environment variable.
    #[must_use]
    pub fn to_variable(&self) -> String {
        format!("@{}:{}", self.name, self.token())
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, token) =
            text.strip_prefix('@').and_then(|rest| rest.split_once(':')).ok_or(Error::Place)?;
        let is_hex = |octet: u8| matches!(octet, b'0'..=b'9' | b'a'..=b'f');
        if name.is_empty() || token.len() != 2 * TOKEN_BYTES || !token.bytes().all(is_hex) {
            return Err(Error::Place);
        }
        Ok(Self { name: name.to_owned(), token: Token(token.to_owned()) })
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_keeps_its_secret() {
        let place = Place::new([1; 8], [0xab; 16]);
        let again: Place = place.to_variable().parse().unwrap();
        assert_eq!(again, place);
        assert!(again.is_token(&"ab".repeat(16)) && !again.is_token(&"ac".repeat(16)));
        assert!(!again.is_token("") && !again.is_token(&"ab".repeat(17)));
        assert!(!format!("{place:?}").contains("abab"), "{place:?}");
    }

    #[test]
    fn what_is_no_place_is_refused() {
        let token = "0".repeat(32);
        for text in ["", "@", "@name", "@name:12", "name:", "/run/x", &format!("@:{token}")] {
            assert!(matches!(text.parse::<Place>(), Err(Error::Place)), "{text}");
        }
    }
}

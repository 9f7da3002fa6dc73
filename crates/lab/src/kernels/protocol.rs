//! The messages of a guest on its serial console, among the lines of its kernel.

use std::io::{self, Write};

use serde_json::Value;

/// The prefix of each message.
const MARK: &str = "uncork-guest: ";

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// The kernel is up.
    Begun,
    /// The result.
    Done(Value),
    /// There will be no result.
    Failed(String),
}

impl Message {
    /// Returns the message in a line, which may follow other text.
    pub(super) fn find(line: &str) -> Option<Self> {
        let (_, text) = line.split_once(MARK)?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "begun" => Some(Self::Begun),
            "failed" => Some(Self::Failed(rest.to_owned())),
            "done" => Some(serde_json::from_str(rest).map_or_else(
                |error| Self::Failed(format!("its result arrived broken: {error}")),
                Self::Done,
            )),
            _ => None,
        }
    }

    /// Writes it as a line of its own.
    pub(super) fn write(&self, mut out: impl Write) -> io::Result<()> {
        let text = match self {
            Self::Begun => "begun".to_owned(),
            Self::Done(document) => format!("done {document}"),
            Self::Failed(sentence) => format!("failed {}", sentence.replace('\n', ", ")),
        };
        // The kernel may be in the middle of a line.
        out.write_all(format!("\n{MARK}{text}\n").as_bytes())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_found_among_what_a_kernel_says() {
        let messages = [
            Message::Begun,
            Message::Done(json!({ "runs": [1, 2.5], "version": "#1 SMP" })),
            Message::Failed("no way".to_owned()),
        ];
        for message in messages {
            let mut text = b"[    0.1] Run /uncork as init".to_vec();
            message.write(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap().replace('\n', "\r\n");
            let found: Vec<_> = text.lines().filter_map(Message::find).collect();
            assert_eq!(found, [message]);
        }
        assert_eq!(Message::find("[    1.2] uncork: begun"), None);
        let broken = Message::find("\x1b[0muncork-guest: done {\"runs\": [1,");
        assert!(matches!(broken, Some(Message::Failed(why)) if why.contains("broken")));
    }
}

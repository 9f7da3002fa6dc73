//! Parsing of a script's lines.

use std::time::Duration;

use super::words::{error, letter, number, on_off, rate, time};
use super::{Badly, Call, Choice, Field, Line, Script, Segment, Setup, Side, Step, Wanted};

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// [`Badly`] says which line is not understood.
    pub fn parse(text: &str) -> Result<Self, Badly> {
        let mut reader = Reader::default();
        for (index, line) in text.lines().enumerate() {
            reader.line(index + 1, line).map_err(|message| Badly { line: index + 1, message })?;
        }
        let last = text.lines().count();
        reader.finish().map_err(|message| Badly { line: last, message })
    }
}

#[derive(Default)]
struct Reader {
    title: Option<String>,
    only: Option<(Side, String)>,
    setup: Setup,
    lines: Vec<Line>,
    /// Count of repetitions, and the first of the repeated `lines`.
    repeating: Option<(usize, usize)>,
}

impl Reader {
    fn line(&mut self, number: usize, text: &str) -> Result<(), String> {
        // Segments contain no `#`, so text after one is a comment.
        let (text, comment) = text.split_once('#').unwrap_or((text, ""));
        let (text, comment) = (text.trim(), comment.trim());
        if self.title.is_none() {
            if !text.is_empty() || comment.is_empty() {
                return Err("a script begins with `# what it shows`".to_owned());
            }
            self.title = Some(comment.to_owned());
        }
        if text.is_empty() {
            return Ok(());
        }
        if self.directive(text, comment)? {
            return Ok(());
        }
        let (side, text) = match text.split_once(':') {
            Some(("ours", rest)) => (Some(Side::Ours), rest.trim()),
            Some(("kernel", rest)) => (Some(Side::Kernel), rest.trim()),
            _ => (None, text),
        };
        if side.is_some() && comment.is_empty() {
            return Err("what differs between the two needs a `# reason`".to_owned());
        }
        let (after, text) = match text.strip_prefix('+') {
            Some(rest) => {
                let (word, rest) = rest.split_once(' ').ok_or("what happens then?")?;
                (time(word)?, rest.trim())
            }
            None => (Duration::ZERO, text),
        };
        self.lines.push(Line { number, side, after, step: step(text)? });
        Ok(())
    }

    /// Handles a line that is no event; returns whether it was one.
    fn directive(&mut self, text: &str, comment: &str) -> Result<bool, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["only", who] => {
                if comment.is_empty() {
                    return Err("a script for one alone needs a `# reason`".to_owned());
                }
                let side = match who {
                    "ours" => Side::Ours,
                    "kernel" => Side::Kernel,
                    _ => return Err(format!("`{who}` is neither ours nor kernel")),
                };
                self.only = Some((side, comment.to_owned()));
            }
            ["set", name, value] => {
                self.setup.sysctls.push((name.to_owned(), value.to_owned()));
            }
            ["link", speed, bucket] => self.setup.link = Some((rate(speed)?, number(bucket)?)),
            ["old-quick-acks"] => self.setup.old_quick_acks = true,
            ["repeat", times] if self.repeating.is_none() => {
                self.repeating = Some((number(times)?, self.lines.len()));
                return Ok(true);
            }
            ["repeat", _] => return Err("a repetition has none in it".to_owned()),
            ["end"] => {
                let (times, from) = self.repeating.take().ok_or("nothing is repeated here")?;
                let once: Vec<Line> = self.lines.drain(from..).collect();
                for _ in 0..times {
                    self.lines.extend_from_slice(&once);
                }
                return Ok(true);
            }
            _ => return Ok(false),
        }
        if !self.lines.is_empty() {
            return Err(format!("`{text}` stands before everything that happens"));
        }
        Ok(true)
    }

    fn finish(self) -> Result<Script, String> {
        if self.repeating.is_some() {
            return Err("a `repeat` has no `end`".to_owned());
        }
        let Self { title, only, setup, lines, .. } = self;
        if lines.is_empty() {
            return Err("nothing happens".to_owned());
        }
        Ok(Script { title: title.unwrap_or_default(), only, setup, lines })
    }
}

fn step(text: &str) -> Result<Step, String> {
    if text == "nothing" {
        return Ok(Step::Nothing);
    }
    // `< …` and `> …`, or `b< …` for another connection than the first.
    for (sign, inward) in [('<', true), ('>', false)] {
        let Some((name, rest)) = text.split_once(sign) else { continue };
        let connection = match name {
            "" => 'a',
            name if name.len() == 1 => letter(name)?,
            _ => continue,
        };
        let segment = Segment::parse(connection, rest)?;
        if !inward && segment.tos.is_some() {
            return Err("`tos` is the peer's to say".to_owned());
        }
        return Ok(if inward { Step::Inject(segment) } else { Step::Expect(segment) });
    }
    let (text, answer) = match text.split_once('=') {
        Some((text, answer)) => (text, Some(answer.trim())),
        None => (text, None),
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let call = call(&words)?;
    let wanted = match answer {
        Some(answer) if matches!(call, Call::Info(_, field) if field.is_time()) => {
            Wanted::Time(time(answer)?)
        }
        Some(answer) => match answer.parse() {
            Ok(count) => Wanted::Done(count),
            Err(_) => Wanted::Failed(error(answer)?),
        },
        None => match call {
            Call::Send { bytes, .. } => Wanted::Done(bytes),
            Call::Recv { .. } => return Err("recv says what it must give: `= 100`".to_owned()),
            Call::Error(_) => return Err("error says which: `= ECONNRESET`, `= 0`".to_owned()),
            Call::Info(..) => return Err("info says what it must tell: `= 1`".to_owned()),
            // A non-blocking socket fails so (connect(2)).
            Call::Connect(_) => Wanted::Failed(nix::errno::Errno::EINPROGRESS),
            _ => Wanted::Done(0),
        },
    };
    Ok(Step::Call(call, wanted))
}

fn call(words: &[&str]) -> Result<Call, String> {
    Ok(match *words {
        ["listen", backlog] => Call::Listen { backlog: number(backlog)? },
        ["close", "listener"] => Call::CloseListener,
        ["accept", socket] => Call::Accept(letter(socket)?),
        ["connect", socket] => Call::Connect(letter(socket)?),
        ["send", socket, bytes] => {
            Call::Send { socket: letter(socket)?, bytes: number(bytes)?, flags: 0 }
        }
        ["send", socket, bytes, flag] => {
            let flags = match flag {
                "more" => libc::MSG_MORE,
                "eor" => libc::MSG_EOR,
                _ => return Err(format!("`{flag}` is neither more nor eor")),
            };
            Call::Send { socket: letter(socket)?, bytes: number(bytes)?, flags }
        }
        ["recv", socket, bytes] => Call::Recv { socket: letter(socket)?, bytes: number(bytes)? },
        ["shutdown", socket, how] => {
            let how = match how {
                "read" => libc::SHUT_RD,
                "write" => libc::SHUT_WR,
                "both" => libc::SHUT_RDWR,
                _ => return Err(format!("`{how}` is neither read, write nor both")),
            };
            Call::Shutdown(letter(socket)?, how)
        }
        ["close", socket] => Call::Close(letter(socket)?),
        ["error", socket] => Call::Error(letter(socket)?),
        ["info", socket, name] => {
            let field = Field::named(name);
            let unknown = || format!("`{name}` is no field of TCP_INFO that is known here");
            Call::Info(letter(socket)?, field.ok_or_else(unknown)?)
        }
        ["option", socket, ref rest @ ..] => Call::Set(letter(socket)?, choice(rest)?),
        _ => return Err(format!("`{}` is nothing that can happen", words.join(" "))),
    })
}

fn choice(words: &[&str]) -> Result<Choice, String> {
    Ok(match *words {
        ["nodelay", value] => Choice::NoDelay(on_off(value)?),
        ["cork", value] => Choice::Cork(on_off(value)?),
        ["quickack", value] => Choice::QuickAck(on_off(value)?),
        ["keepalive", idle, interval, probes] => {
            Choice::KeepAlive(number(idle)?, number(interval)?, number(probes)?)
        }
        ["user-timeout", value] => Choice::UserTimeout(time(value)?),
        ["linger", seconds] => Choice::Linger(number(seconds)?),
        ["rcvbuf", bytes] => Choice::ReceiveBuffer(number(bytes)?),
        _ => return Err(format!("`{}` is no option that is known here", words.join(" "))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        Script::parse(&format!("# A title\n{line}\n")).unwrap_err().message
    }

    #[test]
    fn what_was_read_is_what_was_written() {
        let script = Script::parse(
            "# A title\nset tcp_sack 0\nlink 100kbit 1600\n\nrepeat 2\n  +1.5s b< P. 1:11(10) win 5\nend\n> . (0) ack 11 <sack 1:2>\nrecv a 5 = EAGAIN\n",
        )
        .unwrap();
        assert_eq!(script.setup.link, Some((100_000, 1600)));
        assert_eq!(script.lines.len(), 4);
        assert_eq!(script.lines[0], script.lines[1]);
        assert_eq!(script.lines[1].after, Duration::from_millis(1500));
        let Step::Inject(segment) = &script.lines[0].step else { panic!() };
        assert_eq!((segment.connection, segment.seq, segment.window), ('b', Some(1), Some(5)));
        let Step::Expect(segment) = &script.lines[2].step else { panic!() };
        assert_eq!(segment.to_string(), ". (0) ack 11 <sack 1:2>");
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_line() {
        for (line, part) in [
            ("< P. 1:12(10)", "does not end"),
            ("> X (0)", "`X` is no flag"),
            ("+40 > . (0)", "no time"),
            ("ours: > . (0)", "# reason"),
            ("only kernel", "# reason"),
            ("recv a 10", "what it must give"),
            ("recv a 10 = EWHAT", "EWHAT"),
            ("info a rcv_rtt", "what it must tell"),
            ("info a rcv_rtt = 10", "no time"),
            ("info a what = 1", "no field"),
            ("accept ab", "one small letter"),
            ("> P (0) ack 5", "`.`"),
            ("> P. (10) tos 2", "the peer's"),
            ("dance", "nothing that can happen"),
            ("repeat 3\n> . (0)", "no `end`"),
            ("> . (0)\nset tcp_sack 0", "before everything"),
            ("> . (0) <mss>", "no option"),
        ] {
            assert!(refused(line).contains(part), "{line}: {}", refused(line));
        }
        assert_eq!(Script::parse("listen 1\n").unwrap_err().line, 1);
    }
}

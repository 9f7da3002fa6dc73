//! Connections that this side alone has ended, on addresses shared with the host's kernel: most of their peers do not know it.
//! Until the kernel has their ends again, of which it is not told one by one, the stack answers for them.

use std::collections::VecDeque;
use std::time::Duration;

use uncork_packet::Instant;

use crate::demux::Tuple;

/// How long one is remembered: the driver of the stack gives its ends back within that time.
const STAYS: Duration = Duration::from_secs(10);

/// Most that are remembered, the latest.
const MOST: usize = 64;

/// The connections that are remembered, by the words of their tuples, each with its expiry time.
#[derive(Debug, Default)]
pub(crate) struct GivenUp(VecDeque<([u64; 5], Instant)>);

impl GivenUp {
    pub(crate) fn add(&mut self, tuple: &Tuple, now: Instant) {
        let name = tuple.words();
        self.0.retain(|&(other, until)| other != name && until > now);
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((name, now + STAYS));
    }

    pub(crate) fn has(&self, tuple: &Tuple, now: Instant) -> bool {
        let name = tuple.words();
        self.0.iter().any(|&(other, until)| other == name && until > now)
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::Instant;

    use super::{GivenUp, MOST, STAYS, Tuple};

    #[test]
    fn the_latest_are_remembered_and_not_for_ever() {
        let tuple = |port: u16| {
            let remote = format!("10.0.0.2:{port}");
            Tuple::new("10.0.0.1:80".parse().unwrap(), remote.parse().unwrap())
        };
        let mut given_up = GivenUp::default();
        let now = Instant::from_millis(1000);
        for port in 0..100 {
            given_up.add(&tuple(port), now);
        }
        assert!(given_up.has(&tuple(99), now) && !given_up.has(&tuple(1), now));
        assert!(!given_up.has(&tuple(99), now + STAYS));
        assert_eq!(given_up.0.len(), MOST);
        given_up.add(&tuple(1), now + STAYS);
        assert_eq!(given_up.0.len(), 1);
    }
}

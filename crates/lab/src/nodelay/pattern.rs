//! The client's behaviour.

use std::time::Duration;

use serde::Serialize;

/// The option that the client sets on its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Asks {
    /// No option: Nagle's algorithm meets the delayed ACK.
    Nothing,
    /// TCP_NODELAY.
    Nodelay,
    /// TCP_CORK around each logical packet.
    Cork,
    /// MSG_MORE on all writes but the last, and TCP_NODELAY.
    More,
}

/// How the client cuts a logical packet into writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// A write for each buffer of two bytes.
    Buffers,
    /// Two writes: three buffers, then the rest.
    HeaderPayload,
    /// A write of three buffers, then sendfile of the rest.
    HeaderSendfile,
    /// One writev of all buffers.
    Writev,
    /// One write.
    Single,
}

impl Cut {
    /// Returns whether a packet leaves in one call.
    fn is_whole(self) -> bool {
        matches!(self, Self::Writev | Self::Single)
    }
}

/// The client's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pattern {
    /// Its socket option.
    pub asks: Asks,
    /// Its writes.
    pub cut: Cut,
    /// Buffers of two bytes in a logical packet.
    pub buffers: u32,
}

impl Pattern {
    /// Returns the flags of `tcp_nodelay_client`, in their long form.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let asks: &[&str] = match self.asks {
            Asks::Nothing => &[],
            Asks::Nodelay => &["--no_delay"],
            Asks::Cork => &["--cork"],
            Asks::More => &["--no_delay", "--more"],
        };
        let cut = match self.cut {
            Cut::Buffers => None,
            Cut::HeaderPayload => Some("--header_plus_payload"),
            Cut::HeaderSendfile => Some("--sendfile"),
            Cut::Writev => Some("--writev"),
            Cut::Single => Some("--single_request"),
        };
        let flags = asks.iter().copied().chain(cut).map(str::to_owned);
        flags.chain([format!("--buffers={}", self.buffers)]).collect()
    }

    /// Returns whether Nagle's algorithm stalls it without help.
    #[must_use]
    pub fn stalls(&self) -> bool {
        self.asks == Asks::Nothing && !self.cut.is_whole()
    }

    /// Returns how long so many packets may take before something is wrong. A stall costs 40 ms, on
    /// some systems 200 ms, per packet; all else ends in a second or two, and if it stalls although
    /// it is `helped`, that is to be reported soon.
    #[must_use]
    pub fn limit(&self, packets: u64, helped: bool) -> Duration {
        let stalls = if self.stalls() && !helped { packets } else { 0 };
        Duration::from_secs(60) + Duration::from_millis(stalls * 250)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_published_client() {
        let pattern = Pattern { asks: Asks::Nodelay, cut: Cut::HeaderPayload, buffers: 100 };
        assert_eq!(pattern.flags(), ["--no_delay", "--header_plus_payload", "--buffers=100"]);
        assert!(!pattern.stalls());
    }

    #[test]
    fn only_several_writes_without_an_option_stall() {
        let stalls = |asks, cut| Pattern { asks, cut, buffers: 15 }.stalls();
        for cut in [Cut::Buffers, Cut::HeaderPayload, Cut::HeaderSendfile] {
            assert!(stalls(Asks::Nothing, cut));
            assert!(!stalls(Asks::Cork, cut));
        }
        assert!(!stalls(Asks::Nothing, Cut::Single) && !stalls(Asks::Nothing, Cut::Writev));
    }

    #[test]
    fn only_who_stalls_unhelped_may_take_its_time() {
        let pattern = Pattern { asks: Asks::Nothing, cut: Cut::Buffers, buffers: 15 };
        assert!(pattern.limit(1000, false) > pattern.limit(1000, true));
        assert_eq!(pattern.limit(1, true), pattern.limit(1_000_000, true));
    }
}

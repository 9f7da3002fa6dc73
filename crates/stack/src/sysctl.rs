//! Settings of the host (`/proc/sys/net/ipv4`), for a stack that is to behave like the kernel's TCP.

use std::time::Duration;

use crate::config::{Config, Ecn};

impl Config {
    /// Applies the host's settings for connections: retries and timeouts, bounds of memory and of unsent data, autocorking,
    /// and which options are used. `sysctl` returns the text of a setting by its name there; a setting that it does not have,
    /// or that makes no sense, is left as it was.
    ///
    /// Not tcp_limit_output_bytes, of which Linux has several megabytes: [`Config::small_queue_bytes`] is this stack's own.
    pub fn follow(&mut self, sysctl: &dyn Fn(&str) -> Option<String>) {
        let number = |name| sysctl(name)?.trim().parse::<i64>().ok();
        let octet = |name| number(name).and_then(|value| u8::try_from(value).ok());
        let set = |retries: &mut u8, name| *retries = octet(name).unwrap_or(*retries);
        set(&mut self.syn_retries, "tcp_syn_retries");
        set(&mut self.syn_ack_retries, "tcp_synack_retries");
        set(&mut self.data_retries, "tcp_retries2");
        match octet("tcp_orphan_retries") {
            // It stands for 8 (ip-sysctl.rst).
            Some(0) => self.orphan_retries = 8,
            Some(retries) => self.orphan_retries = retries,
            None => {}
        }
        if let Some(seconds) = number("tcp_fin_timeout").and_then(|value| u64::try_from(value).ok())
        {
            self.fin_wait_2 = Duration::from_secs(seconds);
        }
        if let Some(bytes) = number("tcp_notsent_lowat").and_then(|value| u32::try_from(value).ok())
        {
            self.not_sent_low_water = (bytes != u32::MAX).then_some(bytes);
        }
        let count = |name| number(name).and_then(|value| u32::try_from(value).ok());
        self.most_orphans = count("tcp_max_orphans").unwrap_or(self.most_orphans);
        self.most_time_waits = count("tcp_max_tw_buckets").unwrap_or(self.most_time_waits);
        self.memory_bytes = memory_bytes(sysctl).unwrap_or(self.memory_bytes);
        let switch = |on: &mut bool, name| *on = number(name).map_or(*on, |value| value != 0);
        switch(&mut self.restart_after_idle, "tcp_slow_start_after_idle");
        switch(&mut self.autocork, "tcp_autocorking");
        switch(&mut self.timestamps, "tcp_timestamps");
        switch(&mut self.sack, "tcp_sack");
        switch(&mut self.window_scaling, "tcp_window_scaling");
        self.ecn = match octet("tcp_ecn") {
            Some(0) => Ecn::Refused,
            // These values add AccECN, which this stack does not implement (ip-sysctl.rst).
            Some(2 | 5) => Ecn::Granted,
            Some(1 | 3 | 4) => Ecn::Asked,
            _ => self.ecn,
        };
    }
}

/// Returns the memory bounds of all connections (tcp_mem): the first of its three numbers of pages says where pressure ends,
/// which here is where it began. A page is taken as 4 KiB; where pages are larger the bounds are lower, never too high.
fn memory_bytes(sysctl: &dyn Fn(&str) -> Option<String>) -> Option<(usize, usize)> {
    let text = sysctl("tcp_mem")?;
    let mut bytes = text
        .split_whitespace()
        .skip(1)
        .map(|pages| pages.parse::<usize>().ok().map(|pages| pages.saturating_mul(4096)));
    Some((bytes.next()??, bytes.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(settings: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        config.follow(&|name| {
            let set = settings.iter().find(|(other, _)| *other == name);
            set.map(|(_, value)| (*value).to_owned())
        });
        config
    }

    #[test]
    fn a_host_as_linux_makes_it_changes_nothing() {
        let linux = [
            ("tcp_syn_retries", "6\n"),
            ("tcp_synack_retries", "5\n"),
            ("tcp_retries2", "15\n"),
            ("tcp_orphan_retries", "0\n"),
            ("tcp_fin_timeout", "60\n"),
            ("tcp_notsent_lowat", "4294967295\n"),
            ("tcp_slow_start_after_idle", "1\n"),
            ("tcp_autocorking", "1\n"),
            ("tcp_timestamps", "1\n"),
            ("tcp_sack", "1\n"),
            ("tcp_window_scaling", "1\n"),
            ("tcp_ecn", "2\n"),
        ];
        let before = format!("{:?}", Config::default());
        assert_eq!(format!("{:?}", followed(&linux)), before);
        assert_eq!(format!("{:?}", followed(&[])), before, "nothing is known");
        let odd = linux.map(|(name, _)| (name, "a lot"));
        assert_eq!(format!("{:?}", followed(&odd)), before, "nothing is understood");
    }

    #[test]
    fn what_is_set_is_followed() {
        let config = followed(&[
            ("tcp_syn_retries", "1\n"),
            ("tcp_synack_retries", "2\n"),
            ("tcp_retries2", "8\n"),
            ("tcp_orphan_retries", "3\n"),
            ("tcp_fin_timeout", "7\n"),
            ("tcp_notsent_lowat", "16384\n"),
            ("tcp_slow_start_after_idle", "0\n"),
            ("tcp_autocorking", "0\n"),
            ("tcp_timestamps", "0\n"),
            ("tcp_sack", "0\n"),
            ("tcp_window_scaling", "0\n"),
            ("tcp_ecn", "0\n"),
        ]);
        assert_eq!((config.syn_retries, config.syn_ack_retries, config.data_retries), (1, 2, 8));
        assert_eq!((config.orphan_retries, config.fin_wait_2), (3, Duration::from_secs(7)));
        assert_eq!(config.not_sent_low_water, Some(16_384));
        assert!(!config.restart_after_idle && !config.autocork);
        assert!(!config.timestamps && !config.sack && !config.window_scaling);
        assert_eq!(config.ecn, Ecn::Refused);
        for (ecn, value) in [(Ecn::Asked, ["1", "3", "4"]), (Ecn::Granted, ["2", "5", "5"])] {
            assert_eq!(value.map(|value| followed(&[("tcp_ecn", value)]).ecn), [ecn; 3]);
        }
    }

    #[test]
    fn what_is_set_back_is_as_before() {
        let mut config = followed(&[("tcp_notsent_lowat", "1"), ("tcp_orphan_retries", "1")]);
        config.follow(&|name| {
            let linux = [("tcp_notsent_lowat", u32::MAX), ("tcp_orphan_retries", 0)];
            linux.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string())
        });
        assert_eq!((config.not_sent_low_water, config.orphan_retries), (None, 8));
    }

    #[test]
    fn memory_and_what_lives_on_without_a_user_are_bounded_as_on_the_host() {
        let host = [
            ("tcp_mem", "188319\t251094\t376638\n"),
            ("tcp_max_orphans", "32768\n"),
            ("tcp_max_tw_buckets", "0\n"),
        ];
        let config = followed(&host);
        assert_eq!(config.memory_bytes, (251_094 * 4096, 376_638 * 4096));
        assert_eq!((config.most_orphans, config.most_time_waits), (32_768, 0));
        let senseless = followed(&[("tcp_mem", "1 2"), ("tcp_max_orphans", "-1")]);
        assert_eq!(senseless.memory_bytes, Config::default().memory_bytes);
        assert_eq!(senseless.most_orphans, Config::default().most_orphans);
    }
}

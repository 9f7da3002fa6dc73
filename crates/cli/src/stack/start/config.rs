//! The configuration file that replaces command-line options: lines of `key = value` in the section `[stack]`.

use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum as _;
use uncork_posix::config::{Invalid, Moderation, SmallQueue, parse_duration};

use super::cpus::Cpus;
use crate::arguments::Driver;
use crate::stack::arguments::{Service, Start, instance_count, tcp_port};

/// The only section.
const SECTION: &str = "[stack]";

/// The contents of a file. A list may be one line with commas, or a line for each element.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    service: Service,
    driver: Option<Driver>,
    instances: Option<u32>,
    cpus: Option<Cpus>,
    spin: Option<Duration>,
    moderation: Option<Moderation>,
    small_queue: Option<SmallQueue>,
}

impl FromStr for Config {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut config = Self::default();
        let mut in_section = false;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |why: String| format!("line {}: {why}", at + 1);
            match line {
                "" => {}
                comment if comment.starts_with(['#', ';']) => {}
                SECTION => in_section = true,
                other if other.starts_with('[') => {
                    return Err(wrong(format!("there is no section {other}, but {SECTION}")));
                }
                _ if !in_section => {
                    return Err(wrong(format!("it stands before the section {SECTION}")));
                }
                line => config.take(line).map_err(wrong)?,
            }
        }
        Ok(config)
    }
}

impl Config {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let no = || format!("{line:?} is not of the form KEY = VALUE");
        let (key, value) = line.split_once('=').ok_or_else(no)?;
        let (key, value) = (key.trim(), value.trim());
        let again = || format!("{key} is there twice");
        match key {
            "name" => once(&mut self.service.name, value.parse()?).ok_or_else(again),
            "dev" => {
                let before = self.service.dev.len();
                self.service.dev.extend(list(value).map(str::to_owned));
                some(self.service.dev.len() > before, "dev names no device")
            }
            "port" => {
                let before = self.service.port.len();
                for word in list(value) {
                    self.service.port.push(tcp_port(word)?);
                }
                some(self.service.port.len() > before, "port names no port")
            }
            "driver" => {
                let driver = Driver::from_str(value, false)
                    .map_err(|_| format!("{value:?} is no driver: packet or xdp"))?;
                once(&mut self.driver, driver).ok_or_else(again)
            }
            "instances" => once(&mut self.instances, instance_count(value)?).ok_or_else(again),
            "cpus" => once(&mut self.cpus, value.parse()?).ok_or_else(again),
            "spin" => {
                let spin = parse_duration(value).map_err(|error| error.to_string())?;
                once(&mut self.spin, spin).ok_or_else(again)
            }
            "moderation" => {
                let moderation = value.parse().map_err(|error: Invalid| error.to_string())?;
                once(&mut self.moderation, moderation).ok_or_else(again)
            }
            "small-queue" => {
                let bytes = value.parse().map_err(|error: Invalid| error.to_string())?;
                once(&mut self.small_queue, bytes).ok_or_else(again)
            }
            "group" => once(&mut self.service.group, value.to_owned()).ok_or_else(again),
            _ => Err(format!(
                "there is no key {key}, but name, dev, port, driver, instances, cpus, spin, moderation, small-queue \
                 and group"
            )),
        }
    }

    /// Fills in from the file what was not given on the command line.
    pub(super) fn complete(self, start: Start) -> Start {
        let (ours, its) = (start.service, self.service);
        Start {
            service: Service {
                name: ours.name.or(its.name),
                dev: if ours.dev.is_empty() { its.dev } else { ours.dev },
                port: if ours.port.is_empty() { its.port } else { ours.port },
                group: ours.group.or(its.group),
            },
            driver: start.driver.or(self.driver),
            instances: start.instances.or(self.instances),
            cpus: start.cpus.or(self.cpus),
            spin: start.spin.or(self.spin),
            moderation: start.moderation.or(self.moderation),
            small_queue: start.small_queue.or(self.small_queue),
            config: start.config,
        }
    }
}

/// Sets a value once; returns `None` if there is one already.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// Rejects an empty list: removing its last element does not mean all devices or ports.
fn some(is_any: bool, none: &str) -> Result<(), String> {
    if is_any { Ok(()) } else { Err(format!("{none}: leave the line out for all of them")) }
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_the_flags_do_not() {
        let text = "# ours\n[stack]\nname=web\n dev = eth0, eth1\ndev = eth2\nport = 80,443\n; more\n\
                    driver = xdp\ninstances = 2\ncpus = 2,4-6\nspin = 50us\nmoderation = 64us\nsmall-queue = 6000\n\
                    group = www\n";
        let config: Config = text.parse().unwrap();
        let start = config.complete(Start::default());
        let service = start.service;
        assert_eq!(service.name, "web".parse().ok());
        assert_eq!(service.dev, ["eth0", "eth1", "eth2"]);
        assert_eq!((service.port, start.driver), (vec![80, 443], Some(Driver::Xdp)));
        assert_eq!((start.instances, start.cpus), (Some(2), Some(Cpus(vec![2, 4, 5, 6]))));
        assert_eq!(start.spin, Some(Duration::from_micros(50)));
        assert_eq!(start.moderation.map(|one| one.to_string()).as_deref(), Some("64us"));
        assert_eq!(start.small_queue.and_then(SmallQueue::bytes), Some(6000));
        assert_eq!(service.group.as_deref(), Some("www"));
        // An option replaces all values of the same kind in the file.
        let config: Config = text.parse().unwrap();
        let service = Service { dev: vec!["eth7".to_owned()], ..Service::default() };
        let flags = Start { service, instances: Some(1), ..Start::default() };
        let start = config.complete(flags);
        assert_eq!((start.service.dev, start.instances), (vec!["eth7".to_owned()], Some(1)));
        assert_eq!(start.service.port, [80, 443]);
        assert_eq!("".parse::<Config>(), Ok(Config::default()));
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_line() {
        for (text, wanted) in [
            ("[stack]\n\nlcore_mask = 1", "line 3: there is no key lcore_mask, but name, dev"),
            ("dev = eth0", "line 1: it stands before the section [stack]"),
            ("[stack]\n[dpdk]", "line 2: there is no section [dpdk], but [stack]"),
            ("[stack]\ndev eth0", "line 2: \"dev eth0\" is not of the form KEY = VALUE"),
            ("[stack]\nport = 80, 0", "line 2: \"0\" is no port"),
            ("[stack]\ninstances = 0", "line 2: \"0\" is no number of instances"),
            ("[stack]\ncpus = 4-2", "line 2: \"4-2\" is no list of processors"),
            ("[stack]\nname = a/b", "line 2: \"a/b\" is no name"),
            ("[stack]\nspin = 5", "line 2: \"5\" is not a duration"),
            ("[stack]\nmoderation = 2ms", "line 2: 2ms is out of range"),
            ("[stack]\nsmall-queue = 64k", "line 2: \"64k\" is not a number of bytes"),
            ("[stack]\ndev =", "line 2: dev names no device: leave the line out for all of them"),
            ("[stack]\nport = ,", "line 2: port names no port: leave the line out for all of them"),
            ("[stack]\nname = a\nname = b", "line 3: name is there twice"),
        ] {
            let why = text.parse::<Config>().unwrap_err();
            assert!(why.starts_with(wanted), "{why}");
        }
    }
}

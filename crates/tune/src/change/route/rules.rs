//! Rules that send packets to other tables than main and local (ip-rule(8)): what they redirect
//! uses routes that are not ours to change.

use std::io;

use super::fib::{self, Fib, TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use crate::Error;
use crate::netns::Handle;
use crate::scope::Prefix;
use uncork_netlink::{Line, attributes, number};

const RTM_GETRULE: u16 = 34;
/// `struct fib_rule_hdr`.
const HEAD_BYTES: usize = 12;
// linux/fib_rules.h
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_FLOW: u16 = 11;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_PROTOCOL: u16 = 21;
const FRA_IP_PROTO: u16 = 22;
/// Attributes that say where a rule leads, or where it came from. All others select packets.
const NO_SELECTORS: [u16; 8] = [
    FRA_GOTO,
    FRA_PRIORITY,
    FRA_FLOW,
    FRA_SUPPRESS_IFGROUP,
    FRA_SUPPRESS_PREFIXLEN,
    FRA_TABLE,
    FRA_PAD,
    FRA_PROTOCOL,
];
/// The selectors that are printed with their values.
const TOLD: [u16; 7] =
    [FRA_DST, FRA_SRC, FRA_IIFNAME, FRA_OIFNAME, FRA_FWMARK, FRA_FWMASK, FRA_L3MDEV];
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_GOTO: u8 = 2;
const FR_ACT_NOP: u8 = 3;
const FIB_RULE_INVERT: u32 = 2;
const TCP: u8 = 6;

/// A rule, as the kernel reports it.
struct Rule {
    head: [u8; HEAD_BYTES],
    attributes: Vec<(u16, Vec<u8>)>,
}

/// All rules of a namespace, in order.
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    pub(super) fn of(handle: &Handle) -> Result<Self, Error> {
        let rules = handle.within(read)?;
        let what = "the routing rules cannot be read".to_owned();
        rules.map_err(|error| Error::Netlink { what, error }).map(Self)
    }

    /// Returns what the rules send to routes that we leave alone, each as a sentence.
    pub(super) fn elsewhere(&self, all: &[Fib], peers: Option<Prefix>) -> Vec<String> {
        [true, false]
            .into_iter()
            .filter(|ipv4| peers.is_none_or(|peers| peers.address.is_ipv4() == *ipv4))
            .flat_map(|ipv4| self.of_family(ipv4, all, peers))
            .collect()
    }

    fn of_family(&self, ipv4: bool, all: &[Fib], peers: Option<Prefix>) -> Vec<String> {
        let everybody = Prefix { address: fib::address(ipv4, None), bits: 0 };
        let peers = peers.unwrap_or(everybody);
        let mut sentences = Vec::new();
        let rules = self.0.iter().filter(|rule| rule.is_ipv4() == ipv4 && rule.may_meet(peers));
        for rule in rules {
            match rule.head[7] {
                FR_ACT_GOTO if self.passes_over(rule) => sentences.push(format!(
                    "{}: connections to {peers} that it leads past the tables main and local keep \
                     their delayed ACKs",
                    rule.words()
                )),
                FR_ACT_TO_TBL if rule.leads_elsewhere(all, peers) => sentences.push(format!(
                    "{}: connections to {peers} that it leads to another table keep their delayed \
                     ACKs, for only routes of the tables main and local are changed",
                    rule.words()
                )),
                FR_ACT_TO_TBL | FR_ACT_GOTO | FR_ACT_NOP => {}
                // A rule that forbids: no packet reaches the rules after it.
                _ if rule.is_for_all() => break,
                _ => {}
            }
            if rule.ends_the_search(all, peers) {
                break;
            }
        }
        sentences
    }

    /// Returns whether a jump skips a rule that leads to main or local.
    fn passes_over(&self, jump: &Rule) -> bool {
        let between = jump.priority() + 1..jump.number_of(FRA_GOTO).unwrap_or(0);
        let ours = |rule: &&Rule| {
            rule.is_ipv4() == jump.is_ipv4()
                && rule.head[7] == FR_ACT_TO_TBL
                && [TABLE_MAIN, TABLE_LOCAL].contains(&rule.table())
        };
        self.0.iter().filter(ours).any(|rule| between.contains(&rule.priority()))
    }

    /// Returns the rule that suppresses a route of this table unless it is for fewer addresses, so
    /// that a narrower route would attract what goes elsewhere now.
    pub(super) fn suppressor(&self, covering: &Fib, narrowed: Prefix) -> Option<String> {
        let suppresses = |rule: &&Rule| {
            rule.is_ipv4() == covering.is_ipv4()
                && rule.head[7] == FR_ACT_TO_TBL
                && rule.table() == covering.table()
                && rule.suppressed_bits().is_some_and(|bits| {
                    (u32::from(covering.prefix().bits)..u32::from(narrowed.bits)).contains(&bits)
                })
        };
        self.0.iter().find(suppresses).map(Rule::words)
    }
}

fn read() -> io::Result<Vec<Rule>> {
    let mut line = Line::open()?;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = vec![0; HEAD_BYTES];
        body[0] = u8::try_from(family).unwrap_or_default();
        let rules = match line.dump(RTM_GETRULE, &body) {
            // A kernel without rules, or without IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => continue,
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => continue,
            rules => rules?,
        };
        let mut rules: Vec<Rule> = rules.iter().filter_map(|rule| Rule::read(rule)).collect();
        rules.sort_by_key(Rule::priority);
        found.extend(rules);
    }
    Ok(found)
}

impl Rule {
    fn read(body: &[u8]) -> Option<Self> {
        let head = body.get(..HEAD_BYTES)?.try_into().ok()?;
        let own = attributes(body.get(HEAD_BYTES..)?);
        Some(Self { head, attributes: own.into_iter().map(|(k, v)| (k, v.to_vec())).collect() })
    }

    fn is_ipv4(&self) -> bool {
        i32::from(self.head[0]) == libc::AF_INET
    }

    fn of(&self, kind: u16) -> Option<&[u8]> {
        self.attributes.iter().find(|(other, _)| *other == kind).map(|(_, value)| value.as_slice())
    }

    fn number_of(&self, kind: u16) -> Option<u32> {
        self.of(kind).and_then(|value| number(value, 0))
    }

    fn text_of(&self, kind: u16) -> Option<String> {
        let text = String::from_utf8_lossy(self.of(kind)?);
        Some(text.trim_end_matches('\0').to_owned())
    }

    fn priority(&self) -> u32 {
        self.number_of(FRA_PRIORITY).unwrap_or(0)
    }

    fn table(&self) -> u32 {
        self.number_of(FRA_TABLE).unwrap_or(u32::from(self.head[4]))
    }

    /// Returns the longest prefix whose routes are suppressed; the kernel reports -1 for none.
    fn suppressed_bits(&self) -> Option<u32> {
        self.number_of(FRA_SUPPRESS_PREFIXLEN).filter(|bits| *bits <= 128)
    }

    fn is_inverted(&self) -> bool {
        number(&self.head, 8).unwrap_or(0) & FIB_RULE_INVERT != 0
    }

    /// Returns whether it is the rule of virtual routing domains (VRF), whose table is that of the socket.
    fn is_of_devices(&self) -> bool {
        self.of(FRA_L3MDEV).is_some()
    }

    fn prefix(&self, kind: u16, bits: u8) -> Option<Prefix> {
        let address = fib::address(self.is_ipv4(), self.of(kind));
        (bits > 0).then_some(Prefix { address, bits })
    }

    fn is_for_all(&self) -> bool {
        let selects = |(kind, _): &(u16, Vec<u8>)| !NO_SELECTORS.contains(kind);
        !self.is_inverted() && self.head[1..4] == [0; 3] && !self.attributes.iter().any(selects)
    }

    /// Returns whether it may apply to a connection of this host to one of the peers.
    fn may_meet(&self, peers: Prefix) -> bool {
        let other_protocol = self.of(FRA_IP_PROTO).is_some_and(|protocol| protocol != [TCP]);
        // What this host sends counts as coming in by lo (ip-rule(8)).
        let forwarded = self.text_of(FRA_IIFNAME).is_some_and(|name| name != "lo");
        let others = self.prefix(FRA_DST, self.head[1]).is_some_and(|to| !to.meets(peers));
        self.is_inverted() || !(other_protocol || forwarded || others)
    }

    /// Returns whether its table has any route to them.
    fn leads_elsewhere(&self, all: &[Fib], peers: Prefix) -> bool {
        let common = [TABLE_DEFAULT, TABLE_MAIN, TABLE_LOCAL];
        let of_its_table = |fib: &&Fib| match fib.table() {
            table if self.is_of_devices() => !common.contains(&table),
            table => table == self.table() && !fib.is_of_main_or_local(),
        };
        all.iter().filter(of_its_table).any(|fib| fib.prefix().meets(peers))
    }

    /// Returns whether no packet to them reaches the rules after it.
    fn ends_the_search(&self, all: &[Fib], peers: Prefix) -> bool {
        let suppresses = self.suppressed_bits().is_some()
            || self.number_of(FRA_SUPPRESS_IFGROUP).is_some_and(|group| group != u32::MAX);
        let covers = |fib: &Fib| {
            fib.table() == self.table() && fib.carries_tcp() && fib.prefix().holds(peers)
        };
        self.head[7] == FR_ACT_TO_TBL && self.is_for_all() && !suppresses && all.iter().any(covers)
    }

    fn words(&self) -> String {
        let mut words = Vec::new();
        if self.is_inverted() {
            words.push("not".to_owned());
        }
        let from = self.prefix(FRA_SRC, self.head[2]);
        words.push(from.map_or("from all".to_owned(), |from| format!("from {from}")));
        words.extend(self.prefix(FRA_DST, self.head[1]).map(|to| format!("to {to}")));
        if self.head[3] != 0 {
            words.push(format!("tos {:#04x}", self.head[3]));
        }
        if let Some(mark) = self.number_of(FRA_FWMARK) {
            let mask = self.number_of(FRA_FWMASK).filter(|mask| *mask != u32::MAX);
            let mask = mask.map(|mask| format!("/{mask:#x}")).unwrap_or_default();
            words.push(format!("fwmark {mark:#x}{mask}"));
        }
        words.extend(self.text_of(FRA_IIFNAME).map(|name| format!("iif {name}")));
        words.extend(self.text_of(FRA_OIFNAME).map(|name| format!("oif {name}")));
        let untold =
            |(kind, _): &(u16, Vec<u8>)| !NO_SELECTORS.contains(kind) && !TOLD.contains(kind);
        if self.attributes.iter().any(untold) {
            words.push("…".to_owned());
        }
        words.push(match self.head[7] {
            FR_ACT_GOTO => format!("goto {}", self.number_of(FRA_GOTO).unwrap_or(0)),
            _ if self.is_of_devices() => "lookup [l3mdev-table]".to_owned(),
            _ => format!("lookup {}", fib::table_name(self.table())),
        });
        let bits = self.suppressed_bits().map(|bits| format!("suppress_prefixlength {bits}"));
        words.extend(bits);
        let family = if self.is_ipv4() { "" } else { "IPv6 " };
        format!("{family}rule {}: {}", self.priority(), words.join(" "))
    }
}

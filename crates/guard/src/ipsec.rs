//! IPsec policies (ip-xfrm(8)): the stack's packets leave below them and come above them, so what a policy is about is the
//! kernel's.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use uncork_netlink::{Line, attribute};

// linux/xfrm.h
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_POLICY_IN: u8 = 0;
const XFRM_POLICY_OUT: u8 = 1;
const XFRM_POLICY_ALLOW: u8 = 0;
const XFRMA_TMPL: u16 = 5;
/// `struct xfrm_userpolicy_info`; it begins with the selector.
const INFO_BYTES: usize = 168;
const DIR_AT: usize = 160;
const ACTION_AT: usize = 161;
/// `struct xfrm_userpolicy_id`, of which a dump asks for nothing.
const ID_BYTES: usize = 64;

const TCP: u8 = 6;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// How long an answer counts.
const COUNTS: Duration = Duration::from_secs(1);

/// The host's policies.
#[derive(Debug)]
pub(crate) struct Policies {
    /// `None` if the kernel has no IPsec, or could not be asked yet.
    line: Option<Line>,
    is_absent: bool,
    known: Vec<Policy>,
    asked: Option<Instant>,
}

/// What a policy is about, seen from this host: a policy for what comes has the ends the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy {
    /// `None` for both versions of IP.
    is_v4: Option<bool>,
    local: End,
    remote: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    address: [u8; 16],
    prefix: u8,
    port: u16,
    mask: u16,
}

impl Policies {
    pub(crate) fn open() -> Self {
        let mut policies = Self { line: None, is_absent: false, known: Vec::new(), asked: None };
        // If this fails, it is tried again for each question.
        let _ = policies.line();
        policies
    }

    fn line(&mut self) -> io::Result<Option<&mut Line>> {
        if self.line.is_none() && !self.is_absent {
            match Line::of_ipsec() {
                Ok(line) => self.line = Some(line),
                // A kernel without IPsec has no such protocol.
                Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {
                    self.is_absent = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.line.as_mut())
    }

    /// Returns whether a policy is about what passes between these ends; without a remote end, about anything at the local one.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub(crate) fn hold(
        &mut self,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> io::Result<bool> {
        if self.asked.is_none_or(|asked| asked.elapsed() >= COUNTS) {
            let Some(line) = self.line()? else { return Ok(false) };
            let all = line.dump(XFRM_MSG_GETPOLICY, &[0; ID_BYTES])?;
            self.known = all.iter().filter_map(|body| Policy::read(body)).collect();
            self.asked = Some(Instant::now());
        }
        Ok(self.known.iter().any(|policy| policy.is_about(local, remote)))
    }
}

impl Policy {
    /// Reads one; `None` if it concerns no TCP of this host, or changes nothing.
    fn read(body: &[u8]) -> Option<Self> {
        let info = body.get(..INFO_BYTES)?;
        let is_passed = info[ACTION_AT] == XFRM_POLICY_ALLOW
            && attribute(body.get(INFO_BYTES..)?, XFRMA_TMPL).is_none();
        // struct xfrm_selector: daddr, saddr, dport and its mask, sport and its mask, family, both prefixes, protocol.
        let short = |at: usize| [info[at], info[at + 1]];
        let end = |address: usize, ports: usize, prefix: usize| End {
            address: std::array::from_fn(|at| info[address + at]),
            prefix: info[prefix],
            port: u16::from_be_bytes(short(ports)),
            mask: u16::from_be_bytes(short(ports + 2)),
        };
        let (destination, source) = (end(0, 32, 42), end(16, 36, 43));
        let is_v4 = match u16::from_ne_bytes(short(40)) {
            AF_INET => Some(true),
            AF_INET6 => Some(false),
            _ => None,
        };
        let (local, remote) = match info[DIR_AT] {
            XFRM_POLICY_OUT => (source, destination),
            XFRM_POLICY_IN => (destination, source),
            _ => return None,
        };
        let concerns = !is_passed && matches!(info[44], 0 | TCP);
        concerns.then_some(Self { is_v4, local, remote })
    }

    fn is_about(&self, local: SocketAddr, remote: Option<SocketAddr>) -> bool {
        self.is_v4.is_none_or(|v4| v4 == local.is_ipv4())
            && self.local.has(local)
            && remote.is_none_or(|remote| self.remote.has(remote))
    }
}

impl End {
    fn has(&self, end: SocketAddr) -> bool {
        let mut address = [0; 16];
        match end.ip() {
            IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => address = ip.octets(),
        }
        let differ = u128::from_be_bytes(address) ^ u128::from_be_bytes(self.address);
        let same_bits = differ.leading_zeros() >= u32::from(self.prefix);
        same_bits && (end.port() ^ self.port) & self.mask == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(end: &str) -> SocketAddr {
        end.parse().unwrap()
    }

    /// Returns a policy as the kernel reports it: from 10.1.0.0/16 to port 443 of 10.2.0.7, with a template.
    fn body() -> Vec<u8> {
        let mut body = vec![0; INFO_BYTES];
        body[..4].copy_from_slice(&[10, 2, 0, 7]);
        body[16..20].copy_from_slice(&[10, 1, 0, 0]);
        body[32..36].copy_from_slice(&[1, 187, 255, 255]);
        body[40..42].copy_from_slice(&AF_INET.to_ne_bytes());
        (body[42], body[43], body[44]) = (32, 16, TCP);
        body[DIR_AT] = XFRM_POLICY_OUT;
        uncork_netlink::push(&mut body, XFRMA_TMPL, &[0; 64]);
        body
    }

    #[test]
    fn a_policy_is_about_the_ends_in_its_selector() {
        let policy = Policy::read(&body()).unwrap();
        let remote = Some(at("10.2.0.7:443"));
        assert!(policy.is_about(at("10.1.3.4:5000"), remote));
        assert!(policy.is_about(at("10.1.3.4:5000"), None), "somebody may come from there");
        assert!(!policy.is_about(at("10.3.0.1:5000"), remote));
        assert!(!policy.is_about(at("10.1.3.4:5000"), Some(at("10.2.0.7:80"))));
        assert!(!policy.is_about(at("10.1.3.4:5000"), Some(at("10.2.0.8:443"))));
        assert!(!policy.is_about(at("[a01:304::]:5000"), None), "of the other version");
    }

    #[test]
    fn one_for_what_comes_has_the_ends_the_other_way_round() {
        let mut body = body();
        body[DIR_AT] = XFRM_POLICY_IN;
        let policy = Policy::read(&body).unwrap();
        assert!(policy.is_about(at("10.2.0.7:443"), Some(at("10.1.3.4:5000"))));
        assert!(!policy.is_about(at("10.1.3.4:5000"), None));
    }

    #[test]
    fn what_concerns_no_tcp_of_this_host_or_changes_nothing_is_left_out() {
        let mut other = body();
        other[44] = 17;
        assert_eq!(Policy::read(&other), None, "UDP");
        other = body();
        other[DIR_AT] = 2;
        assert_eq!(Policy::read(&other), None, "what is forwarded");
        assert_eq!(Policy::read(&body()[..INFO_BYTES]), None, "no template: it lets pass");
        other[DIR_AT] = XFRM_POLICY_OUT;
        other.truncate(INFO_BYTES);
        other[ACTION_AT] = 1;
        assert!(Policy::read(&other).is_some(), "it blocks");
        other[40] = 0;
        (other[42], other[43]) = (0, 0);
        other[32..40].fill(0);
        assert!(Policy::read(&other).unwrap().is_about(at("[fe80::1]:1"), None), "everything");
        assert_eq!(Policy::read(&other[..100]), None);
    }
}

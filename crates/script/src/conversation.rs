//! Translation between a script and the wire: sequence numbers relative to each side's initial one, and
//! the fields that a script leaves out because they follow.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use uncork_wire::checksum::Sum;
use uncork_wire::tcp::{CHECKSUM_OFFSET, Fields, Flags, Header, OptionSet};
use uncork_wire::{Protocol, SeqNumber, ipv4};

use crate::language::{Offered, Segment, Stamp, length};

/// The tested host, and the peer that the script plays.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The port at which the host listens.
pub(crate) const PORT: u16 = 80;
/// Port of the peer in the connection `a`.
const FIRST_PEER_PORT: u16 = 40_000;
/// The peer's initial sequence number, chosen so that its numbers wrap after sixteen.
const PEER_ISS: SeqNumber = SeqNumber(0xffff_fff0);
/// The peer's window where the script does not give one.
const WINDOW: u16 = 65_535;

/// Returns the peer's port of a connection.
pub(crate) fn peer_port(connection: char) -> u16 {
    FIRST_PEER_PORT + (u32::from(connection) - u32::from('a')) as u16
}

/// Returns the octet at an offset of a stream, in both directions.
pub(crate) fn octet(place: usize) -> u8 {
    (place % 251) as u8
}

/// The state of one connection so far.
#[derive(Debug, Clone, Default)]
struct Talk {
    host_port: Option<u16>,
    host_iss: Option<SeqNumber>,
    /// Next sequence number of each side; `peer_whole` is how far the peer's stream has arrived without a gap.
    host_next: u32,
    peer_next: u32,
    peer_whole: u32,
    /// Beginning of the peer's stream: after its SYN.
    peer_start: u32,
    /// The host's last timestamp value.
    host_stamp: u32,
}

/// All connections of a script.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    talks: BTreeMap<char, Talk>,
}

impl Conversation {
    /// Returns the packet for a segment of the peer.
    pub(crate) fn speak(&mut self, segment: &Segment) -> Vec<u8> {
        let talk = self.talks.entry(segment.connection).or_default();
        let syn = segment.flags.has(Flags::SYN);
        // A SYN without a number is the connection's first.
        let seq = segment.seq.unwrap_or(if syn { 0 } else { talk.peer_next });
        let end = seq.wrapping_add(segment.length());
        if syn {
            talk.peer_start = seq + 1;
            talk.peer_next = end;
            talk.peer_whole = end;
        }
        if !segment.flags.has(Flags::RST) {
            talk.peer_next = talk.peer_next.max(end);
            if seq <= talk.peer_whole {
                talk.peer_whole = talk.peer_whole.max(end);
            }
        }
        let iss = talk.host_iss.unwrap_or_default();
        let acks = segment.flags.has(Flags::ACK);
        let ack = if acks { iss + segment.ack.unwrap_or(talk.host_next) } else { SeqNumber(0) };
        let fields = Fields {
            source_port: peer_port(segment.connection),
            destination_port: talk.host_port.unwrap_or(PORT),
            seq: PEER_ISS + seq,
            ack,
            flags: segment.flags,
            window: segment.window.unwrap_or(WINDOW),
        };
        let options = segment.options.clone().unwrap_or_default();
        let options = on_the_wire(&options, iss, talk.host_stamp);
        let first = seq.wrapping_sub(talk.peer_start) as usize;
        let data: Vec<u8> =
            (0..segment.bytes as usize).map(|n| octet(first.wrapping_add(n))).collect();
        packet(&fields, &options, &data, segment.tos.unwrap_or_default())
    }

    /// Parses a packet of the host into a script's segment; an error if it is not TCP of a connection.
    pub(crate) fn hear(&mut self, packet: &[u8]) -> Result<Segment, String> {
        let (ip, tcp) = ipv4::Header::read(packet).map_err(|error| format!("{error:?}"))?;
        let mut sum = Sum::default();
        sum.add_pseudo_v4(ip.source, ip.destination, Protocol::TCP.0, tcp.len() as u32);
        sum.add(tcp);
        if !sum.is_good() {
            return Err("its checksum is wrong".to_owned());
        }
        let header = Header::read(tcp, tcp.len()).map_err(|error| format!("{error:?}"))?;
        let index = header.destination_port().wrapping_sub(FIRST_PEER_PORT);
        let letter = u8::try_from(index).ok().filter(|&index| index < 26);
        let connection = letter.map(|index| char::from(b'a' + index));
        let connection = connection.ok_or("it is for no port of the peer's")?;
        let talk = self.talks.entry(connection).or_default();
        let flags = header.flags();
        if flags.has(Flags::SYN) {
            talk.host_port = Some(header.source_port());
            talk.host_iss = Some(header.seq());
            talk.host_next = 0;
        }
        // A reset for an unknown connection takes its number from the segment that it answers (RFC 9293 §3.10.7.1).
        let iss = talk.host_iss.unwrap_or(SeqNumber(0));
        let data = tcp.get(header.header_bytes()..).unwrap_or_default();
        let bytes = data.len() as u32;
        let seq = (header.seq() - iss.0).0;
        if !flags.has(Flags::RST) {
            talk.host_next = talk.host_next.max(seq.wrapping_add(length(flags, bytes)));
        }
        let wrong = data.iter().enumerate().find(|(place, found)| {
            **found != octet((seq as usize).wrapping_sub(1).wrapping_add(*place))
        });
        if let Some((place, _)) = wrong {
            return Err(format!("its octet {place} is not what was written"));
        }
        let options = header.option_set();
        talk.host_stamp = options.timestamps.map_or(talk.host_stamp, |(value, _)| value);
        Ok(Segment {
            connection,
            flags,
            seq: Some(seq),
            bytes,
            ack: header.ack().map(|ack| (ack - PEER_ISS.0).0),
            tos: None,
            window: Some(header.window()),
            options: Some(as_said(&options)),
        })
    }

    /// Returns how `heard` differs from what is expected, which was completed from the state before it.
    pub(crate) fn difference(&self, before: &Expected, heard: &Segment) -> Option<String> {
        let wanted = &before.0;
        let same = wanted.connection == heard.connection
            && wanted.flags == heard.flags
            && wanted.bytes == heard.bytes
            && wanted.seq.is_none_or(|seq| Some(seq) == heard.seq)
            && wanted.ack.is_none_or(|ack| Some(ack) == heard.ack)
            && wanted.window.is_none_or(|window| Some(window) == heard.window)
            && wanted.options.as_ref().is_none_or(|options| matches(options, heard));
        (!same).then(|| format!("expected {}> {wanted}", wanted.connection))
    }

    /// Completes an expected segment from the state so far.
    pub(crate) fn expect(&self, segment: &Segment) -> Expected {
        let nothing = Talk::default();
        let talk = self.talks.get(&segment.connection).unwrap_or(&nothing);
        let mut wanted = segment.clone();
        let first = if segment.flags.has(Flags::SYN) { 0 } else { talk.host_next };
        wanted.seq = wanted.seq.or(Some(first));
        if segment.flags.has(Flags::ACK) {
            wanted.ack = wanted.ack.or(Some(talk.peer_whole));
        }
        Expected(wanted)
    }
}

/// An expected segment, with all its numbers.
#[derive(Debug)]
pub(crate) struct Expected(pub(crate) Segment);

/// Whether these are exactly the options, as far as they are given.
fn matches(wanted: &Offered, heard: &Segment) -> bool {
    let heard = heard.options.clone().unwrap_or_default();
    let stamps = match (wanted.stamp, heard.stamp) {
        (None, None) => true,
        (Some(wanted), Some(heard)) => {
            wanted.value.is_none_or(|value| heard.value == Some(value))
                && wanted.echo.is_none_or(|echo| heard.echo == Some(echo))
        }
        _ => false,
    };
    stamps && Offered { stamp: None, ..heard } == Offered { stamp: None, ..wanted.clone() }
}

fn on_the_wire(options: &Offered, iss: SeqNumber, host_stamp: u32) -> OptionSet {
    let mut set = OptionSet {
        mss: options.mss,
        window_scale: options.window_scale,
        sack_permitted: options.sack_permitted,
        ..OptionSet::default()
    };
    set.timestamps = options
        .stamp
        .map(|Stamp { value, echo }| (value.unwrap_or_default(), echo.unwrap_or(host_stamp)));
    for (left, right) in &options.sack {
        set.sack.push(iss + *left, iss + *right);
    }
    set
}

fn as_said(set: &OptionSet) -> Offered {
    let relative = |number: SeqNumber| (number - PEER_ISS.0).0;
    let blocks = set.sack.as_slice().iter();
    Offered {
        mss: set.mss,
        window_scale: set.window_scale,
        sack_permitted: set.sack_permitted,
        stamp: set.timestamps.map(|(value, echo)| Stamp { value: Some(value), echo: Some(echo) }),
        sack: blocks.map(|&(left, right)| (relative(left), relative(right))).collect(),
    }
}

/// Returns a packet from the peer to the host.
fn packet(fields: &Fields, options: &OptionSet, data: &[u8], tos: u8) -> Vec<u8> {
    let mut segment = vec![0; 60];
    let header_bytes = fields.emit(options, &mut segment);
    segment.truncate(header_bytes);
    segment.extend_from_slice(data);
    let mut sum = Sum::default();
    sum.add_pseudo_v4(PEER, HOST, Protocol::TCP.0, segment.len() as u32);
    sum.add(&segment);
    segment[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
    let mut packet = vec![0; ipv4::HEADER_BYTES];
    let total = (packet.len() + segment.len()) as u16;
    let whole = ipv4::Header::whole(Protocol::TCP, PEER, HOST, total);
    ipv4::Header { tos, ..whole }.emit(&mut packet);
    packet.extend(segment);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{Script, Step};

    fn segment(text: &str) -> Segment {
        let script = Script::parse(&format!("# A title\n< {text}\n")).unwrap();
        let Step::Inject(segment) = script.lines[0].step.clone() else { panic!() };
        segment
    }

    /// Returns the packet that the host would send: the same with the addresses swapped.
    fn from_host(fields: Fields, data: &[u8]) -> Vec<u8> {
        let mut packet = packet(&fields, &OptionSet::default(), data, 0);
        // Swapping the addresses does not change the checksum.
        packet[12..16].copy_from_slice(&HOST.octets());
        packet[16..20].copy_from_slice(&PEER.octets());
        packet
    }

    #[test]
    fn what_is_left_out_follows_from_what_was_before() {
        let mut talk = Conversation::default();
        talk.speak(&segment("S (0)"));
        let mut fields = Fields {
            source_port: PORT,
            destination_port: peer_port('a'),
            seq: SeqNumber(77),
            ack: PEER_ISS + 1,
            flags: Flags::SYN.with(Flags::ACK),
            window: 9,
        };
        let wanted = talk.expect(&segment("S. (0)"));
        let heard = talk.hear(&from_host(fields, &[])).unwrap();
        assert_eq!(talk.difference(&wanted, &heard), None);
        talk.speak(&segment(". (0)"));
        talk.speak(&segment("P. (10)"));
        // A gap: data after it are not acknowledged.
        talk.speak(&segment("P. 21(10)"));
        let wanted = talk.expect(&segment("P. (3)"));
        fields = Fields {
            seq: SeqNumber(78),
            ack: PEER_ISS + 11,
            flags: Flags::PSH.with(Flags::ACK),
            ..fields
        };
        let heard = talk.hear(&from_host(fields, &[0, 1, 2])).unwrap();
        assert_eq!(talk.difference(&wanted, &heard), None);
        assert_eq!(heard.to_string(), "P. 1:4(3) ack 11 win 9");
        let next = talk.speak(&segment(". (0)"));
        let (_, tcp) = ipv4::Header::read(&next).unwrap();
        let header = Header::read(tcp, tcp.len()).unwrap();
        assert_eq!((header.seq(), header.ack()), (PEER_ISS + 31, Some(SeqNumber(81))));
        // Other data than were written, and another length than was expected.
        assert!(talk.hear(&from_host(fields, &[9, 9, 9])).unwrap_err().contains("octet 0"));
        let wanted = talk.expect(&segment("P. 1(4)"));
        assert!(talk.difference(&wanted, &heard).is_some());
    }
}

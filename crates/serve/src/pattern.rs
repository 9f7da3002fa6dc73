//! The content of bodies.

/// Period of a body in octets. It is a prime, and so no multiple of any segment, buffer or page: loss,
/// duplication or misplacement changes the body.
pub const PERIOD_BYTES: usize = 65_537;
/// Octets of a line, its newline included.
const LINE_BYTES: usize = 64;
/// Printable octets of one round of chargen (RFC 864 shows this order), from space to tilde.
const PRINTABLE: usize = 95;
const CHARGEN_LINE_BYTES: usize = 74;

/// Returns the octet at this offset of every body: lines of letters and digits that a multiplicative hash chooses.
#[must_use]
pub fn octet(place: u64) -> u8 {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let place = place % PERIOD_BYTES as u64;
    if place % LINE_BYTES as u64 == LINE_BYTES as u64 - 1 {
        return b'\n';
    }
    // Knuth's multiplicative hash: neighbouring octets are unrelated.
    let hash = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    LETTERS[usize::try_from(hash >> 58).unwrap_or(0)]
}

/// Octets that repeat for ever, in memory twice, so that a piece of up to a whole period is contiguous.
#[derive(Debug)]
pub(crate) struct Pattern {
    twice: Box<[u8]>,
}

impl Pattern {
    /// The pattern of HTTP bodies.
    pub(crate) fn body() -> Self {
        Self::repeat(&(0..PERIOD_BYTES as u64).map(octet).collect::<Vec<_>>())
    }

    /// RFC 864: lines of 72 printable characters, each starting one further on. The period is repeated
    /// to make long pieces possible.
    pub(crate) fn chargen() -> Self {
        const ROUNDS: usize = 9;
        let character = |line: usize, column: usize| match column {
            72 => b'\r',
            73 => b'\n',
            _ => u8::try_from((line + column) % PRINTABLE + 32).unwrap_or(b' '),
        };
        let lines = (0..ROUNDS * PRINTABLE)
            .flat_map(|line| (0..CHARGEN_LINE_BYTES).map(move |column| character(line, column)));
        Self::repeat(&lines.collect::<Vec<_>>())
    }

    fn repeat(once: &[u8]) -> Self {
        Self { twice: once.repeat(2).into_boxed_slice() }
    }

    /// Returns a piece from this offset on, of at most `bytes` octets.
    pub(crate) fn piece(&self, place: u64, bytes: u64) -> &[u8] {
        let period = self.twice.len() / 2;
        let start = usize::try_from(place % period as u64).unwrap_or(0);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(period);
        &self.twice[start..start + bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::{CHARGEN_LINE_BYTES, PERIOD_BYTES, PRINTABLE, Pattern, octet};

    #[test]
    fn a_piece_is_the_octets_of_its_place() {
        let pattern = Pattern::body();
        for place in [0, 1, 63, 65_536, 65_537, 1 << 40] {
            let piece = pattern.piece(place, 3000);
            assert_eq!(piece.len(), 3000);
            assert!(piece.iter().zip(place..).all(|(&found, place)| found == octet(place)));
        }
        assert_eq!(pattern.piece(5, u64::MAX).len(), PERIOD_BYTES);
    }

    #[test]
    fn chargen_is_as_its_rfc_shows_it() {
        let pattern = Pattern::chargen();
        let lines = pattern.piece(0, 148);
        assert!(lines.starts_with(b" !\"#$%&'()*+,-./0123456789:;<=>?@ABC"));
        assert_eq!(&lines[70..78], b"fg\r\n!\"#$");
        // Another round is the same, whatever the length kept in memory.
        let round = (PRINTABLE * CHARGEN_LINE_BYTES) as u64;
        assert_eq!(pattern.piece(round, 500), pattern.piece(0, 500));
        assert_eq!(pattern.piece(round * 9 + 7, 500), pattern.piece(7, 500));
    }
}

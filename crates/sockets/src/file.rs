//! Octets from a file: sendfile(2).

use std::io::IoSlice;
use std::os::fd::{BorrowedFd, RawFd};

use nix::errno::Errno;
use nix::sys::uio::pread;

use crate::Sockets;
use crate::outside::Outside;

/// How much of a file is read at a time.
const PIECE_BYTES: usize = 64 << 10;

impl<O: Outside> Sockets<O> {
    /// Does sendfile(2): sends as much of `count` octets of a file from `offset` on as the socket takes.
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn send_file(
        &self,
        fd: RawFd,
        file: BorrowedFd<'_>,
        offset: i64,
        count: usize,
    ) -> Result<usize, Errno> {
        if count == 0 {
            return Ok(0);
        }
        // The file is read without the lock: a disk may be slow.
        let mut piece = self.call(fd, |world| Ok(std::mem::take(&mut world.piece)))?;
        if piece.len() < PIECE_BYTES.min(count) {
            piece.resize(PIECE_BYTES.min(count), 0);
        }
        let sent = self.send_in_pieces(fd, file, offset, count, &mut piece);
        let _ = self.call(fd, |world| {
            world.piece = piece;
            Ok(())
        });
        sent
    }

    fn send_in_pieces(
        &self,
        fd: RawFd,
        file: BorrowedFd<'_>,
        offset: i64,
        count: usize,
        piece: &mut [u8],
    ) -> Result<usize, Errno> {
        let mut sent = 0;
        while sent < count {
            // One octet more than there is room for: a caller that does not wait is told of room only after an octet was refused.
            let room = self.call(fd, |world| world.room(fd)).unwrap_or(usize::MAX);
            let long = piece.len().min(count - sent).min(room.saturating_add(1));
            let at = offset + i64::try_from(sent).map_err(|_| Errno::EINVAL)?;
            let read = match pread(file, &mut piece[..long], at) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            };
            // More is coming, so that a piece need not end with a short segment; unless the file ends before `count`.
            let behind = at + i64::try_from(read).map_err(|_| Errno::EINVAL)?;
            let may_be_more = read == long && sent + read < count;
            let is_more = may_be_more && pread(file, &mut [0], behind) == Ok(1);
            let more = if is_more { libc::MSG_MORE } else { 0 };
            match self.send(fd, &[IoSlice::new(&piece[..read])], more) {
                Ok(taken) => {
                    sent += taken;
                    if taken < read {
                        break;
                    }
                }
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }
}

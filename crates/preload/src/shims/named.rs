//! Functions that libc exports under a second name, used by programs that were linked against old versions of it, by
//! libraries that want libc's own whatever the program defines under the first, and by programs with 64-bit offsets.

use super::{descriptors, passing, poll, read, sockets, write};
use crate::jump::also_named;

also_named! {
    __read => read::read;
    __write => write::write;
    __send => write::send;
    __connect => sockets::connect;
    __close => descriptors::close;
    __dup2 => descriptors::dup2;
    __fcntl => descriptors::fcntl;
    __poll => poll::poll;
    __select => poll::select;
    __vfork => passing::vfork::vfork;
    preadv64v2 => read::preadv2;
    pwritev64v2 => write::pwritev2;
}

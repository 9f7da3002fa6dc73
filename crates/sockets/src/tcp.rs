//! The two ways in which a process has TCP: a stack of its own, and one that an instance has for it
//! ([`Attached`]). The operations on both are the stack's.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uncork_attach::Attached;
use uncork_stack::{
    Config, ConnectError, ConnectionError, Counters, Detached, FastConnect, FastOpenKeys,
    FastOpenListen, Found, Info, Instant, ListenError, ListenerId, Listening, Mac, Ready,
    RecvError, SendError, Shutdown, SocketId, SocketOption, Stack, State,
};

/// `same! { … }`: the operations that both have under the same name.
macro_rules! same {
    ($(
        fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;
    )* mut $(
        fn $name_mut:ident(&mut self $(, $argument_mut:ident: $type_mut:ty)*) $(-> $result_mut:ty)?;
    )*) => {
        /// See [`Stack`].
        pub(crate) trait Tcp {
            $(fn $name(&self $(, $argument: $type)*) $(-> $result)?;)*
            $(fn $name_mut(&mut self $(, $argument_mut: $type_mut)*) $(-> $result_mut)?;)*

            /// Returns all connections that have a name.
            fn all(&self) -> Vec<SocketId>;

            /// See [`Stack::quiet_until`].
            fn quiet_until(&mut self, port: u16, until: Instant);

            /// See [`Stack::open_deferred`].
            fn open_deferred(&mut self, now: Instant, id: ListenerId);

            /// See [`Stack::has_under_way`].
            fn has_under_way(&self, now: Instant, id: ListenerId) -> bool;

            /// See [`Stack::set_neighbour`].
            fn set_neighbour(&mut self, now: Instant, remote: IpAddr, found: Found);

            /// See [`Stack::set_mac`].
            fn set_mac(&mut self, mac: Mac);

            /// See [`Stack::take_caught`].
            fn take_caught(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<Vec<u8>>;

            /// Returns whether something of a connection can leave only when ACKs have come, and a turn of this process has to
            /// take those in.
            fn waits_for_a_turn(&mut self, now: Instant, id: SocketId) -> bool;
        }

        impl Tcp for Stack {
            $(fn $name(&self $(, $argument: $type)*) $(-> $result)? {
                self.$name($($argument),*)
            })*
            $(fn $name_mut(&mut self $(, $argument_mut: $type_mut)*) $(-> $result_mut)? {
                self.$name_mut($($argument_mut),*)
            })*

            fn all(&self) -> Vec<SocketId> {
                self.sockets().collect()
            }

            fn quiet_until(&mut self, port: u16, until: Instant) {
                self.quiet_until(port, until);
            }

            fn open_deferred(&mut self, now: Instant, id: ListenerId) {
                self.open_deferred(now, id);
            }

            fn has_under_way(&self, now: Instant, id: ListenerId) -> bool {
                self.has_under_way(now, id)
            }

            fn set_neighbour(&mut self, now: Instant, remote: IpAddr, found: Found) {
                self.set_neighbour(now, remote, found);
            }

            fn set_mac(&mut self, mac: Mac) {
                self.set_mac(mac);
            }

            fn take_caught(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<Vec<u8>> {
                self.take_caught(local, remote)
            }

            fn waits_for_a_turn(&mut self, now: Instant, id: SocketId) -> bool {
                self.info(now, id).is_some_and(|info| info.unsent_bytes > 0)
            }
        }

        impl Tcp for Attached {
            $(fn $name(&self $(, $argument: $type)*) $(-> $result)? {
                self.$name($($argument),*)
            })*
            $(fn $name_mut(&mut self $(, $argument_mut: $type_mut)*) $(-> $result_mut)? {
                self.$name_mut($($argument_mut),*)
            })*

            fn all(&self) -> Vec<SocketId> {
                self.sockets().collect()
            }

            /// The instance does that.
            fn quiet_until(&mut self, _: u16, _: Instant) {}

            /// The instance knows whose data is waited for, and for how long.
            fn open_deferred(&mut self, _: Instant, _: ListenerId) {}

            /// The instance does not say: there may be some.
            fn has_under_way(&self, _: Instant, _: ListenerId) -> bool {
                true
            }

            /// The instance asks the kernel itself.
            fn set_neighbour(&mut self, _: Instant, _: IpAddr, _: Found) {}

            /// The instance hears of that itself.
            fn set_mac(&mut self, _: Mac) {}

            fn take_caught(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<Vec<u8>> {
                self.take_caught(local, remote)
            }

            /// The instance takes ACKs in, and sends. To ask it would be a round trip for each write.
            fn waits_for_a_turn(&mut self, _: Instant, _: SocketId) -> bool {
                false
            }
        }
    };
}

same! {
    fn state(&self, id: SocketId) -> Option<State>;
    fn ends(&self, id: SocketId) -> Option<(SocketAddr, SocketAddr)>;
    fn readable_bytes(&self, id: SocketId) -> u32;
    fn close_resets(&self, id: SocketId) -> bool;
    fn is_deferred(&self, id: SocketId) -> bool;
    fn is_quiet(&self) -> bool;
    fn config(&self) -> &Config;
    fn counters(&self) -> &Counters;
    mut
    fn connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr
    ) -> Result<SocketId, ConnectError>;
    fn connect_fast(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        without_cookie: bool
    ) -> Result<FastConnect, ConnectError>;
    fn launch(&mut self, now: Instant, id: SocketId);
    fn listen_with(
        &mut self,
        local: SocketAddr,
        how: Listening
    ) -> Result<ListenerId, ListenError>;
    fn set_listener_option(&mut self, id: ListenerId, option: SocketOption);
    fn open_fast_at(
        &mut self,
        id: ListenerId,
        listen: FastOpenListen,
        keys: Option<FastOpenKeys>
    );
    fn accept_waiting(&mut self, id: ListenerId) -> usize;
    fn accept(&mut self, id: ListenerId) -> Option<SocketId>;
    fn leave_listener(&mut self, id: ListenerId);
    fn close_listener(&mut self, now: Instant, id: ListenerId);
    fn send(
        &mut self,
        now: Instant,
        id: SocketId,
        bytes: &[u8],
        more: bool
    ) -> Result<usize, SendError>;
    fn sendable_bytes(&mut self, now: Instant, id: SocketId) -> u32;
    fn end_record(&mut self, id: SocketId);
    fn complete(&mut self, now: Instant, id: SocketId);
    fn recv(&mut self, now: Instant, id: SocketId, into: &mut [u8]) -> Result<usize, RecvError>;
    fn peek(&mut self, now: Instant, id: SocketId, into: &mut [u8]) -> Result<usize, RecvError>;
    fn readiness(&mut self, now: Instant, id: SocketId) -> Ready;
    fn take_error(&mut self, id: SocketId) -> Option<ConnectionError>;
    fn put_back_error(&mut self, id: SocketId, error: ConnectionError);
    fn info(&mut self, now: Instant, id: SocketId) -> Option<Info>;
    fn set_option(&mut self, now: Instant, id: SocketId, option: SocketOption) -> bool;
    fn shutdown(&mut self, now: Instant, id: SocketId, how: Shutdown);
    fn begin_close(&mut self, now: Instant, id: SocketId) -> Option<Duration>;
    fn close(&mut self, now: Instant, id: SocketId);
    fn abort(&mut self, now: Instant, id: SocketId);
    fn abort_all(&mut self, now: Instant);
    fn detach(&mut self, now: Instant, id: SocketId) -> Option<Detached>;
}

//! The names of what can end a burst: the program's calls, and the library's own reasons.

macro_rules! calls {
    ($($variant:ident $name:literal)+) => {
        /// What made held bytes leave. Most are the libc call by which the program turned away.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Call { $($variant),+ }

        impl Call {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [Call] = &[$(Call::$variant),+];

            /// Returns the call's name as the manual and `--debug` spell it.
            pub fn name(self) -> &'static str {
                match self { $(Call::$variant => $name),+ }
            }
        }
    };
}

calls! {
    // Reading.
    Read "read" Readv "readv" Recv "recv" Recvfrom "recvfrom" Recvmsg "recvmsg"
    Recvmmsg "recvmmsg" Preadv2 "preadv2"
    // Waiting for readiness.
    Select "select" Pselect "pselect" Poll "poll" Ppoll "ppoll"
    EpollWait "epoll_wait" EpollPwait "epoll_pwait" EpollPwait2 "epoll_pwait2"
    Accept "accept" Connect "connect" IoUring "io_uring" AioSuspend "aio_suspend"
    // Sleeping, or waiting for another thread or process.
    Sleep "sleep" Usleep "usleep" Nanosleep "nanosleep" ClockNanosleep "clock_nanosleep"
    SchedYield "sched_yield" Pause "pause" Sigsuspend "sigsuspend" Sigwait "sigwait"
    Sigwaitinfo "sigwaitinfo" Sigtimedwait "sigtimedwait"
    Wait "wait" Waitpid "waitpid" Waitid "waitid" Wait3 "wait3" Wait4 "wait4"
    CondWait "pthread_cond_wait" CondTimedwait "pthread_cond_timedwait"
    CondClockwait "pthread_cond_clockwait" Join "pthread_join" TimedJoin "pthread_timedjoin_np"
    BarrierWait "pthread_barrier_wait" SemWait "sem_wait" SemTimedwait "sem_timedwait"
    SemClockwait "sem_clockwait" CndWait "cnd_wait" CndTimedwait "cnd_timedwait"
    ThrdSleep "thrd_sleep" ThrdJoin "thrd_join" Futex "futex" MqReceive "mq_receive"
    MqTimedreceive "mq_timedreceive" Msgrcv "msgrcv" Semop "semop" Semtimedop "semtimedop"
    Flock "flock"
    // The end of the socket, or of the process's hold on it.
    Close "close" CloseRange "close_range" Closefrom "closefrom" Fclose "fclose"
    Shutdown "shutdown" Dup "dup" Dup2 "dup2" Fdopen "fdopen" PassFd "sendmsg(SCM_RIGHTS)"
    Sendfile "sendfile" Splice "splice" Aio "aio_write"
    // The end of the process, or a new one.
    Exit "exit" UnderscoreExit "_exit" QuickExit "quick_exit" Abort "abort" Kill "kill" Fini "end of program"
    ThreadExit "pthread_exit" Fork "fork" Vfork "vfork" Exec "exec" Spawn "posix_spawn"
    System "system" Popen "popen"
    // Asking the socket about itself.
    Getsockopt "getsockopt" Setsockopt "setsockopt" Ioctl "ioctl"
    // Our own reasons.
    Timer "timer" Turn "turn" CheckQlen "check_qlen" Full "full" Predicted "predicted"
    Passed "passed"
}

impl Call {
    /// Returns the call with this number, if there is one (numbers may come from another process).
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_uncork_global_optspecs
    string join \n h/help V/version
end

function __fish_uncork_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_uncork_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_uncork_using_subcommand
    set -l cmd (__fish_uncork_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c uncork -n "__fish_uncork_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_needs_command" -s V -l version -d 'Print version'
complete -c uncork -n "__fish_uncork_needs_command" -f -a "run" -d 'Run a program with its small TCP writes coalesced'
complete -c uncork -n "__fish_uncork_needs_command" -f -a "doctor" -d 'Find stalls in TCP connections: who held the bytes, who held the ACK, what cures it'
complete -c uncork -n "__fish_uncork_needs_command" -f -a "tune" -d 'Set TCP options of running programs\' connections, and take it all back'
complete -c uncork -n "__fish_uncork_needs_command" -f -a "status" -d 'Show whether the library is in a process, and its sockets'
complete -c uncork -n "__fish_uncork_needs_command" -f -a "ack" -d 'Watch when a receiver acknowledges: the delayed-ACK experiment'
complete -c uncork -n "__fish_uncork_needs_command" -f -a "lab" -d 'Run the experiments that show what TCP\'s queues and timers do'
complete -c uncork -n "__fish_uncork_needs_command" -f -a "stack" -d 'Serve on a TCP stack in user space, keep instances and guardians for programs, and see what stacks do'
complete -c uncork -n "__fish_uncork_needs_command" -f -a "library" -d 'Print the path of the library, for LD_PRELOAD by hand'
complete -c uncork -n "__fish_uncork_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand run" -l hold -d 'Who keeps the bytes of an unfinished packet: kernel, user or off' -r -f -a "kernel\t''
user\t''
off\t''"
complete -c uncork -n "__fish_uncork_using_subcommand run" -l scope -d 'Which TCP sockets are helped: all or nodelay' -r -f -a "all\t''
nodelay\t''"
complete -c uncork -n "__fish_uncork_using_subcommand run" -l bound -d 'How long anything may stay held: 100us to 200ms' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l spin -d 'How long a wait tries before it sleeps: off, auto or a duration' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l stats -d 'At the end, tell what was held, pushed and passed through' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand run" -l stack -d 'Move its TCP to a stack in user space, under this host\'s own addresses' -r -f -a "inline\t'On the program\'s own threads'
instance\t'In a process of its own, to which the program attaches'"
complete -c uncork -n "__fish_uncork_using_subcommand run" -l instance -d 'Which instances --stack=instance attaches to, by their name, and which of them' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l guardian -d 'The guardian service that --stack uses, by its name, instead of one of the program\'s own' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l dev -d 'A network device for --stack; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l port -d 'A port that may be listened on by --stack; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l driver -d 'How --stack gets its frames' -r -f -a "packet\t''
xdp\t''"
complete -c uncork -n "__fish_uncork_using_subcommand run" -l queues -d 'How many queues of each device a process takes with --driver=xdp, if they are free' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l moderation -d 'With --stack: for how long what has come may wait for more, when many requests come: off or 10us to 1ms' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l small-queue -d 'With --stack: how much of one connection may be in the device\'s queue' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l debug -d 'Let the library say what it does: 1 sockets helped and passed through, 2 each push' -r
complete -c uncork -n "__fish_uncork_using_subcommand run" -l thread-sockets -d 'With --stack: each thread has a stack of its own'
complete -c uncork -n "__fish_uncork_using_subcommand run" -l stay -d 'With --stack: what the kernel is quicker for stays on the stack, too'
complete -c uncork -n "__fish_uncork_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -l pcap -d 'The capture (pcap or pcapng), or - for standard input' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -l pid -d 'Trace this process, with what it starts meanwhile, and its TCP connections' -r
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -l for -d 'How long to trace the process [default: 10s]' -r
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -l html -d 'Write the report as one self-contained page, with a diagram of each kind of stall' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -l fail-on -d 'Exit with 1 only if this holds: stall>5ms, lost>50ms, share>1% or a kind of finding' -r
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -l slow -d 'How long a program may take for a reply before it is named as slow [default: 20ms]' -r
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -l stacks -d 'Tell where in the program the writes are made that are held back'
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -l json -d 'Print the report as JSON (docs/doctor.schema.json describes it)'
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -l all -d 'Report connections without a finding, and harmless oddities, too'
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -s q -l quiet -d 'Print no report; the exit status tells'
complete -c uncork -n "__fish_uncork_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l delack-max -d 'The longest that an ACK may be delayed: two ticks of the kernel (8ms at 250 Hz) to 200ms' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l notsent-lowat -d 'How much may wait unsent before the program is asked for more (TCP_NOTSENT_LOWAT): 128k' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l rto-min -d 'The shortest retransmission timeout: two ticks of the kernel to 200ms' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l pacing -d 'The fastest that each connection may send (SO_MAX_PACING_RATE): 100mbit' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l congestion -d 'The congestion control: cubic, bbr, or another that the kernel has loaded' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l pid -d 'Those of this process and of all that descend from it' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l cgroup -d 'Those made in this cgroup (of the v2 hierarchy) or below it' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l port -d 'Those with this port at either end' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l peer -d 'Those whose other end has one of these addresses' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l netns -d 'Those of this network namespace: a name of ip-netns(8), or the path of its file' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l state -d 'Where the journal is [default: /var/lib/uncork/tune]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l bpffs -d 'Where bpffs is, or is to be mounted [default: /sys/fs/bpf]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l nodelay -d 'Send small segments at once (TCP_NODELAY), also what waits now'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l quickack -d 'Acknowledge at once what the peers send, by their routes\' quickack'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l all -d 'Every connection of the machine'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l new -d 'Only connections that are established from now on'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l live -d 'Only connections that there are'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -l dry-run -d 'Print what would be changed, and change nothing'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -f -a "small-queues" -d 'Keep a device\'s queue short: no connection has more in it than a target time takes to send'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -f -a "sink" -d 'Take what another host\'s `small-queues --load` sends, and throw it away'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -f -a "list" -d 'Show what is in force, since when, and what it touched'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -f -a "undo" -d 'Set back what was changed'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and not __fish_seen_subcommand_from small-queues sink list undo help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l dev -d 'The device through which the bulk goes' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l target -d 'How long what is queued may take to send: 50us to 1s' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l rate -d 'How fast the link is: 100mbit' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l senders -d 'How many connections send in bulk at a time' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l ping -d 'With --verify: judge by pings to this host (IPv4) beside the load' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l load -d 'With --verify: make the load, to somebody there who throws it away' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l each -d 'With --verify: how long each of the six measurements takes, 200ms to 60s' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l netns -d 'The network namespace of the device: a name of ip-netns(8), or the path of its file' -r
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l state -d 'Where the journal is [default: /var/lib/uncork/tune]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l bpffs -d 'Where bpffs is, or is to be mounted [default: /sys/fs/bpf]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l pace -d 'Pace each connection over the device at its part of the rate (eBPF)'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l verify -d 'Measure round trips, queue and throughput before and after, in turns, and take it back if it did not help'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -l dry-run -d 'Print what would be changed, and change nothing'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from small-queues" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from sink" -l state -d 'Where the journal is [default: /var/lib/uncork/tune]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from sink" -l bpffs -d 'Where bpffs is, or is to be mounted [default: /sys/fs/bpf]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from sink" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from list" -l state -d 'Where the journal is [default: /var/lib/uncork/tune]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from list" -l bpffs -d 'Where bpffs is, or is to be mounted [default: /sys/fs/bpf]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from list" -l json -d 'Print a JSON array, one element an entry'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from undo" -l state -d 'Where the journal is [default: /var/lib/uncork/tune]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from undo" -l bpffs -d 'Where bpffs is, or is to be mounted [default: /sys/fs/bpf]' -r -f -a "(__fish_complete_directories)"
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from undo" -l all -d 'Undo all entries, the youngest first'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from undo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from help" -f -a "small-queues" -d 'Keep a device\'s queue short: no connection has more in it than a target time takes to send'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from help" -f -a "sink" -d 'Take what another host\'s `small-queues --load` sends, and throw it away'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show what is in force, since when, and what it touched'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from help" -f -a "undo" -d 'Set back what was changed'
complete -c uncork -n "__fish_uncork_using_subcommand tune; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand status" -l json -d 'Print a JSON array, one element a process'
complete -c uncork -n "__fish_uncork_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and not __fish_seen_subcommand_from server client help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and not __fish_seen_subcommand_from server client help" -f -a "server" -d 'Send segments, and time the ACK of each'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and not __fish_seen_subcommand_from server client help" -f -a "client" -d 'Receive what `uncork ack server` sends'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and not __fish_seen_subcommand_from server client help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -s b -d 'Bytes of each write' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -s s -d 'Microseconds to sleep after each write' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -s p -l port -d 'Port to listen on; 0 takes a free one and tells which' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -s r -d 'Bytes a second: sleep after a write for as long as the data is ahead of this rate' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -s S -d 'Bytes of the send buffer (SO_SNDBUF) [default: the system\'s]' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -s R -d 'Seconds to pause when SIGUSR1 comes, to the server or to the process of one connection' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -l reply -d 'Write only when the client asks (its --ask): N buffers for each request, each by a write of its own' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -l bind -d 'Listen on this address or host name only, instead of on all of IPv6 and IPv4' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -l connections -d 'End after this many connections' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -l late -d 'An ACK that takes so many milliseconds more than the round trip is late' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -s q -d 'Set TCP_QUICKACK on the server\'s own socket before each write'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -s D -d 'Set TCP_NODELAY: Nagle\'s algorithm does not hold writes back'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -l quiet -d 'Print no line for each segment, only the verdict'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -l json -d 'Print JSON objects, one a line'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from server" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -s b -d 'Bytes of each read; reads are repeated until so many have come, unless -L is given' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -s c -d 'Run on this CPU only' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -s p -l port -d 'Port of the server' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -s r -d 'Bytes of the receive buffer (SO_RCVBUF) [default: the system\'s]' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -s s -d 'Microseconds to sleep after each buffer that was read' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -s t -d 'Seconds to run' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -s L -d 'Set SO_RCVLOWAT, and read once a buffer however little comes' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -l quickack -d 'Set TCP_QUICKACK to this before each read [default: leave it alone]' -r -f -a "on\t''
off\t''"
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -l talk -d 'After the first read and 60 ms, send so many segments of one byte' -r
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -s d -d 'Debug: tell the time and the bytes of each read on standard error'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -l trace-quickack -d 'Print TCP_QUICKACK before and after each read'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -l ask -d 'Before each buffer, ask for it: send one byte. For a server with --reply'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -l json -d 'Print JSON objects, one a line'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from client" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from help" -f -a "server" -d 'Send segments, and time the ACK of each'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from help" -f -a "client" -d 'Receive what `uncork ack server` sends'
complete -c uncork -n "__fish_uncork_using_subcommand ack; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and not __fish_seen_subcommand_from nodelay tsq quickack kernels link help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and not __fish_seen_subcommand_from nodelay tsq quickack kernels link help" -f -a "nodelay" -d 'Measure what small writes cost, and what helps'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and not __fish_seen_subcommand_from nodelay tsq quickack kernels link help" -f -a "tsq" -d 'Measure what a bulk sender does to everybody behind it'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and not __fish_seen_subcommand_from nodelay tsq quickack kernels link help" -f -a "quickack" -d 'Measure when this kernel acknowledges what it receives'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and not __fish_seen_subcommand_from nodelay tsq quickack kernels link help" -f -a "kernels" -d 'Measure when other kernels acknowledge what they receive'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and not __fish_seen_subcommand_from nodelay tsq quickack kernels link help" -f -a "link" -d 'Join two network namespaces by a link with a delay, a rate and faults'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and not __fish_seen_subcommand_from nodelay tsq quickack kernels link help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from nodelay" -l html -d 'Write a page with plots, too' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from nodelay" -l quick -d 'Measure less, or less precisely, in less than 20 seconds'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from nodelay" -l json -d 'Print the result as JSON'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from nodelay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from tsq" -l congestion -d 'What sets the senders\' pace' -r -f -a "cubic\t''
bbr\t''"
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from tsq" -l html -d 'Write a page with plots, too' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from tsq" -l quick -d 'Measure less, or less precisely, in less than 20 seconds'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from tsq" -l json -d 'Print the result as JSON'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from tsq" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from quickack" -l html -d 'Write a page with plots, too' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from quickack" -l quick -d 'Measure less, or less precisely, in less than 20 seconds'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from quickack" -l json -d 'Print the result as JSON'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from quickack" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from kernels" -l limit -d 'How long a kernel may take to come up [default: 60s, emulated 300s]' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from kernels" -l html -d 'Write a page with plots, too' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from kernels" -l bisect -d 'The first kernel of an ordered list that differs from the first of all'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from kernels" -l quick -d '40 segments instead of 100 each: 4 seconds'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from kernels" -l emulate -d 'Do not use KVM, also where it may be used'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from kernels" -l json -d 'Print the result as JSON'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from kernels" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l delay -d 'From one end to the other: 0 to 10s' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l rate -d 'Bits a second, with k, M or G: 1k to 100G [default: no limit]' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l queue -d 'What may wait for the rate, in bytes; a frame that finds it full is lost' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l loss -d 'Share of frames that are lost: 0 to 1' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l reorder -d 'Share of frames that arrive late enough to be overtaken' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l late-by -d 'How much later those arrive' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l dup -d 'Share of frames that arrive twice' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l corrupt -d 'Share of frames in which a bit is turned' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l seed -d 'Where the dice start: the same number loses the same frames' -r
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -l json -d 'Print the counts as JSON'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from link" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "nodelay" -d 'Measure what small writes cost, and what helps'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "tsq" -d 'Measure what a bulk sender does to everybody behind it'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "quickack" -d 'Measure when this kernel acknowledges what it receives'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "kernels" -d 'Measure when other kernels acknowledge what they receive'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "link" -d 'Join two network namespaces by a link with a delay, a rate and faults'
complete -c uncork -n "__fish_uncork_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and not __fish_seen_subcommand_from serve connect start guard stat why help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and not __fish_seen_subcommand_from serve connect start guard stat why help" -f -a "serve" -d 'Serve echo, discard, chargen or HTTP on an address of the stack\'s own'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and not __fish_seen_subcommand_from serve connect start guard stat why help" -f -a "connect" -d 'Connect standard input and output to somebody, over the stack'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and not __fish_seen_subcommand_from serve connect start guard stat why help" -f -a "start" -d 'Start instances: stacks in processes of their own, for programs under `uncork run --stack=instance`'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and not __fish_seen_subcommand_from serve connect start guard stat why help" -f -a "guard" -d 'Be the guardian of programs under `uncork run --stack` whose users have no privilege (uncorkd)'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and not __fish_seen_subcommand_from serve connect start guard stat why help" -f -a "stat" -d 'Show each connection of a running stack, why it is not sending, and what stayed with the kernel'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and not __fish_seen_subcommand_from serve connect start guard stat why help" -f -a "why" -d 'Say why a socket of a program under `uncork run --stack` is on the stack, or the kernel\'s'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and not __fish_seen_subcommand_from serve connect start guard stat why help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l dev -d 'The network device: one that is there, the name of a TAP to be made, or a device of DPDK\'s with its arguments' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l port -d 'The port: 7 for echo, 9 for discard, 19 for chargen, 8080 for http unless it is given' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l body -d 'Octets of the body of / (http) [default: 602]' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l bytes -d 'Octets of /file (http) [default: 100000000]' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l addr -d 'An address of the stack with the length of its network\'s prefix; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l gateway -d 'A router to everybody who is in no network of --addr; one of each version of IP' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l driver -d 'How the device is used' -r -f -a "tap\t'A TAP; made if there is none of this name'
packet\t'A packet socket on a device that is there'
xdp\t'Sockets of AF_XDP on a device that is there, one for each of its queues'
dpdk\t'A device of DPDK\'s, such as net_af_packet0,iface=eth0; for an uncork that was built with it'"
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l host -d 'An address that the kernel\'s end of the TAP gets, with its prefix; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l mtu -d 'MTU of the TAP, or of a device of DPDK\'s that is none of the kernel\'s' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l spin -d 'How long to go on looking, after the last frame, before sleeping' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l moderation -d 'For how long what has come may wait for more, when many requests come: off or 10us to 1ms' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l small-queue -d 'How much of one connection may be in the device\'s queue' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l record -d 'Write what passes into a capture (pcapng)' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l socket -d 'Where `uncork stack stat` can ask, instead of the usual place' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l grace -d 'How long connections may take to end after Ctrl-C, before they are reset' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -l kernel -d 'Serve on kernel sockets instead, with epoll, to compare with; --addr is an address of this host'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l dev -d 'The network device: one that is there, the name of a TAP to be made, or a device of DPDK\'s with its arguments' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l addr -d 'An address of the stack with the length of its network\'s prefix; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l gateway -d 'A router to everybody who is in no network of --addr; one of each version of IP' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l driver -d 'How the device is used' -r -f -a "tap\t'A TAP; made if there is none of this name'
packet\t'A packet socket on a device that is there'
xdp\t'Sockets of AF_XDP on a device that is there, one for each of its queues'
dpdk\t'A device of DPDK\'s, such as net_af_packet0,iface=eth0; for an uncork that was built with it'"
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l host -d 'An address that the kernel\'s end of the TAP gets, with its prefix; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l mtu -d 'MTU of the TAP, or of a device of DPDK\'s that is none of the kernel\'s' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l spin -d 'How long to go on looking, after the last frame, before sleeping' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l moderation -d 'For how long what has come may wait for more, when many requests come: off or 10us to 1ms' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l small-queue -d 'How much of one connection may be in the device\'s queue' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l record -d 'Write what passes into a capture (pcapng)' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l socket -d 'Where `uncork stack stat` can ask, instead of the usual place' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -l grace -d 'How long connections may take to end after Ctrl-C, before they are reset' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from connect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l name -d 'What this is called, if there are others beside it [default: default]' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l dev -d 'A network device; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l port -d 'A port that programs may listen on with the stack; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l group -d 'A group whose users may run programs with it, besides root' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l instances -d 'How many instances there are [default: 1]' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l cpus -d 'The processors of the instances, such as 2,4-6: the first is the first one\'s' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l spin -d 'How long an instance goes on looking, after the last frame, before it sleeps' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l moderation -d 'For how long what has come may wait for more, when many requests come: off or 10us to 1ms' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l small-queue -d 'How much of one connection may be in the device\'s queue' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l driver -d 'How instances get their frames' -r -f -a "packet\t''
xdp\t''"
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -l config -d 'A file with what is not said here' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from guard" -l name -d 'What this is called, if there are others beside it [default: default]' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from guard" -l dev -d 'A network device; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from guard" -l port -d 'A port that programs may listen on with the stack; may be repeated' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from guard" -l group -d 'A group whose users may run programs with it, besides root' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from guard" -l driver -d 'How programs get their frames' -r -f -a "packet\t''
xdp\t''"
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from guard" -l queues -d 'How many queues of each device a process takes with --driver=xdp, if they are free; no more than there are [default: 1]' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from guard" -l user-memory -d 'How much of the kernel\'s memory packet sockets of one user\'s programs may take, in MiB' -r
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from guard" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from stat" -l socket -d 'Where it can be asked, if it was started with --socket' -r -F
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from stat" -l json -d 'Print JSON'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from why" -l json -d 'Print JSON'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from why" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from help" -f -a "serve" -d 'Serve echo, discard, chargen or HTTP on an address of the stack\'s own'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from help" -f -a "connect" -d 'Connect standard input and output to somebody, over the stack'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from help" -f -a "start" -d 'Start instances: stacks in processes of their own, for programs under `uncork run --stack=instance`'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from help" -f -a "guard" -d 'Be the guardian of programs under `uncork run --stack` whose users have no privilege (uncorkd)'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show each connection of a running stack, why it is not sending, and what stayed with the kernel'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from help" -f -a "why" -d 'Say why a socket of a program under `uncork run --stack` is on the stack, or the kernel\'s'
complete -c uncork -n "__fish_uncork_using_subcommand stack; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand library" -s h -l help -d 'Print help'
complete -c uncork -n "__fish_uncork_using_subcommand help; and not __fish_seen_subcommand_from run doctor tune status ack lab stack library help" -f -a "run" -d 'Run a program with its small TCP writes coalesced'
complete -c uncork -n "__fish_uncork_using_subcommand help; and not __fish_seen_subcommand_from run doctor tune status ack lab stack library help" -f -a "doctor" -d 'Find stalls in TCP connections: who held the bytes, who held the ACK, what cures it'
complete -c uncork -n "__fish_uncork_using_subcommand help; and not __fish_seen_subcommand_from run doctor tune status ack lab stack library help" -f -a "tune" -d 'Set TCP options of running programs\' connections, and take it all back'
complete -c uncork -n "__fish_uncork_using_subcommand help; and not __fish_seen_subcommand_from run doctor tune status ack lab stack library help" -f -a "status" -d 'Show whether the library is in a process, and its sockets'
complete -c uncork -n "__fish_uncork_using_subcommand help; and not __fish_seen_subcommand_from run doctor tune status ack lab stack library help" -f -a "ack" -d 'Watch when a receiver acknowledges: the delayed-ACK experiment'
complete -c uncork -n "__fish_uncork_using_subcommand help; and not __fish_seen_subcommand_from run doctor tune status ack lab stack library help" -f -a "lab" -d 'Run the experiments that show what TCP\'s queues and timers do'
complete -c uncork -n "__fish_uncork_using_subcommand help; and not __fish_seen_subcommand_from run doctor tune status ack lab stack library help" -f -a "stack" -d 'Serve on a TCP stack in user space, keep instances and guardians for programs, and see what stacks do'
complete -c uncork -n "__fish_uncork_using_subcommand help; and not __fish_seen_subcommand_from run doctor tune status ack lab stack library help" -f -a "library" -d 'Print the path of the library, for LD_PRELOAD by hand'
complete -c uncork -n "__fish_uncork_using_subcommand help; and not __fish_seen_subcommand_from run doctor tune status ack lab stack library help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from tune" -f -a "small-queues" -d 'Keep a device\'s queue short: no connection has more in it than a target time takes to send'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from tune" -f -a "sink" -d 'Take what another host\'s `small-queues --load` sends, and throw it away'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from tune" -f -a "list" -d 'Show what is in force, since when, and what it touched'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from tune" -f -a "undo" -d 'Set back what was changed'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from ack" -f -a "server" -d 'Send segments, and time the ACK of each'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from ack" -f -a "client" -d 'Receive what `uncork ack server` sends'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "nodelay" -d 'Measure what small writes cost, and what helps'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "tsq" -d 'Measure what a bulk sender does to everybody behind it'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "quickack" -d 'Measure when this kernel acknowledges what it receives'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "kernels" -d 'Measure when other kernels acknowledge what they receive'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "link" -d 'Join two network namespaces by a link with a delay, a rate and faults'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from stack" -f -a "serve" -d 'Serve echo, discard, chargen or HTTP on an address of the stack\'s own'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from stack" -f -a "connect" -d 'Connect standard input and output to somebody, over the stack'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from stack" -f -a "start" -d 'Start instances: stacks in processes of their own, for programs under `uncork run --stack=instance`'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from stack" -f -a "guard" -d 'Be the guardian of programs under `uncork run --stack` whose users have no privilege (uncorkd)'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from stack" -f -a "stat" -d 'Show each connection of a running stack, why it is not sending, and what stayed with the kernel'
complete -c uncork -n "__fish_uncork_using_subcommand help; and __fish_seen_subcommand_from stack" -f -a "why" -d 'Say why a socket of a program under `uncork run --stack` is on the stack, or the kernel\'s'

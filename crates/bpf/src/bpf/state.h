/*
 * What is kept for each traced socket, and what is reported to user space. crates/bpf/src/record.rs
 * reads these structures byte by byte and must be changed with them. All members are aligned
 * to their own size, and all padding is named.
 */
#pragma once

/* Steps of the histogram of times: four for each power of two, 19 % wide. */
#define TIMES 112
/* Steps of the histogram of sizes: one for each power of two. */
#define SIZES 20

/* How a socket came to be traced. */
enum {
	OPENED = 1,	/* a traced process got its descriptor from socket() */
	ACCEPTED = 2,	/* … or from accept() */
	FOUND = 3,	/* it was there when tracing began */
	PEER = 4,	/* the other end of a traced connection, on this host */
};

/* Why bytes were not sent when they were written. */
enum {
	FREE = 0,
	NAGLE = 1,
	CORKED = 2,	/* TCP_CORK */
	MORE = 3,	/* MSG_MORE, or sendfile with more to come */
	SHUT = 4,	/* the receiver's window */
	LONE = 5,	/* the congestion window takes one segment, and that is in flight */
};

/* What released them. */
enum {
	BY_ACK = 1,
	BY_WRITE = 2,	/* a later write filled the segment, or was not corked */
	BY_OPTION = 3,	/* setsockopt: TCP_NODELAY set, TCP_CORK cleared */
	BY_TIMER = 4,	/* the probe timer: a corked tail's 200 ms */
	BY_END = 5,	/* the connection ended first */
};

enum {
	EVENT_HELD = 1,
	EVENT_ACK_TIMER = 2,
	EVENT_LOST = 3,
	EVENT_SOCKET = 4,
	EVENT_PROGRAM = 5,
	EVENT_STACK = 6,
};

struct tuple {
	__u32 local[4];		/* IPv4 in the first word; network byte order */
	__u32 remote[4];
	__u16 local_port;	/* host byte order */
	__u16 remote_port;
	__u16 family;
	__u16 pad;
};

struct who {
	__u32 pid;
	__u32 tid;
	char comm[16];
};

struct options {
	__u64 nodelay_on_ns;	/* when TCP_NODELAY was last set to 1; 0: never seen */
	__u64 nodelay_off_ns;
	__u32 nodelay_calls;
	__u32 cork_calls;
	__u32 quickack_calls;
	__u32 pushes;		/* those that release held bytes: NODELAY on, CORK off */
	__u64 pushed_ns;	/* the last of them */
	/* Attempts to set TCP_NODELAY that had no effect on this socket. */
	__u32 wrong_level;	/* the level that was given instead of IPPROTO_TCP; 0: none */
	__u32 wrong_length;	/* one more than the length of a value that was too short */
	__u32 elsewhere;	/* the process set it on another socket: what kind */
	__u32 pad;
};

/* Sockets on which TCP_NODELAY has no effect on existing connections. */
enum {
	ON_LISTENER = 1,	/* of the same port; connections that it accepts later inherit it */
	ON_NO_TCP = 2,		/* UDP, Unix … */
};

/* The kernel's own counters, less their values when tracing began. */
struct counters {
	__u64 bytes_sent;
	__u64 bytes_received;
	__u64 bytes_retransmitted;
	__u32 data_segments_out;
	__u32 data_segments_in;
	__u32 retransmissions;
	__u32 window_limited_us;
	__u32 buffer_limited_us;
	__u32 busy_us;
};

/* A retransmitted segment. */
struct again {
	__u64 at_ns;
	__u64 waited_ns;	/* since it was last sent before */
	__u32 bytes;
	__u32 ca_state;
	__u32 timeouts;		/* in a row */
	__u32 shut;		/* it was beyond the receiver's window */
};

struct track {
	__u64 cookie;
	struct tuple tuple;
	struct who owner;
	struct who writer;
	__u64 inode;
	__s32 fd;
	__u32 origin;
	__u64 since_ns;
	__u64 last_ns;		/* when it was last written to */
	__u64 came_ns;		/* when data last came; 0: not seen */
	__u64 writer_id;	/* the last thread that wrote, by the kernel's own numbers */
	struct counters base;	/* in the record: what has been added since */
	struct options options;

	/* The message that is being written. */
	__u64 message_ns;	/* its first write */
	__u32 copied_seq;	/* what had been read at the last write */
	__u32 message_seq;
	__u32 message_segments;
	__u32 message_writes;
	__u32 message_open;
	__u32 more;		/* the last write said that more would come */

	/* Held bytes. */
	__u64 held_ns;		/* since when; 0: none are held */
	__u32 held_seq;		/* first octet that is held */
	__u32 held_why;
	__u32 held_begun;	/* writes begun and options that push by the time it began */
	__u32 held_pushes;
	__u64 held_stack;	/* the place of the write; 0: unknown */
	__u32 held_outstanding;	/* octets in flight then */
	__u32 shut_seq;		/* up to here it was sent into a window that was shut */

	/* Totals. */
	__u64 begun;		/* writes, or parts of them */
	__u64 writes;
	__u64 written_bytes;
	__u64 messages;
	__u64 message_bytes;
	__u64 message_segments_sum;
	__u64 message_writes_sum;
	__u64 turns;		/* messages that answered one */
	__u64 turn_ns;		/* from its arrival to the first write of the answer */
	__u64 turn_max_ns;
	__u64 waits;		/* messages that were answered */
	__u64 wait_ns;		/* from its first write to the answer's last segment */
	__u64 wait_max_ns;
	__u64 writing_ns;	/* from first to last write of each message */
	__u64 held_short;	/* holds that were too short for an event */
	__u64 held_short_ns;
	__u64 queue_samples;	/* writes that left bytes unsent for want of room on the path */
	__u64 queue_rtt_us;	/* smoothed round trip then, summed */
	__u64 queue_bytes;	/* unsent then, summed */
	__u32 queue_rtt_max_us;
	__u32 queue_bytes_max;
	__u64 awaited_ack_ns;	/* late ACKs of ours that the other end waited for */
	__u32 awaited_acks;
	__u32 needless;		/* of the retransmitted segments: those that were not lost */

	struct again probe;	/* not yet known whether it was needed; at_ns 0: none */

	/* The kernel's values, filled in when the record is made. */
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u32 mss;
	__u32 nonagle;
	__u32 probe_duplicates;	/* duplicates that the receiver had reported before it */
	__u32 pad;
	__u32 ack_timers;	/* times that the delayed-ACK timer expired and sent an ACK */
	__u32 state;
	__u32 turn_times[TIMES];
	__u32 wait_times[TIMES];
	__u64 turn_sums[TIMES];		/* ns, of those in the same step */
	__u64 wait_sums[TIMES];
	__u32 size_count[SIZES];	/* messages by length, powers of two */
	__u32 segment_count[SIZES];	/* messages by segments, powers of two */
	__u64 size_sum[SIZES];
	__u64 segment_sum[SIZES];
};

struct event_held {
	__u32 type;
	__u32 why;
	__u64 cookie;
	struct tuple tuple;
	struct who writer;
	__u64 inode;
	__u64 begin_ns;
	__u64 end_ns;
	__u64 message_ns;	/* first write of the message */
	__u64 offset;		/* of the first octet that waited, in the stream */
	__u32 released;
	__u32 bytes;		/* that waited */
	__u32 outstanding;	/* octets in flight when it began */
	__u32 before;		/* octets of the same message that were sent before */
	__u32 mss;
	__u32 nonagle;
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u64 stack;
};

struct event_ack_timer {
	__u32 type;
	__u32 pad;
	__u64 cookie;
	struct tuple tuple;
	__u64 inode;
	__u64 at_ns;
	__u64 held_ns;		/* since the last segment came */
	__u64 offset;		/* in the stream, of what is acknowledged */
	__u32 bytes;		/* that it acknowledges */
	__u32 segments_in;	/* data segments received so far */
	__u32 quick;		/* quick-ACK credits left */
	__u32 pingpong;
	__u32 peer;		/* 0, or 1 if only the other end is traced */
	__u32 pad2;
};

struct event_lost {
	__u32 type;
	__u32 ca_state;
	__u64 cookie;
	struct tuple tuple;
	__u64 at_ns;
	__u64 waited_ns;	/* since the segment was last sent */
	__u32 bytes;
	__u32 timeouts;		/* in a row */
	__u32 shut;		/* it was beyond the receiver's window */
	__u32 srtt_us;
};

/* A process has begun to execute a program. */
#define ARGUMENTS 2048
struct event_program {
	__u32 type;
	__u32 pid;
	__u32 bytes;		/* of what follows: the arguments, each with its NUL */
	__u32 pad;
	char arguments[ARGUMENTS];
};

/* Where a write was made: the data for unwinding its stack. */
#define STACK 32768
#define STACK_PART 1024
struct event_stack {
	__u32 type;
	__u32 pid;
	__u64 stack;		/* its number */
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u64 lr;		/* where the machine has such a register */
	__u64 bytes;		/* of what follows, from sp upwards */
	char copy[STACK];
};

/* A socket's record, which the iterator also writes. */
struct event_socket {
	__u32 type;
	__u32 pad;
	__u64 at_ns;
	struct track track;
};

/* Written by user space before the programs are loaded. */
const volatile __u64 min_held_ns = 1000000;
const volatile bool want_stacks = false;
/* After a pause of this length a writer begins a new message. */
const volatile __u64 pause_ns = 5000000;
/* Whether writes are seen before their bytes are sent. */
const volatile bool see_begin = true;
/* Whether the arrival of data is seen. */
const volatile bool see_data = true;
/* The PID namespace that user space's numbers are of; 0: the initial one. */
const volatile __u32 pid_namespace = 0;

/* Ticks in a second; 0 if the kernel does not reveal its configuration. */
extern int CONFIG_HZ __kconfig __weak;

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct track);
} tracks SEC(".maps");

/* Traced connections by their addresses: so that the other end is recognised when it turns up, and
 * this one where only the socket's address is known. */
struct connection {
	__u64 cookie;
	__u64 ack_timer_ns;	/* when the timer last sent an ACK */
	__u32 ack_held_us;	/* and how long that had been held */
	__u32 ack_timers;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct tuple);
	__type(value, struct connection);
} connections SEC(".maps");

/* Ports on which traced processes listen, and the processes. */
struct port {
	__u32 namespace;
	__u32 port;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct port);
	__type(value, struct who);
} listeners SEC(".maps");

/* Traced processes; CHILDREN_ONLY for uncork itself, which starts the program. */
enum { WHOLE = 1, CHILDREN_ONLY = 2 };
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} scope SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 * 1024 * 1024);
} events SEC(".maps");

/* TCP_NODELAY without effect, by process. */
struct astray {
	__u64 at_ns;
	__u32 where;
	__u32 port;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct astray);
} nodelay_astray SEC(".maps");

/* Set while TCP's write timer runs on this processor: it ends corks, and retransmits. */
struct sending {
	__u64 first_sent_ns;	/* when the first unacknowledged segment had been sent */
	__u32 runs;
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sending);
} write_timer SEC(".maps");

/* Number of sockets that hold something back: while it is 0, the programs on every segment's path
 * return at once. Then the events that found no room. */
__u64 holding = 0;
__u64 dropped = 0;
/* Sockets that could not be traced for want of memory. */
__u64 refused = 0;
/* When the timer last sent an ACK of a traced connection. */
__u64 last_ack_timer_ns = 0;
/* The kernel's functions for TCP's timers, learnt from the first socket that is met. */
__u64 ack_function = 0;
__u64 write_function = 0;

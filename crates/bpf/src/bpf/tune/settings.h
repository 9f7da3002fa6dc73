/*
 * What is to be set on which sockets, and what is kept of it. crates/bpf/src/tune reads and writes
 * these structures byte by byte: a change here is a change there. Sockets keep theirs while
 * programs of another version come and go: a change of `kept` needs another name of the map.
 */
#pragma once

/* linux/tcp.h, asm-generic/socket.h */
enum { SOL_SOCKET = 1, SOL_TCP = 6 };
enum {
	TCP_NODELAY = 1,
	TCP_CONGESTION = 13,
	TCP_NOTSENT_LOWAT = 25,
	SO_MAX_PACING_RATE = 47,
	TCP_BPF_DELACK_MAX = 1003,
	TCP_BPF_RTO_MIN = 1004,
};

/* net/tcp.h: a bit of tcp_sock's nonagle */
enum { TCP_NAGLE_OFF = 1 };

/* The options, as they are numbered in every table here. */
enum { NODELAY, DELACK_MAX, NOTSENT_LOWAT, RTO_MIN, PACING, CONGESTION, OPTIONS };

/* A number in the first four octets, or the name of a congestion control (TCP_CA_NAME_MAX). */
struct value {
	__u64 words[2];
};

/* One option of one socket that was set by an entry of the journal. */
struct claim {
	__u32 entry;		/* 0: nobody's */
	__u32 asked;		/* the program has asked for a value of its own since */
	struct value before;	/* what undoing sets: the program's own wish */
	struct value after;	/* what was set, as the kernel tells it afterwards */
};

struct kept {
	struct claim options[OPTIONS];
};

/* What is kept of a new connection; another's as soon as that has ended. */
struct slot {
	__u64 cookie;		/* whose it is */
	__u64 socket;		/* its address, only to be looked at where the cookie is still its own */
	struct kept kept;
};

const volatile struct settings {
	__u64 netns_cookie;	/* 0: any */
	__u64 cgroup_id;	/* 0: any */
	__u32 entry;
	__u32 options;		/* a bit for each */
	struct value values[OPTIONS];
	__u32 peer[4];		/* an IPv4 address in the last word, as in ::ffff:10.0.0.1 */
	__u32 peer_mask[4];	/* all zero: any */
	__u16 port;		/* at either end; 0: any */
	__u8 by_process;	/* only sockets that have a tag */
	__u8 looser_only;	/* what is tighter already stays so */
	__u32 root;		/* the process at the root of the tree … */
	__u32 pid_namespace;	/* … as it is called in this namespace */
	__u32 device;		/* over which its route leads; 0: any */
} settings = {};

/* How it went with an option, in numbers of sockets. */
struct outcome {
	__u64 set;		/* or set back */
	__u64 already;		/* it was so before, or tighter */
	__u64 others;		/* claimed by another entry; undoing: changed by somebody since */
	__u64 refused;
	__u64 unrestorable;	/* the kernel would not take the old value back: left alone */
	__s64 error;		/* of the last that was refused */
};

/* Shared by all entries, and pinned: what sockets were before. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct kept);
} sockets SEC(".maps");

/*
 * The same of connections that were met when they were established, in the slot that their address
 * names; what tells them from others that were there before or come later is the cookie, which is
 * not given twice. Most of them end soon, and what the memory of a socket costs, which is allocated
 * for each and freed after a grace period of RCU, is more than all else here. Those whose slot is
 * taken have it in `sockets`.
 */
#define SLOTS_BITS 13
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SLOTS_BITS);
	__type(key, __u32);
	__type(value, struct slot);
} born SEC(".maps");

/* Sockets of the processes that are meant. What a listener accepts inherits it. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, __u32);
} tags SEC(".maps");

/* The processes that are meant: ids as the kernel's first PID namespace has them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OPTIONS);
	__type(key, __u32);
	__type(value, struct outcome);
} outcomes SEC(".maps");

/* Ticks in a second; 0 if the kernel does not tell how it was configured. */
extern int CONFIG_HZ __kconfig __weak;

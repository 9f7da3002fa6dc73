/*
 * The options to set, the sockets to set them on, and their former values. crates/bpf/src/tune reads and
 * writes these structures byte by byte and must be changed with them. Sockets keep their values while
 * programs of other versions come and go: a change of `kept` needs a new name of the map.
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

/* The options, as numbered in every table here. */
enum { NODELAY, DELACK_MAX, NOTSENT_LOWAT, RTO_MIN, PACING, CONGESTION, OPTIONS };

/* A number in the first four octets, or the name of a congestion control (TCP_CA_NAME_MAX). */
struct value {
	__u64 words[2];
};

/* One option of one socket that was set by an entry of the journal. */
struct claim {
	__u32 entry;		/* 0: none */
	__u32 asked;		/* the program has since set a value of its own */
	struct value before;	/* the value to restore: the program's own wish */
	struct value after;	/* the value that was set, as the kernel reports it */
};

struct kept {
	struct claim options[OPTIONS];
};

/* A new connection's former values; reused by another as soon as that has ended. */
struct slot {
	__u64 cookie;		/* of the owner */
	__u64 socket;		/* its address, only to be followed while the cookie there is still its own */
	struct kept kept;
};

const volatile struct settings {
	__u64 netns_cookie;	/* 0: any */
	__u64 cgroup_id;	/* 0: any */
	__u32 entry;
	__u32 options;		/* one bit for each */
	struct value values[OPTIONS];
	__u32 peer[4];		/* an IPv4 address in the last word, as in ::ffff:10.0.0.1 */
	__u32 peer_mask[4];	/* all zero: any */
	__u16 port;		/* at either end; 0: any */
	__u8 by_process;	/* only tagged sockets */
	__u8 looser_only;	/* tighter limits are left */
	__u32 root;		/* the process at the root of the tree … */
	__u32 pid_namespace;	/* … by its number in this namespace */
	__u32 device;		/* of its route; 0: any */
} settings = {};

/* Results for an option, as numbers of sockets. */
struct outcome {
	__u64 set;		/* or restored */
	__u64 already;		/* it had the value before, or a tighter one */
	__u64 others;		/* claimed by another entry; undoing: changed by somebody since */
	__u64 refused;
	__u64 unrestorable;	/* the kernel would not accept the old value again: left alone */
	__s64 error;		/* the last refusal's */
};

/* Former values of sockets; pinned, and shared by all entries. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct kept);
} sockets SEC(".maps");

/*
 * The same for connections that were caught when they were established, in the slot for their address;
 * the cookie, which is never reused, distinguishes them from earlier and later sockets at
 * that address. Most of them end soon, and a socket's own storage, which is allocated
 * for each and freed after an RCU grace period, costs more than all else here. A connection whose slot
 * is taken has its values in `sockets`.
 */
#define SLOTS_BITS 13
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SLOTS_BITS);
	__type(key, __u32);
	__type(value, struct slot);
} born SEC(".maps");

/* Sockets of the selected processes. Connections that a listener accepts inherit it. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, __u32);
} tags SEC(".maps");

/* The selected processes, by their ids in the initial PID namespace. */
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

/* Ticks in a second; 0 if the kernel does not reveal its configuration. */
extern int CONFIG_HZ __kconfig __weak;

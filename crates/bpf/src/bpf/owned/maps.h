/*
 * What is a stack's: whole addresses, ports, connections. Keys and values are written by user space: no
 * hole may be in them. An engine is one process's stack; a connection goes before a port.
 */
#pragma once

#define ADDRESSES 1024
#define HOSTS 16384
#define LISTENERS 16384
/* Memory is taken for those that there are. */
#define CONNECTIONS (4 << 20)
#define STANDING 65536
/* Memory is taken for all. */
#define BEGUN 16384

/* In place of an engine's number. */
#define KERNEL 0
/* Likewise: whichever it is. */
#define ANYONE 0xffffffff
/*
 * Beside the engine of a connection: it has come to a port, and is the engine's for as long as that, or its user, has the port.
 * After that it gives way to who begins anew with these ends. Alone: it has.
 */
#define CAME 0x80000000
/* Engines of a port. */
#define MEMBERS 64

/* In place of a device's number, where the host's own addresses are not known: nothing is asked. */
#define ANYWHERE 0
/* Likewise: whichever it is, as several have the address. */
#define OUTSIDE 0xffffffff

/* Where a port may get other engines: whose each connection is, is written down when it begins. */
#define SHARED 1
/* The engines have changed a short while ago: what is written down counts. */
#define CHANGED 2

struct members {
	/* None: the kernel has what begins now, and they what had begun with them. */
	__u32 count;
	/* One of the above, or none: there will be no others. */
	__u32 state;
	/* Which has the address, or one of the above: what comes by another one is the kernel's. */
	__u32 device;
	__u32 engines[MEMBERS];
};

struct listener {
	struct address local;
	__be16 port;
	__u8 protocol;
	__u8 unused;
};

struct standing {
	struct listener listener;
	__u32 engine;
};

struct connection {
	struct address local;
	struct address remote;
	__be16 local_port;
	__be16 remote_port;
	__u8 protocol;
	__u8 unused[3];
};

/*
 * How many entries there are of what most stacks have none of: a frame is not looked for where nothing can be, which
 * takes a third of the time that it takes a program.
 */
struct counts {
	__u32 addresses;
	__u32 connections;
	/* Listeners at one address; one that is at any is not counted. */
	__u32 at_addresses;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ADDRESSES);
	__type(key, struct address);
	__type(value, __u32);
} addresses SEC(".maps");

/* The host's own, each with the number of its device, or OUTSIDE: nobody comes from there over a wire. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, HOSTS);
	__type(key, struct address);
	__type(value, __u32);
} hosts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, LISTENERS);
	__type(key, struct listener);
	__type(value, struct members);
} listeners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CONNECTIONS);
	__type(key, struct connection);
	__type(value, __u32);
} connections SEC(".maps");

/* In place of nothing: the engine has the port no more, and its user has. */
#define LEFT 1

/* Each engine of each port once more, for who looks for one: to go through them is more than the verifier allows. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, STANDING);
	__type(key, struct standing);
	__type(value, __u32);
} standing SEC(".maps");

/*
 * Whose the connections are that have begun with a SYN while a port's engines may change. Between a SYN and the engine that it is
 * for is the engine's ring, and between one for the kernel and its socket is the kernel's way: until then no table has them.
 */
struct begun {
	__u32 engine;
	/* When that was decided, of a clock that begins anew every seven weeks. */
	__u32 millis;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, BEGUN);
	__type(key, struct connection);
	__type(value, struct begun);
} begun SEC(".maps");

/* linux/futex.h: set by the kernel when the thread that holds the futex ends, however it does. */
#define FUTEX_OWNER_DIED 0x40000000

/*
 * Held by who answers for all of this, as long as he lives. The kernel says here that he has ended before it closes the
 * first of his descriptors: before the filters are detached, and before anybody else can hear of his end.
 */
struct life {
	__u32 futex;
	/* What libc has beside it. */
	__u32 rest[15];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	/* The futex is in memory of his process. */
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct life);
} life SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

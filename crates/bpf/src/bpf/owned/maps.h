/*
 * What a stack owns: whole addresses, ports, connections. Keys and values are written by user space, so they must have no
 * padding. An engine is one process's stack; a connection takes precedence over a port.
 */
#pragma once

#define ADDRESSES 1024
#define HOSTS 16384
#define LISTENERS 16384
/* Memory is allocated for existing entries only. */
#define CONNECTIONS (4 << 20)
#define STANDING 65536
/* Memory is allocated for all entries. */
#define BEGUN 16384

/* Instead of an engine's number. */
#define KERNEL 0
/* Instead of an engine's number: any engine. */
#define ANYONE 0xffffffff
/*
 * A flag beside the engine of a connection: it came to a port, and is the engine's for as long as the engine, or its user, has
 * the port. After that it gives way to a new connection with the same ends. The flag alone: it has given way.
 */
#define CAME 0x80000000
/* Most engines of a port. */
#define MEMBERS 64

/* Instead of a device's index, where the host's own addresses are not known: nothing is checked. */
#define ANYWHERE 0
/* Instead of a device's index: any device, as several have the address. */
#define OUTSIDE 0xffffffff

/* The port may get other engines: the owner of each connection is recorded when it begins. */
#define SHARED 1
/* The engines have changed a short while ago: recorded owners count. */
#define CHANGED 2

struct members {
	/* 0: connections that begin now are the kernel's; those that began before stay with their engines. */
	__u32 count;
	/* SHARED, CHANGED, or 0: there will be no other engines. */
	__u32 state;
	/* The device that has the address, or ANYWHERE or OUTSIDE: packets that come by another device are the kernel's. */
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
 * Numbers of entries of kinds that most stacks have none of: a frame is not looked up where there are no entries, which
 * saves a third of a program's time.
 */
struct counts {
	__u32 addresses;
	__u32 connections;
	/* Listeners at one address; those at any address are not counted. */
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

/* The host's own addresses, each with the index of its device, or OUTSIDE: nobody sends from there over a wire. */
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

/* The owner of a connection. */
struct entered {
	/* An engine, perhaps with CAME, or KERNEL. */
	__u32 engine;
	/* The device that has the local address, or ANYWHERE or OUTSIDE: packets that come by another device are the kernel's. */
	__u32 device;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CONNECTIONS);
	__type(key, struct connection);
	__type(value, struct entered);
} connections SEC(".maps");

/* Instead of 0: the engine no longer has the port, but its user has. */
#define LEFT 1

/* Each engine of each port once more, for direct look-ups: a loop over the members is more than the verifier allows. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, STANDING);
	__type(key, struct standing);
	__type(value, __u32);
} standing SEC(".maps");

/*
 * The owners of connections that have begun with a SYN while a port's engines may change. A SYN for an engine waits in that
 * engine's ring, and one for the kernel has yet to reach its socket: until then no other table has the connection.
 */
struct begun {
	__u32 engine;
	/* When that was decided, by a clock that wraps every seven weeks. */
	__u32 millis;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, BEGUN);
	__type(key, struct connection);
	__type(value, struct begun);
} begun SEC(".maps");

/* linux/futex.h: set by the kernel when the thread that holds the futex ends, in whatever way. */
#define FUTEX_OWNER_DIED 0x40000000

/*
 * A robust futex, held by the thread that answers for all maps for as long as it lives. When that thread ends the kernel marks
 * it, before it closes the first of its descriptors: before the filters are detached, and before anybody can hear of the end.
 */
struct life {
	__u32 futex;
	/* The rest of libc's mutex. */
	__u32 rest[15];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	/* The futex is in memory that its holder's process has mapped. */
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

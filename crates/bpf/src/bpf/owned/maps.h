/*
 * What is a stack's: whole addresses, ports, connections. Keys and values are written by user space: no
 * hole may be in them. An engine is one process's stack; a connection goes before a port.
 */
#pragma once

#define ADDRESSES 1024
#define LISTENERS 16384
/* Memory is taken for those that there are. */
#define CONNECTIONS (4 << 20)

/* In place of an engine's number. */
#define KERNEL 0
/* Engines of a port. */
#define MEMBERS 64

struct members {
	__u32 count;
	__u32 engines[MEMBERS];
};

struct listener {
	struct address local;
	__be16 port;
	__u8 protocol;
	__u8 unused;
};

struct connection {
	struct address local;
	struct address remote;
	__be16 local_port;
	__be16 remote_port;
	__u8 protocol;
	__u8 unused[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ADDRESSES);
	__type(key, struct address);
	__type(value, __u32);
} addresses SEC(".maps");

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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

/* The sockets of AF_XDP, by queue. As many as the device has queues: said when it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

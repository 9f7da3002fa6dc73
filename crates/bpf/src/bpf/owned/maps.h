/*
 * What is the stack's: whole addresses, ports, connections. Keys are written by user space: no hole
 * may be in them.
 */
#pragma once

#define ADDRESSES 1024
#define LISTENERS 16384
/* Memory is taken for those that there are. */
#define CONNECTIONS (4 << 20)

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
	__type(value, __u8);
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, LISTENERS);
	__type(key, struct listener);
	__type(value, __u8);
} listeners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CONNECTIONS);
	__type(key, struct connection);
	__type(value, __u8);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

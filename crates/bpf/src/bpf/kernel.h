/*
 * The kernel's structures, as far as the programs use them. Only names and types of members
 * matter: their offsets are filled in from the running kernel's own type information when a
 * program is loaded, so this header fits every kernel that has members of these names.
 */
#pragma once

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __le16;
typedef __u32 __le32;
typedef __u64 __le64;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

/* linux/bpf.h: types of maps, and flags of their calls. Part of the kernel's stable interface. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_F_NO_PREALLOC = 1, BPF_F_CLONE = 1 << 9, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_ANY = 0 };
enum { BPF_SK_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1 };

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define SOCK_STREAM 1

/* net/tcp_states.h */
enum {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT = 2,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
	TCP_LISTEN = 10,
	TCP_CLOSING = 11,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
};

typedef struct {
	long long counter;
} atomic64_t;

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	possible_net_t skc_net;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
	refcount_t skc_refcnt;
};

struct sock;

struct file;

struct socket {
	struct file *file;
	struct sock *sk;
};

struct inode {
	unsigned long i_ino;
};

/* net/sock.h: a socket, followed by its inode. */
struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct rb_node {
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct net_device {
	int ifindex;
};

struct dst_entry {
	struct net_device *dev;
};

struct sock {
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	struct sock_cgroup_data sk_cgrp_data;
	struct socket *sk_socket;
	struct rb_root tcp_rtx_queue;
	refcount_t sk_wmem_alloc;
	unsigned long sk_max_pacing_rate;
	__u32 sk_pacing_status;
	__u16 sk_protocol;
	__u16 sk_type;
};

struct inet_sock {
	struct sock sk;
};

struct timer_list {
	void (*function)(struct timer_list *);
};

struct tcp_congestion_ops {
	char name[16];
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	struct timer_list icsk_retransmit_timer;
	struct timer_list icsk_delack_timer;
	__u8 icsk_pending;
	__u32 icsk_rto_min;
	__u32 icsk_delack_max;
	__u8 icsk_ca_state : 5;
	__u8 icsk_retransmits;
	struct {
		__u8 pending;
		__u8 quick;
		__u8 pingpong;
		__u32 lrcvtime;
		__u16 rcv_mss;
	} icsk_ack;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_wnd;
	__u32 max_window;
	__u32 mss_cache;
	__u32 snd_cwnd;
	__u32 lost_out;
	__u32 sacked_out;
	__u32 retrans_out;
	__u32 copied_seq;
	struct minmax rtt_min;
	__u32 data_segs_out;
	__u64 bytes_sent;
	__u32 snd_sml;
	__u8 chrono_type : 2;
	__u32 chrono_start;
	__u32 chrono_stat[3];
	__u32 write_seq;
	__u8 nonagle : 4;
	__u32 notsent_lowat;
	__u64 tcp_mstamp;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 srtt_us;
	__u32 mdev_us;
	__u32 packets_out;
	__u64 bytes_received;
	__u32 data_segs_in;
	__u32 rcv_wup;
	__u64 bytes_acked;
	__u64 bytes_retrans;
	__u32 total_retrans;
	__u32 dsack_dups;
	struct {
		__u64 mstamp;
	} rack;
};

struct sk_buff {
	struct rb_node rbnode;
	struct sock *sk;
	__u64 skb_mstamp_ns;
	unsigned int len;
	char cb[48];
	__u8 ip_summed : 2;
	__u16 vlan_tci;
	__u16 transport_header;
	unsigned char *head;
	unsigned char *data;
};

/* net/xdp.h: the context of an XDP program; drivers/net/veth.c: the structure around it there. */
struct xdp_buff {
	void *data;
};

struct veth_xdp_buff {
	struct xdp_buff xdp;
	struct sk_buff *skb;
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
};

struct msghdr {
	unsigned int msg_flags;
};

struct signal_struct {
	atomic_t live;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

/* A task has a number in each namespace from the initial one down to its own. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct mm_struct {
	unsigned long start_code;
	unsigned long end_code;
	unsigned long arg_start;
	unsigned long arg_end;
};

/* The program's registers on entry to the kernel. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long bp;
	unsigned long ip;
	unsigned long sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
};
#else
struct pt_regs {
	unsigned long epc;
	unsigned long ra;
	unsigned long sp;
	unsigned long s0;
};
#endif

struct task_struct {
	int pid;
	int tgid;
	struct mm_struct *mm;
	struct pid *thread_pid;
	struct task_struct *real_parent;
	struct signal_struct *signal;
	struct task_struct *group_leader;
	char comm[16];
};

struct seq_file;
struct bpf_map;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

/* linux/bpf.h: a program's view of a socket, and of a call of setsockopt. */
struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port;
	__be16 dst_port;
	__u16 : 16;
	__u32 dst_ip4;
	__u32 dst_ip6[4];
	__u32 state;
};

struct bpf_sockopt {
	struct bpf_sock *sk;
	void *optval;
	void *optval_end;
	__s32 level;
	__s32 optname;
	__s32 optlen;
	__s32 retval;
};

/* linux/bpf.h: a program's view of an event of a connection, up to the last member that is used. */
enum { BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5 };

struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 family;
	__u32 addresses[10];
	__u32 ports[2];
	__u32 is_fullsock;
	__u32 numbers[23];
	__u64 bytes_received;
	__u64 bytes_acked;
	struct bpf_sock *sk;
};

_Static_assert(__builtin_offsetof(struct bpf_sock_ops, sk) == 184, "the kernel has it there");

/* linux/bpf.h: an XDP program's view of a frame. */
struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

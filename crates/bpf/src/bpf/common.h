/* Helpers that several programs share. */
#pragma once

static __always_inline bool before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

static __always_inline bool tcp(struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return sk->sk_protocol == IPPROTO_TCP && sk->sk_type == SOCK_STREAM &&
	       (family == AF_INET || family == AF_INET6);
}

/* Reads the members instead of dereferencing them: the socket may be known by its address alone. */
static __always_inline void addresses(struct tuple *tuple, const struct sock *sk)
{
	const struct sock_common *common = &sk->__sk_common;
	__be32 remote = BPF_CORE_READ(common, skc_daddr);

	__builtin_memset(tuple, 0, sizeof(*tuple));
	tuple->local_port = BPF_CORE_READ(common, skc_num);
	tuple->remote_port = bpf_ntohs(BPF_CORE_READ(common, skc_dport));
	/* An IPv4 connection of an IPv6 socket also has its IPv4 addresses here. */
	if (BPF_CORE_READ(common, skc_family) == AF_INET6 && remote == 0) {
		tuple->family = AF_INET6;
		BPF_CORE_READ_INTO(&tuple->local, common, skc_v6_rcv_saddr.in6_u.u6_addr32);
		BPF_CORE_READ_INTO(&tuple->remote, common, skc_v6_daddr.in6_u.u6_addr32);
		return;
	}
	tuple->family = AF_INET;
	tuple->local[0] = BPF_CORE_READ(common, skc_rcv_saddr);
	tuple->remote[0] = remote;
}

static __always_inline void turned(struct tuple *other, const struct tuple *tuple)
{
	__builtin_memset(other, 0, sizeof(*other));
	__builtin_memcpy(other->local, tuple->remote, sizeof(other->local));
	__builtin_memcpy(other->remote, tuple->local, sizeof(other->remote));
	other->local_port = tuple->remote_port;
	other->remote_port = tuple->local_port;
	other->family = tuple->family;
}

/* struct socket_alloc holds a socket and its inode. */
static __always_inline __u64 inode_of(const struct sock *sk)
{
	struct socket_alloc *behind = (void *)BPF_CORE_READ(sk, sk_socket);

	return behind ? BPF_CORE_READ(behind, vfs_inode.i_ino) : 0;
}

static __always_inline __u32 jiffy_us(void)
{
	/* 250 on Debian and most others. */
	return CONFIG_HZ ? 1000000 / (__u32)CONFIG_HZ : 4000;
}

static __always_inline __u32 jiffies_us(__u32 jiffies)
{
	return jiffies * jiffy_us();
}

/* Adds up how long each of the kernel's "chronographs" has run: see tcp_get_info_chrono_stats. */
static __always_inline void chronographs(struct counters *into, struct tcp_sock *tp)
{
	__u32 running = BPF_CORE_READ_BITFIELD(tp, chrono_type);
	__u32 since = (__u32)bpf_jiffies64() - tp->chrono_start;
	__u32 busy = tp->chrono_stat[0], window = tp->chrono_stat[1], buffer = tp->chrono_stat[2];

	if (running == 1)
		busy += since;
	if (running == 2)
		window += since;
	if (running == 3)
		buffer += since;
	into->busy_us = jiffies_us(busy + window + buffer);
	into->window_limited_us = jiffies_us(window);
	into->buffer_limited_us = jiffies_us(buffer);
}

static __always_inline void count(struct counters *into, struct tcp_sock *tp)
{
	into->bytes_sent = tp->bytes_sent;
	into->bytes_received = tp->bytes_received;
	into->bytes_retransmitted = tp->bytes_retrans;
	into->data_segments_out = tp->data_segs_out;
	into->data_segments_in = tp->data_segs_in;
	into->retransmissions = tp->total_retrans;
	chronographs(into, tp);
}

/* Returns the index of the highest bit that is set. */
static __always_inline __u32 log2(__u64 value)
{
	__u32 bits = 0;

	if (value >> 32) {
		value >>= 32;
		bits += 32;
	}
	if (value >> 16) {
		value >>= 16;
		bits += 16;
	}
	if (value >> 8) {
		value >>= 8;
		bits += 8;
	}
	if (value >> 4) {
		value >>= 4;
		bits += 4;
	}
	if (value >> 2) {
		value >>= 2;
		bits += 2;
	}
	return bits + (value >> 1 ? 1 : 0);
}

/* Counts a time in a histogram, in steps of a quarter of a power of two, from a microsecond on; and
 * adds it to the sum of its step, so that the step's mean is exact. */
static __always_inline void note_time(__u32 *times, __u64 *sums, __u64 ns)
{
	__u64 us = ns / 1000;
	__u32 power, step;

	if (us < 4) {
		step = us;
	} else {
		power = log2(us);
		step = (power - 1) * 4 + ((us >> (power - 2)) & 3);
	}
	if (step >= TIMES)
		step = TIMES - 1;
	times[step]++;
	sums[step] += ns;
}

static __always_inline void note_size(__u32 *counts, __u64 *sums, __u32 value)
{
	__u32 step = value ? log2(value) : 0;

	if (step >= SIZES)
		step = SIZES - 1;
	counts[step]++;
	sums[step] += value;
}

/*
 * What is kept of a socket: with the socket, or, of connections that were met when they were
 * established, in a slot of a table. A socket has one of the two.
 */
#pragma once

/* Between two owners. No cookie is as large. */
#define NOBODYS (~0ULL)

/* The slot that a socket may have. */
static __always_inline struct slot *slot_of(__u64 cookie)
{
	__u32 index = cookie % SLOTS;

	return bpf_map_lookup_elem(&new_sockets, &index);
}

static __always_inline struct kept *kept_by_cookie(__u64 cookie)
{
	struct slot *slot = cookie ? slot_of(cookie) : NULL;

	return slot && slot->cookie == cookie ? &slot->kept : NULL;
}

static __always_inline __u64 cookie_of(struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_inet.sk.__sk_common.skc_cookie.counter;
}

static __always_inline struct kept *kept_of(struct tcp_sock *tp)
{
	struct kept *kept = bpf_sk_storage_get(&sockets, tp, NULL, 0);

	return kept ? kept : kept_by_cookie(cookie_of(tp));
}

/*
 * For programs that may neither ask for a cookie nor look into a socket: its address is read from
 * the stack, where it is a number like any other.
 */
static __always_inline struct kept *kept_of_opaque(struct bpf_sock *sk)
{
	struct kept *kept = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	struct bpf_sock *volatile opaque = sk;
	struct sock *address = NULL;

	if (kept)
		return kept;
	bpf_probe_read_kernel(&address, sizeof(address), (void *)&opaque);
	return kept_by_cookie(BPF_CORE_READ(address, __sk_common.skc_cookie.counter));
}

/*
 * Whether the address is the socket's still, and it has not ended for good: nobody refers to that
 * any more, while what is merely closed may connect again. Its memory may be none by now, or not a
 * socket's: the kernel gives pages of its cache to others (SLAB_TYPESAFE_BY_RCU, mm/slub.c), and
 * these need not write to where the cookie was. So whatever all TCP sockets are is asked for, too.
 */
static __always_inline bool is_there(const struct sock_common *common, __u64 cookie)
{
	const struct sock *sk = (void *)common;
	__u16 family;
	__u8 state;

	if ((__u64)BPF_CORE_READ(common, skc_cookie.counter) != cookie ||
	    !BPF_CORE_READ(common, skc_refcnt.refs.counter))
		return false;
	family = BPF_CORE_READ(common, skc_family);
	state = BPF_CORE_READ(common, skc_state);
	return (family == AF_INET || family == AF_INET6) && state >= TCP_ESTABLISHED &&
	       state <= TCP_CLOSING && BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP &&
	       BPF_CORE_READ(sk, sk_type) == SOCK_STREAM;
}

static __always_inline bool is_free(const struct slot *slot, __u64 owner)
{
	if (!owner)
		return true;
	return owner != NOBODYS && !is_there((void *)slot->socket, owner);
}

/* Whoever has brought the slot from its owner to nobody may write to it. */
static __always_inline struct kept *take(struct slot *slot, __u64 cookie, struct tcp_sock *tp)
{
	__u64 owner = slot->cookie;
	int i;

	if (owner == cookie)
		return &slot->kept;
	if (!is_free(slot, owner) ||
	    __sync_val_compare_and_swap(&slot->cookie, owner, NOBODYS) != owner)
		return NULL;
	for (i = 0; i < OPTIONS; i++)
		slot->kept.options[i].entry = 0;
	slot->socket = (__u64)tp;
	__sync_val_compare_and_swap(&slot->cookie, NOBODYS, cookie);
	return &slot->kept;
}

/* Something to keep what a socket is in that is just established. It may have been one before. */
static __always_inline struct kept *keep_new(struct bpf_sock_ops *ctx, struct bpf_sock *sk,
					     struct tcp_sock *tp)
{
	struct kept *kept = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	struct slot *slot;
	__u64 cookie;

	if (kept)
		return kept;
	cookie = bpf_get_socket_cookie(ctx);
	slot = slot_of(cookie);
	kept = slot ? take(slot, cookie, tp) : NULL;
	if (kept)
		return kept;
	return bpf_sk_storage_get(&sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
}

/* Leaves the slot to others, if no entry has anything of it any more. */
static __always_inline void forget(struct tcp_sock *tp)
{
	__u64 cookie = cookie_of(tp);
	struct slot *slot = cookie ? slot_of(cookie) : NULL;
	int i;

	if (!slot || slot->cookie != cookie)
		return;
	for (i = 0; i < OPTIONS; i++)
		if (slot->kept.options[i].entry)
			return;
	slot->cookie = 0;
}

static __always_inline void tell_one(struct seq_file *seq, const struct claim *claim,
				     struct tcp_sock *tp, int which)
{
	__u32 told[3] = { claim->entry, which };
	struct value now, set = claim->after;

	if (!told[0])
		return;
	look(tp, which, &now);
	told[2] = !same(&now, &set);
	bpf_seq_write(seq, told, sizeof(told));
}

/* Of each option that an entry has set: the entry, the option, and whether it is another now. */
static __always_inline void tell(struct seq_file *seq, const struct kept *kept, void *socket)
{
	struct tcp_sock *tp = socket;

	tell_one(seq, &kept->options[NODELAY], tp, NODELAY);
	tell_one(seq, &kept->options[DELACK_MAX], tp, DELACK_MAX);
	tell_one(seq, &kept->options[NOTSENT_LOWAT], tp, NOTSENT_LOWAT);
	tell_one(seq, &kept->options[RTO_MIN], tp, RTO_MIN);
	tell_one(seq, &kept->options[PACING], tp, PACING);
	tell_one(seq, &kept->options[CONGESTION], tp, CONGESTION);
}

/*
 * The former values of a socket: kept with the socket or, for connections that were caught when they
 * were established, in a slot of a table. A socket has one of the two.
 */
#pragma once

/* A slot's cookie between two owners. No cookie is as large. */
#define NOBODYS (~0ULL)

/*
 * Returns the address of a socket as a plain number, by reading it back from the stack: the verifier allows
 * neither arithmetic on a pointer, nor a probe read through it in programs that may not dereference it.
 */
static __always_inline __u64 address_of(void *socket)
{
	void *volatile opaque = socket;
	__u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), (void *)&opaque);
	return address;
}

/*
 * Returns the slot for a socket at this address. The kernel gives the memory of a connection that
 * has just ended to the next one, and the slot with it: it is still in the processor's caches.
 */
static __always_inline struct slot *slot_at(__u64 address)
{
	/* Fibonacci hashing: the golden ratio times 2^64, of which the upper bits are well mixed. */
	__u32 index = (address * 0x9e3779b97f4a7c15ULL) >> (64 - SLOTS_BITS);

	return bpf_map_lookup_elem(&born, &index);
}

static __always_inline struct slot *slot_of(__u64 address, __u64 cookie)
{
	struct slot *slot = cookie ? slot_at(address) : NULL;

	return slot && slot->cookie == cookie && slot->socket == address ? slot : NULL;
}

static __always_inline __u64 cookie_of(struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_inet.sk.__sk_common.skc_cookie.counter;
}

static __always_inline struct kept *kept_of(struct tcp_sock *tp)
{
	struct kept *kept = bpf_sk_storage_get(&sockets, tp, NULL, 0);
	struct slot *slot;

	if (kept)
		return kept;
	slot = slot_of(address_of(tp), cookie_of(tp));
	return slot ? &slot->kept : NULL;
}

/* For programs that may neither ask for a cookie nor dereference a socket. */
static __always_inline struct kept *kept_of_opaque(struct bpf_sock *sk)
{
	struct kept *kept = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	struct sock_common *common;
	struct slot *slot;

	if (kept)
		return kept;
	common = (void *)address_of(sk);
	slot = slot_of((__u64)common, BPF_CORE_READ(common, skc_cookie.counter));
	return slot ? &slot->kept : NULL;
}

/*
 * Whether the socket is still at this address and has not ended for good, when no reference to it is
 * left; a socket that is merely closed may connect again. Its memory may be unmapped, or no longer a
 * socket's: the kernel gives pages of its cache to others (SLAB_TYPESAFE_BY_RCU, mm/slub.c), which
 * need not overwrite the cookie. So properties that all TCP sockets have are checked, too.
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

/* Whether the slot has no owner. An owner whose memory is now another socket's has ended. */
static __always_inline bool is_free(const struct slot *slot, __u64 owner, __u64 address)
{
	if (!owner)
		return true;
	return owner != NOBODYS &&
	       (slot->socket == address || !is_there((void *)slot->socket, owner));
}

/* Takes a slot: only the program that has exchanged its owner for NOBODYS may write to it. */
static __always_inline struct kept *take(struct slot *slot, __u64 cookie, __u64 address)
{
	__u64 owner = slot->cookie;
	int i;

	if (owner == cookie && slot->socket == address)
		return &slot->kept;
	if (!is_free(slot, owner, address) ||
	    __sync_val_compare_and_swap(&slot->cookie, owner, NOBODYS) != owner)
		return NULL;
	for (i = 0; i < OPTIONS; i++)
		slot->kept.options[i].entry = 0;
	slot->socket = address;
	__sync_val_compare_and_swap(&slot->cookie, NOBODYS, cookie);
	return &slot->kept;
}

/* Returns storage for the former values of a socket that was just established; it may have had some before. */
static __always_inline struct kept *keep_new(struct bpf_sock_ops *ctx, struct bpf_sock *sk,
					     struct tcp_sock *tp)
{
	struct kept *kept = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	struct slot *slot;
	__u64 address;

	if (kept)
		return kept;
	address = address_of(tp);
	slot = slot_at(address);
	kept = slot ? take(slot, bpf_get_socket_cookie(ctx), address) : NULL;
	if (kept)
		return kept;
	return bpf_sk_storage_get(&sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
}

/* Frees the slot, if no entry has an option of it any more. */
static __always_inline void forget(struct tcp_sock *tp)
{
	struct slot *slot = slot_of(address_of(tp), cookie_of(tp));
	int i;

	if (!slot)
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

/* Reports for each option that an entry has set: the entry, the option, and whether its value has changed. */
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

/*
 * Setting an option of one socket, and restoring it. `sk` is whatever pointer the calling program may
 * pass to bpf_setsockopt; every function is inlined for each option, so that `which` is a constant.
 */
#pragma once

static __always_inline int level(int which)
{
	return which == PACING ? SOL_SOCKET : SOL_TCP;
}

static __always_inline int name(int which)
{
	switch (which) {
	case NODELAY:
		return TCP_NODELAY;
	case DELACK_MAX:
		return TCP_BPF_DELACK_MAX;
	case NOTSENT_LOWAT:
		return TCP_NOTSENT_LOWAT;
	case RTO_MIN:
		return TCP_BPF_RTO_MIN;
	case PACING:
		return SO_MAX_PACING_RATE;
	default:
		return TCP_CONGESTION;
	}
}

/* Whether the option is one of those that are set here. */
static __always_inline bool is_ours(int of_level, int option)
{
	if (of_level == SOL_SOCKET)
		return option == SO_MAX_PACING_RATE;
	return of_level == SOL_TCP && (option == TCP_NODELAY || option == TCP_NOTSENT_LOWAT ||
				       option == TCP_CONGESTION);
}

/* The value of getsockopt for a socket without a limit. */
#define NO_PACING 0xffffffffUL

static __always_inline bool in_ticks(int which)
{
	return which == DELACK_MAX || which == RTO_MIN;
}

static __always_inline bool same(const struct value *a, const struct value *b)
{
	return a->words[0] == b->words[0] && a->words[1] == b->words[1];
}

/* The kernel takes microseconds and stores ticks; it has no getsockopt for these two. */
static __always_inline __u32 ticks(struct tcp_sock *tp, int which)
{
	if (which == DELACK_MAX)
		return BPF_CORE_READ(tp, inet_conn.icsk_delack_max);
	return BPF_CORE_READ(tp, inet_conn.icsk_rto_min);
}

static __always_inline int get(void *sk, struct tcp_sock *tp, int which, struct value *into)
{
	int number = 0, error;

	into->words[0] = into->words[1] = 0;
	if (in_ticks(which)) {
		if (!CONFIG_HZ)
			return -95; /* EOPNOTSUPP */
		into->words[0] = (__u64)ticks(tp, which) * 1000000 / (__u32)CONFIG_HZ;
		return 0;
	}
	/* Called for each new connection: gives the kernel's own answer, without the call. */
	if (which == NODELAY) {
		into->words[0] = BPF_CORE_READ_BITFIELD(tp, nonagle) & TCP_NAGLE_OFF;
		return 0;
	}
	if (which == CONGESTION) {
		error = bpf_getsockopt(sk, level(which), name(which), into, sizeof(*into));
		return error < 0 ? error : 0;
	}
	error = bpf_getsockopt(sk, level(which), name(which), &number, sizeof(number));
	into->words[0] = (__u32)number;
	return error < 0 ? error : 0;
}

/* Reads the value in programs that may only read, and of sockets that may end meanwhile. */
static __always_inline void look(struct tcp_sock *tp, int which, struct value *into)
{
	const struct tcp_congestion_ops *congestion;
	unsigned long rate;

	into->words[0] = into->words[1] = 0;
	if (in_ticks(which)) {
		if (CONFIG_HZ)
			into->words[0] = (__u64)ticks(tp, which) * 1000000 / (__u32)CONFIG_HZ;
	} else if (which == NODELAY) {
		into->words[0] = BPF_CORE_READ_BITFIELD_PROBED(tp, nonagle) & TCP_NAGLE_OFF;
	} else if (which == NOTSENT_LOWAT) {
		into->words[0] = BPF_CORE_READ(tp, notsent_lowat);
	} else if (which == PACING) {
		rate = BPF_CORE_READ(tp, inet_conn.icsk_inet.sk.sk_max_pacing_rate);
		into->words[0] = rate < NO_PACING ? rate : NO_PACING;
	} else {
		congestion = BPF_CORE_READ(tp, inet_conn.icsk_ca_ops);
		bpf_core_read(into, sizeof(*into), &congestion->name);
	}
}

static __always_inline long set(void *sk, int which, const struct value *value)
{
	struct value own = *value;
	int number = (int)own.words[0];

	if (which == CONGESTION)
		return bpf_setsockopt(sk, level(which), name(which), &own, sizeof(own));
	return bpf_setsockopt(sk, level(which), name(which), &number, sizeof(number));
}

/*
 * Whether a value can be restored. The kernel's setters accept from two ticks (TCP_TIMEOUT_MIN) to
 * 200 ms (TCP_DELACK_MAX, TCP_RTO_MIN); values that sysctls or routes have set may lie outside.
 */
static __always_inline bool restorable(int which, const struct value *before)
{
	__u32 tick = CONFIG_HZ ? 1000000 / (__u32)CONFIG_HZ : 0;

	return !in_ticks(which) || (before->words[0] >= 2 * tick && before->words[0] <= 200000);
}

/* Whether a limit is lower already. 0 for TCP_NOTSENT_LOWAT means the system-wide setting. */
static __always_inline bool tighter(int which, const struct value *before,
				    const struct value *wanted)
{
	return settings.looser_only && (which == NOTSENT_LOWAT || which == PACING) &&
	       before->words[0] && before->words[0] < wanted->words[0];
}

/* Sets an option. The former value is stored first: a socket that was touched can always be restored. */
static __always_inline void claim_one(void *sk, struct tcp_sock *tp, struct kept *kept, int which)
{
	struct claim *claim = &kept->options[which];
	struct value wanted, before;
	struct outcome *outcome;
	__u32 key = which;
	long error;

	if (!(settings.options & (1 << which)))
		return;
	outcome = bpf_map_lookup_elem(&outcomes, &key);
	if (!outcome || claim->entry == settings.entry)
		return;
	if (claim->entry) {
		__sync_fetch_and_add(&outcome->others, 1);
		return;
	}
	wanted.words[0] = settings.values[which].words[0];
	wanted.words[1] = settings.values[which].words[1];
	error = get(sk, tp, which, &before);
	if (!error && (same(&before, &wanted) || tighter(which, &before, &wanted))) {
		__sync_fetch_and_add(&outcome->already, 1);
		return;
	}
	if (!error && !restorable(which, &before)) {
		__sync_fetch_and_add(&outcome->unrestorable, 1);
		return;
	}
	if (!error) {
		claim->before = before;
		claim->after = before;
		claim->asked = 0;
		claim->entry = settings.entry;
		error = set(sk, which, &wanted);
		if (!error) {
			get(sk, tp, which, &claim->after);
			__sync_fetch_and_add(&outcome->set, 1);
			return;
		}
		claim->entry = 0;
	}
	outcome->error = error;
	__sync_fetch_and_add(&outcome->refused, 1);
}

/* Restores an option. If its value is not the one that was set, somebody has changed it, and that stands. */
static __always_inline void release_one(void *sk, struct tcp_sock *tp, struct kept *kept, int which)
{
	struct claim *claim = &kept->options[which];
	struct outcome *outcome;
	struct value now;
	__u32 key = which;
	long error;

	if (claim->entry != settings.entry)
		return;
	outcome = bpf_map_lookup_elem(&outcomes, &key);
	if (!outcome)
		return;
	error = get(sk, tp, which, &now);
	if (!error && same(&now, &claim->before)) {
		__sync_fetch_and_add(&outcome->already, 1);
	} else if (!error && !same(&now, &claim->after)) {
		__sync_fetch_and_add(claim->asked ? &outcome->already : &outcome->others, 1);
	} else {
		if (!error)
			error = set(sk, which, &claim->before);
		if (error) {
			outcome->error = error;
			__sync_fetch_and_add(&outcome->refused, 1);
			return;
		}
		__sync_fetch_and_add(&outcome->set, 1);
	}
	claim->entry = 0;
}

static __always_inline void claim_all(void *sk, struct tcp_sock *tp, struct kept *kept)
{
	claim_one(sk, tp, kept, NODELAY);
	claim_one(sk, tp, kept, DELACK_MAX);
	claim_one(sk, tp, kept, NOTSENT_LOWAT);
	claim_one(sk, tp, kept, RTO_MIN);
	claim_one(sk, tp, kept, PACING);
	claim_one(sk, tp, kept, CONGESTION);
}

static __always_inline void release_all(void *sk, struct tcp_sock *tp, struct kept *kept)
{
	release_one(sk, tp, kept, NODELAY);
	release_one(sk, tp, kept, DELACK_MAX);
	release_one(sk, tp, kept, NOTSENT_LOWAT);
	release_one(sk, tp, kept, RTO_MIN);
	release_one(sk, tp, kept, PACING);
	release_one(sk, tp, kept, CONGESTION);
}

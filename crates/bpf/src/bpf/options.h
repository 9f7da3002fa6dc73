/* Options that the program sets by setsockopt. They are seen before the kernel acts upon them. */
#pragma once

/* linux/tcp.h */
enum { TCP_NODELAY = 1, TCP_CORK = 3, TCP_QUICKACK = 12 };
/* Levels at which option 1 has another meaning: SO_DEBUG, IP_TOS, IPV6_ADDRFORM. */
enum { SOL_IP = 0, SOL_SOCKET = 1, SOL_IPV6 = 41 };
/* The value reported for level 0, because 0 says that nothing was wrong. */
enum { LEVEL_IP = 0x10000 };

/* Notes where the process set TCP_NODELAY in vain. */
static __always_inline void goes_astray(struct bpf_sock *sk, __u32 where)
{
	struct astray astray = { .at_ns = bpf_ktime_get_ns(), .where = where };
	__u32 pid = current_ids() >> 32;

	if (traced(pid) != WHOLE)
		return;
	if (where == ON_LISTENER)
		astray.port = sk->src_port;
	bpf_map_update_elem(&nodelay_astray, &pid, &astray, BPF_ANY);
}

static __always_inline struct track *asked_on(struct bpf_sock *sk)
{
	struct track *track = bpf_sk_storage_get(&tracks, sk, 0, 0);

	/* Before it is connected, the socket is known by the process that sets the option. */
	if (!track && traced(current_ids() >> 32) == WHOLE)
		track = bpf_sk_storage_get(&tracks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	return track;
}

static __always_inline void nodelay_asked(struct options *options, struct bpf_sockopt *ctx)
{
	int *value = ctx->optval;

	if (ctx->optlen < (int)sizeof(int)) {
		options->wrong_length = ctx->optlen < 0 ? 1 : ctx->optlen + 1;
		return;
	}
	if ((void *)(value + 1) > ctx->optval_end)
		return;
	options->nodelay_calls++;
	if (*value) {
		options->pushes++;
		options->nodelay_on_ns = options->pushed_ns = bpf_ktime_get_ns();
	} else {
		options->nodelay_off_ns = bpf_ktime_get_ns();
	}
}

static __always_inline void cork_asked(struct options *options, struct bpf_sockopt *ctx)
{
	int *value = ctx->optval;

	options->cork_calls++;
	if ((void *)(value + 1) > ctx->optval_end || *value)
		return;
	options->pushes++;
	options->pushed_ns = bpf_ktime_get_ns();
}

/* Notes option 1 with the value 1, at a level where that is hardly ever meant. */
static __always_inline void wrong_level(struct bpf_sockopt *ctx)
{
	int *value = ctx->optval;
	struct track *track;

	if ((void *)(value + 1) > ctx->optval_end || *value != 1)
		return;
	track = asked_on(ctx->sk);
	if (track)
		track->options.wrong_level = ctx->level == SOL_IP ? LEVEL_IP : ctx->level;
}

SEC("cgroup/setsockopt")
int option_asked(struct bpf_sockopt *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct track *track;

	if (!sk)
		return 1;
	if (ctx->level != IPPROTO_TCP) {
		if (ctx->optname == TCP_NODELAY && sk->protocol == IPPROTO_TCP &&
		    (ctx->level == SOL_SOCKET || ctx->level == SOL_IP || ctx->level == SOL_IPV6))
			wrong_level(ctx);
		return 1;
	}
	if (sk->protocol != IPPROTO_TCP || sk->type != SOCK_STREAM) {
		if (ctx->optname == TCP_NODELAY)
			goes_astray(sk, ON_NO_TCP);
		return 1;
	}
	if (ctx->optname == TCP_NODELAY && sk->state == TCP_LISTEN)
		goes_astray(sk, ON_LISTENER);
	track = asked_on(sk);
	if (!track)
		return 1;
	if (ctx->optname == TCP_NODELAY)
		nodelay_asked(&track->options, ctx);
	if (ctx->optname == TCP_CORK)
		cork_asked(&track->options, ctx);
	if (ctx->optname == TCP_QUICKACK)
		track->options.quickack_calls++;
	return 1;
}

/* What the program asks of TCP by setsockopt. It is seen before the kernel acts upon it. */
#pragma once

/* linux/tcp.h */
enum { TCP_NODELAY = 1, TCP_CORK = 3, TCP_QUICKACK = 12 };

SEC("cgroup/setsockopt")
int option_asked(struct bpf_sockopt *ctx)
{
	struct track *track;
	int *value;

	if (ctx->level != IPPROTO_TCP || !ctx->sk)
		return 1;
	track = bpf_sk_storage_get(&tracks, ctx->sk, 0, 0);
	/* Before it is connected, it is known by who asks. */
	if (!track && traced(bpf_get_current_pid_tgid() >> 32) == WHOLE)
		track = bpf_sk_storage_get(&tracks, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!track)
		return 1;
	track->options.calls++;
	if (ctx->optname == TCP_CORK)
		track->options.cork_calls++;
	if (ctx->optname == TCP_QUICKACK)
		track->options.quickack_calls++;
	value = ctx->optval;
	if (ctx->optname != TCP_NODELAY || (void *)(value + 1) > ctx->optval_end)
		return 1;
	track->options.nodelay_calls++;
	if (*value)
		track->options.nodelay_on_ns = bpf_ktime_get_ns();
	else
		track->options.nodelay_off_ns = bpf_ktime_get_ns();
	return 1;
}

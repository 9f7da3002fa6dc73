/*
 * Setting options on other processes' sockets. New connections are caught when they are established
 * (sockops, on a cgroup), existing ones by an iterator, which holds the lock of each. A socket's
 * former values are kept in the kernel until it ends, so they outlive the process that loaded this.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "tune/settings.h"
#include "tune/tcp.h"
#include "tune/scope.h"
#include "tune/options.h"
#include "tune/kept.h"
#include "tune/wishes.h"
#include "tune/processes.h"

static __always_inline bool is_meant(void *sk, struct tcp_sock *tp)
{
	return meant(tp, settings.by_process && bpf_sk_storage_get(&tags, sk, NULL, 0));
}

/* Returns the iterator's current socket; NULL at its end. */
static __always_inline struct tcp_sock *shown(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;

	return common ? bpf_skc_to_tcp_sock(common) : NULL;
}

SEC("sockops")
int established(struct bpf_sock_ops *ctx)
{
	struct tcp_sock *tp;
	struct bpf_sock *sk;
	struct kept *kept;

	/* The reply belongs to other programs that may be attached: it is left alone. */
	if (ctx->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB &&
	    ctx->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	sk = ctx->sk;
	if (!sk)
		return 1;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !is_meant(sk, tp))
		return 1;
	kept = keep_new(ctx, sk, tp);
	if (kept)
		claim_all(ctx, tp, kept);
	return 1;
}

SEC("iter/tcp")
int living(struct bpf_iter__tcp *ctx)
{
	struct tcp_sock *tp = shown(ctx);
	struct kept *kept;
	__u8 state;

	if (!tp)
		return 0;
	/* Connections that a listener accepts are caught when they are established. */
	state = tp->inet_conn.icsk_inet.sk.__sk_common.skc_state;
	if (state == TCP_LISTEN || state == TCP_CLOSE || !is_meant(tp, tp))
		return 0;
	kept = kept_of(tp);
	if (!kept)
		kept = bpf_sk_storage_get(&sockets, tp, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (kept)
		claim_all(tp, tp, kept);
	return 0;
}

SEC("iter/tcp")
int undoing(struct bpf_iter__tcp *ctx)
{
	struct tcp_sock *tp = shown(ctx);
	struct kept *kept = tp ? kept_of(tp) : NULL;

	if (kept) {
		release_all(tp, tp, kept);
		forget(tp);
	}
	return 0;
}

/*
 * The program sets an option that was set for it. The option is set, and undoing leaves it: undoing
 * restores the program's last wish, which is this now.
 */
SEC("cgroup/setsockopt")
int wished(struct bpf_sockopt *ctx)
{
	struct kept *kept;

	/* Only a page of a longer value is shown, and it must not replace the value. */
	if (ctx->optlen > 4096) {
		ctx->optlen = 0;
		return 1;
	}
	if (!is_ours(ctx->level, ctx->optname) || !ctx->sk)
		return 1;
	kept = kept_of_opaque(ctx->sk);
	if (!kept)
		return 1;
	if (ctx->level == SOL_TCP && ctx->optname == TCP_CONGESTION)
		wish_for_a_name(ctx, &kept->options[CONGESTION]);
	else
		wish_for_a_number(ctx, kept);
	return 1;
}

/*
 * Reports which options are in force: for each option of each socket its entry, and whether it still has
 * the value. Nothing is in force on a connection that has ended, even if a descriptor is still open.
 */
SEC("iter/bpf_sk_storage_map")
int touched(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct kept *kept = ctx->value;
	struct sock *sk = ctx->sk;

	if (kept && sk && sk->__sk_common.skc_state != TCP_CLOSE)
		tell(ctx->meta->seq, kept, sk);
	return 0;
}

/* Reports the same for one network namespace, for kernels that refuse iterators over maps. */
SEC("iter/tcp")
int touched_in(struct bpf_iter__tcp *ctx)
{
	struct tcp_sock *tp = shown(ctx);
	struct kept *kept = tp ? kept_of(tp) : NULL;

	if (kept && tp->inet_conn.icsk_inet.sk.__sk_common.skc_state != TCP_CLOSE)
		tell(ctx->meta->seq, kept, tp);
	return 0;
}

SEC("iter/bpf_map_elem")
int touched_new(struct bpf_iter__bpf_map_elem *ctx)
{
	struct slot *slot = ctx->value;
	struct sock_common *common;

	if (!slot || !slot->cookie)
		return 0;
	common = (void *)slot->socket;
	if (is_there(common, slot->cookie) && BPF_CORE_READ(common, skc_state) != TCP_CLOSE)
		tell(ctx->meta->seq, &slot->kept, common);
	return 0;
}

/* Some helpers are only available to programs under a GPL-compatible licence. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The values that a program itself sets after an option was set for it: undoing restores them. */
#pragma once

static __always_inline void wish_for_a_number(struct bpf_sockopt *ctx, struct kept *kept)
{
	__u64 *longer = ctx->optval, rate;
	__u32 *value = ctx->optval;

	if ((void *)(value + 1) > ctx->optval_end)
		return;
	if (ctx->level == SOL_SOCKET) {
		rate = *value;
		if ((void *)(longer + 1) <= ctx->optval_end)
			rate = *longer;
		kept->options[PACING].before.words[0] = rate < NO_PACING ? rate : NO_PACING;
	} else if (ctx->optname == TCP_NODELAY) {
		kept->options[NODELAY].before.words[0] = *value != 0;
	} else {
		kept->options[NOTSENT_LOWAT].before.words[0] = *value;
	}
}

/*
 * Whether the kernel knows the name is not checked here: one that it refuses changes nothing. If it
 * is the one that was set, it is the program's own from now on.
 */
static __always_inline void wish_for_a_name(struct bpf_sockopt *ctx, struct claim *claim)
{
	struct value asked = {};
	char *name = ctx->optval;
	int i;

	for (i = 0; i < (int)sizeof(asked) - 1; i++) {
		if ((void *)(name + i + 1) > ctx->optval_end || !name[i])
			break;
		((char *)&asked)[i] = name[i];
	}
	claim->asked = 1;
	if (same(&asked, &claim->after))
		claim->before = asked;
}

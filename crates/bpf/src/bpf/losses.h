/* Retransmitted segments. */
#pragma once

/* TCP_CA_Open (linux/tcp.h): nothing is presumed lost. */
enum { CA_OPEN = 0 };

/* Depth bound of a red-black tree of segments. */
#define TREE_DEPTH 32

/*
 * Returns when the first unacknowledged segment was last sent. To be called before it is
 * retransmitted, which renews that time.
 */
static __always_inline __u64 first_sent_ns(struct sock *sk)
{
	struct rb_node *node = BPF_CORE_READ(sk, tcp_rtx_queue.rb_node), *left;
	__u32 i;

	if (!node)
		return 0;
	for (i = 0; i < TREE_DEPTH; i++) {
		left = BPF_CORE_READ(node, rb_left);
		if (!left)
			break;
		node = left;
	}
	return BPF_CORE_READ((struct sk_buff *)((void *)node -
			     bpf_core_field_offset(struct sk_buff, rbnode)), skb_mstamp_ns);
}

/*
 * Returns since when the segment that is retransmitted now was in flight. For the timer that was read before its
 * function began. Otherwise an ACK of something that was sent later revealed the loss: RACK has the time of that.
 */
static __always_inline __u64 lost_since_ns(struct tcp_sock *tp)
{
	__u32 zero = 0;
	struct sending *timer = bpf_map_lookup_elem(&write_timer, &zero);

	if (timer && timer->runs)
		return timer->first_sent_ns;
	return tp->rack.mstamp * 1000;
}

/*
 * Whether the segment is a window probe, which lies beyond the receiver's window, or was sent
 * before the window shut, so that the receiver may have had no room for it.
 */
static __always_inline bool window_is_shut(struct track *track, struct tcp_sock *tp,
					   struct sk_buff *skb)
{
	__u32 end = ((struct tcp_skb_cb *)skb->cb)->end_seq;

	if (before(tp->snd_una + tp->snd_wnd, end)) {
		track->shut_seq = tp->snd_nxt;
		return true;
	}
	return track->shut_seq && !before(track->shut_seq, end);
}

static __always_inline void tell_lost(struct track *track, struct tcp_sock *tp,
				      const struct again *again)
{
	struct event_lost *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&dropped, 1);
		return;
	}
	event->type = EVENT_LOST;
	event->ca_state = again->ca_state;
	event->cookie = track->cookie;
	event->tuple = track->tuple;
	event->at_ns = again->at_ns;
	event->waited_ns = again->waited_ns;
	event->bytes = again->bytes;
	event->timeouts = again->timeouts;
	event->shut = again->shut;
	event->srtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline __u32 duplicates(struct tcp_sock *tp)
{
	return bpf_core_field_exists(tp->dsack_dups) ? BPF_CORE_READ(tp, dsack_dups) : 0;
}

/*
 * Judges a tail loss probe (RFC 8985, 7), which is sent before the timeout to learn whether the
 * tail was lost. If the receiver reports a duplicate now, it was not lost: its ACK was late.
 */
static __always_inline void judge_probe(struct track *track, struct tcp_sock *tp)
{
	if (!track->probe.at_ns)
		return;
	if (duplicates(tp) == track->probe_duplicates)
		tell_lost(track, tp, &track->probe);
	else
		track->needless++;
	track->probe.at_ns = 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(sent_again, struct sock *sk, struct sk_buff *skb)
{
	struct track *track = bpf_sk_storage_get(&tracks, sk, 0, 0);
	struct again again = {};
	struct tcp_sock *tp;
	__u64 since;

	if (!track || !track->origin)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	judge_probe(track, tp);
	since = lost_since_ns(tp);
	again.at_ns = bpf_ktime_get_ns();
	again.waited_ns = since && since < again.at_ns ? again.at_ns - since : 0;
	again.ca_state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
	again.timeouts = tp->inet_conn.icsk_retransmits;
	again.bytes = skb->len;
	again.shut = window_is_shut(track, tp, skb);
	if (again.shut)
		track->needless++;
	if (!again.shut && again.ca_state == CA_OPEN && !again.timeouts) {
		track->probe = again;
		track->probe_duplicates = duplicates(tp);
		return 0;
	}
	tell_lost(track, tp, &again);
	return 0;
}

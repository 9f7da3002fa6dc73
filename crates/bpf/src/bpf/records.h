/* The record of a socket, reported when it ends, or when tracing does. */
#pragma once

static __always_inline void subtract(struct counters *base, const struct counters *now)
{
	base->bytes_sent = now->bytes_sent - base->bytes_sent;
	base->bytes_received = now->bytes_received - base->bytes_received;
	base->bytes_retransmitted = now->bytes_retransmitted - base->bytes_retransmitted;
	base->data_segments_out = now->data_segments_out - base->data_segments_out;
	base->data_segments_in = now->data_segments_in - base->data_segments_in;
	base->retransmissions = now->retransmissions - base->retransmissions;
	base->window_limited_us = now->window_limited_us - base->window_limited_us;
	base->buffer_limited_us = now->buffer_limited_us - base->buffer_limited_us;
	base->busy_us = now->busy_us - base->busy_us;
}

/* Notes that the process set TCP_NODELAY where that did nothing for this connection. */
static __always_inline void note_astray(struct track *track)
{
	struct astray *astray = bpf_map_lookup_elem(&nodelay_astray, &track->writer.pid);

	if (!astray)
		astray = bpf_map_lookup_elem(&nodelay_astray, &track->owner.pid);
	if (!astray)
		return;
	if (astray->where == ON_LISTENER &&
	    (astray->port != track->tuple.local_port || astray->at_ns <= track->since_ns))
		return;
	track->options.elsewhere = astray->where;
}

static __always_inline void fill_in(struct track *track, struct tcp_sock *tp, __u32 state)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &track->tuple);
	struct counters now = {};

	if (connection)
		track->ack_timers = connection->ack_timers;

	note_astray(track);
	judge_probe(track, tp);
	count(&now, tp);
	subtract(&track->base, &now);
	track->srtt_us = tp->srtt_us >> 3;
	track->min_rtt_us = tp->rtt_min.s[0].v;
	track->mss = tp->mss_cache;
	track->nonagle = BPF_CORE_READ_BITFIELD(tp, nonagle);
	track->state = state;
}

/* The last message has no successor that would close it: the answer that came after it did. */
static __always_inline void last_message(struct track *track, struct tcp_sock *tp, __u64 now)
{
	if (tp->rcv_nxt != track->copied_seq && track->origin != ACCEPTED)
		answered(track, tp, last_data_ns(track, tp, now));
	close_message(track, tp);
}

static __always_inline void closed(struct sock *sk, struct tcp_sock *tp, struct track *track,
				   __u32 state)
{
	__u64 now = bpf_ktime_get_ns();
	struct event_socket *event;

	if (track->held_ns)
		let_go(track, tp, BY_END, tp->write_seq, now);
	last_message(track, tp, now);
	fill_in(track, tp, state);
	bpf_map_delete_elem(&connections, &track->tuple);
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (event) {
		event->type = EVENT_SOCKET;
		event->pad = 0;
		event->at_ns = now;
		bpf_probe_read_kernel(&event->track, sizeof(event->track), track);
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	} else {
		__sync_fetch_and_add(&dropped, 1);
	}
	bpf_sk_storage_delete(&tracks, sk);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_changes, struct sock *sk, int old, int state)
{
	struct track *track;
	struct tcp_sock *tp;

	if (!tcp(sk))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	if (state == TCP_SYN_SENT || state == TCP_LISTEN) {
		opened(sk, tp, state);
		return 0;
	}
	if (state != TCP_ESTABLISHED && state != TCP_CLOSE)
		return 0;
	track = bpf_sk_storage_get(&tracks, sk, 0, 0);
	if (state == TCP_ESTABLISHED)
		established(sk, tp, track);
	else if (track && track->origin)
		closed(sk, tp, track, old);
	return 0;
}

static __always_inline void tell_left(struct seq_file *seq, struct tcp_sock *tp)
{
	struct track *track;
	struct {
		__u32 type;
		__u32 pad;
		__u64 at_ns;
	} head = { EVENT_SOCKET, 0, 0 };

	track = tp ? bpf_sk_storage_get(&tracks, tp, 0, 0) : NULL;
	if (!track || !track->origin)
		return;
	head.at_ns = bpf_ktime_get_ns();
	/* Bytes that still wait are reported as if they left now. */
	if (track->held_ns)
		let_go(track, tp, BY_END, tp->write_seq, head.at_ns);
	last_message(track, tp, head.at_ns);
	fill_in(track, tp, tp->inet_conn.icsk_inet.sk.__sk_common.skc_state);
	bpf_seq_write(seq, &head, sizeof(head));
	bpf_seq_write(seq, track, sizeof(*track));
}

/* Reports all sockets that are left, at the end. */
SEC("iter/bpf_sk_storage_map")
int sockets_left(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;

	/* Not through ctx->value: it may not be passed to functions. */
	if (sk && ctx->value)
		tell_left(ctx->meta->seq, bpf_skc_to_tcp_sock(sk));
	return 0;
}

/* Reports those of one network namespace, for kernels that refuse the other iterator. */
SEC("iter/tcp")
int sockets_left_in(struct bpf_iter__tcp *ctx)
{
	/* Read once: the verifier does not know that a second load gives the same pointer. */
	struct sock_common *common = ctx->sk_common;

	if (common)
		tell_left(ctx->meta->seq, bpf_skc_to_tcp_sock(common));
	return 0;
}

/*
 * Bytes that were written and not sent: noticed after the write that left them, and again when they
 * leave. While no socket holds anything back, outgoing packets are not looked at.
 */
#pragma once

/* TCP_NAGLE_OFF, TCP_NAGLE_CORK (net/tcp.h), ICSK_TIME_PROBE0 (net/inet_connection_sock.h). */
enum { NAGLE_OFF = 1, NAGLE_CORK = 2, TIME_PROBE0 = 3 };

/* Returns why the rest of the queue was not sent, by the kernel's own rules (tcp_write_xmit). */
static __always_inline __u32 why_held(struct tcp_sock *tp, struct sock *sk, bool more)
{
	__u32 unsent = tp->write_seq - tp->snd_nxt;
	__u32 flying = tp->snd_nxt - tp->snd_una;
	__u32 packets = tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
	__u32 mss = tp->mss_cache;
	__u32 nonagle = BPF_CORE_READ_BITFIELD(tp, nonagle);

	if (!unsent || before(tp->write_seq, tp->snd_nxt))
		return FREE;
	/* Nothing in flight would open the window, and the window takes no segment. */
	if (flying == 0 && tp->snd_wnd < mss && tp->snd_wnd < unsent)
		return SHUT;
	/* A receiver may delay the ACK of a lone segment, and nothing else is sent before it. */
	if (tp->packets_out == 1 && tp->snd_cwnd == 1 && flying + unsent <= tp->snd_wnd)
		return LONE;
	/* Full segments wait for something else: the congestion window, pacing, the device. */
	if (unsent >= mss || packets >= tp->snd_cwnd || flying + unsent > tp->snd_wnd)
		return FREE;
	if (nonagle & NAGLE_CORK)
		return CORKED;
	/* Held until more is written or an ACK comes, whatever Nagle's algorithm would say. */
	if (more)
		return MORE;
	/* Nagle's algorithm as modified by Minshall: only a small segment in flight holds another one back. */
	if (nonagle == 0 && tp->packets_out && before(tp->snd_una, tp->snd_sml) &&
	    !before(tp->snd_nxt, tp->snd_sml))
		return NAGLE;
	/* Autocorking waits for the device's completions, pacing for the clock; the only other
	 * cause left is that the program has announced more. */
	if (sk->sk_wmem_alloc.refs.counter > 1 || sk->sk_pacing_status)
		return FREE;
	if (tp->packets_out || tp->inet_conn.icsk_pending == TIME_PROBE0)
		return MORE;
	return FREE;
}

static __always_inline __u64 offset_of(struct tcp_sock *tp, __u32 seq)
{
	return BPF_CORE_READ(tp, bytes_acked) + (seq - BPF_CORE_READ(tp, snd_una));
}

/*
 * The program removed its cork, and nothing left then: from there on Nagle's algorithm held it. The
 * kernel does not report that, but nothing else holds back what an ACK releases.
 */
static __always_inline void uncorked(struct track *track, __u32 by)
{
	if (by != BY_ACK || track->held_why != CORKED ||
	    track->options.pushed_ns <= track->held_ns)
		return;
	track->held_why = NAGLE;
	track->held_ns = track->options.pushed_ns;
}

/* tp may be known by its address alone: its members are read, not dereferenced. */
static __always_inline void let_go(struct track *track, struct tcp_sock *tp, __u32 by, __u32 end,
				   __u64 now)
{
	struct event_held *event;
	__u64 took;

	uncorked(track, by);
	took = now - track->held_ns;
	if (took < min_held_ns) {
		track->held_short++;
		track->held_short_ns += took;
		goto out;
	}
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&dropped, 1);
		goto out;
	}
	event->type = EVENT_HELD;
	event->why = track->held_why;
	event->cookie = track->cookie;
	event->tuple = track->tuple;
	event->writer = track->writer;
	event->inode = track->inode;
	event->begin_ns = track->held_ns;
	event->end_ns = now;
	event->message_ns = track->message_ns;
	event->offset = offset_of(tp, track->held_seq);
	event->released = by;
	event->bytes = end - track->held_seq;
	event->outstanding = track->held_outstanding;
	event->before = before(track->message_seq, track->held_seq) ?
				track->held_seq - track->message_seq : 0;
	event->mss = BPF_CORE_READ(tp, mss_cache);
	event->nonagle = BPF_CORE_READ_BITFIELD_PROBED(tp, nonagle);
	event->srtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	event->min_rtt_us = BPF_CORE_READ(tp, rtt_min.s[0].v);
	event->stack = track->held_stack;
	bpf_ringbuf_submit(event, 0);
out:
	track->held_ns = 0;
	track->held_stack = 0;
	__sync_fetch_and_sub(&holding, 1);
}

static __always_inline void sample_queue(struct track *track, struct tcp_sock *tp)
{
	__u32 unsent = tp->write_seq - tp->snd_una, rtt = tp->srtt_us >> 3;

	/* The receiver has not read what it has: that is no queue on the path. Nor is one late ACK,
	 * which makes the round trip's deviation (kept times four, the mean times eight) larger
	 * than its mean: in a queue one segment takes about as long as the next. */
	if (tp->snd_wnd <= tp->max_window / 2 || tp->mdev_us > tp->srtt_us / 2)
		return;
	track->queue_samples++;
	track->queue_rtt_us += rtt;
	track->queue_bytes += unsent;
	if (rtt > track->queue_rtt_max_us)
		track->queue_rtt_max_us = rtt;
	if (unsent > track->queue_bytes_max)
		track->queue_bytes_max = unsent;
}

/*
 * Another write, and the same bytes still wait. The program has now released what it held back
 * itself; what Nagle's algorithm holds it keeps holding, even if the program says MSG_MORE.
 */
static __always_inline void still_held(struct track *track, __u32 why, __u64 now)
{
	bool own = track->held_why == MORE || track->held_why == CORKED;

	/* This write is not the one that releases them. */
	track->held_begun = track->begun;
	if (track->held_why == NAGLE && why == MORE)
		return;
	if (own && why == NAGLE)
		track->held_ns = now;
	track->held_why = why;
}

/* Looks at the queue after a write that has left bytes behind, or found some. */
static __always_inline void look_at_queue(struct track *track, struct tcp_sock *tp,
					  struct sock *sk)
{
	__u32 why = why_held(tp, sk, track->more);
	__u64 now = bpf_ktime_get_ns();

	if (track->held_ns) {
		if (why != FREE && track->held_seq == tp->snd_nxt) {
			still_held(track, why, now);
			return;
		}
		/* They were sent without being noticed. */
		let_go(track, tp, BY_WRITE, tp->snd_nxt, now);
	}
	if (why == FREE) {
		if (tp->write_seq != tp->snd_nxt)
			sample_queue(track, tp);
		return;
	}
	__sync_fetch_and_add(&holding, 1);
	track->held_ns = now;
	track->held_seq = tp->snd_nxt;
	track->held_why = why;
	track->held_begun = track->begun;
	track->held_pushes = track->options.pushes;
	track->held_outstanding = tp->snd_nxt - tp->snd_una;
	bpf_get_current_comm(track->writer.comm, sizeof(track->writer.comm));
	if (want_stacks)
		track->held_stack = look_at_stack();
}

/* An option that pushes does so before the call returns: longest time until then. */
#define AT_ONCE_NS 500000

static __always_inline __u32 cause(struct track *track, __u64 now)
{
	__u32 zero = 0;
	struct sending *timer = bpf_map_lookup_elem(&write_timer, &zero);

	if (timer && timer->runs)
		return BY_TIMER;
	if (track->options.pushes != track->held_pushes &&
	    now - track->options.pushed_ns < AT_ONCE_NS)
		return BY_OPTION;
	return (__u32)track->begun != track->held_begun ? BY_WRITE : BY_ACK;
}

/* A packet is handed to the device's queue. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(leaves, struct sk_buff *skb)
{
	unsigned char *header;
	struct track *track;
	__u32 seq, length;
	struct sock *sk;
	__u64 now;
	__u8 words;

	if (!holding)
		return 0;
	sk = skb->sk;
	if (!sk)
		return 0;
	track = bpf_sk_storage_get(&tracks, sk, 0, 0);
	if (!track || !track->held_ns)
		return 0;
	header = skb->head + skb->transport_header;
	if (bpf_probe_read_kernel(&seq, sizeof(seq), header + 4) ||
	    bpf_probe_read_kernel(&words, sizeof(words), header + 12))
		return 0;
	seq = bpf_ntohl(seq);
	length = skb->len - (__u32)(header - skb->data) - (words >> 4) * 4;
	/* A bare ACK has the sequence number of the first octet that waits, and no data. */
	if (!length || !before(track->held_seq, seq + length))
		return 0;
	now = bpf_ktime_get_ns();
	let_go(track, (struct tcp_sock *)sk, cause(track, now), seq + length, now);
	return 0;
}

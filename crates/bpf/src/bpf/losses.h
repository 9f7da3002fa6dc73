/* Segments that were sent again. */
#pragma once

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(sent_again, struct sock *sk, struct sk_buff *skb)
{
	struct track *track = bpf_sk_storage_get(&tracks, sk, 0, 0);
	struct tcp_sock *tp;
	struct event_lost *event;

	if (!track || !track->origin)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&dropped, 1);
		return 0;
	}
	event->type = EVENT_LOST;
	event->ca_state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
	event->cookie = track->cookie;
	event->tuple = track->tuple;
	event->at_ns = bpf_ktime_get_ns();
	event->waited_ns = event->at_ns - skb->skb_mstamp_ns;
	event->bytes = skb->len;
	event->timeouts = tp->inet_conn.icsk_retransmits;
	event->packets_out = tp->packets_out;
	event->srtt_us = tp->srtt_us >> 3;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

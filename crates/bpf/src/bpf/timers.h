/*
 * TCP's own timers. The delayed-ACK timer fires only when an ACK really was held back: segments that
 * are acknowledged at once need not be watched. The write timer ends corks.
 */
#pragma once

/* State between begin and end of a timer's function, on one processor. */
struct ack_due {
	__u64 since_ns;
	__u32 from;
	__u32 quick;
	__u32 pingpong;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ack_due);
} due SEC(".maps");

static __always_inline struct tcp_sock *socket_of_ack_timer(struct timer_list *timer)
{
	return (void *)timer - bpf_core_field_offset(struct inet_connection_sock, icsk_delack_timer);
}

static __always_inline void sending_begins(struct timer_list *timer)
{
	__u32 zero = 0;
	struct sending *sending = bpf_map_lookup_elem(&write_timer, &zero);
	__u32 offset = bpf_core_field_offset(struct inet_connection_sock, icsk_retransmit_timer);

	if (!sending)
		return;
	sending->runs = 1;
	sending->first_sent_ns = first_sent_ns((void *)timer - offset);
}

static __always_inline void sending_ends(void)
{
	__u32 zero = 0;
	struct sending *sending = bpf_map_lookup_elem(&write_timer, &zero);

	if (sending)
		sending->runs = 0;
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(timer_begins, struct timer_list *timer)
{
	__u64 function = (__u64)timer->function;
	struct tcp_sock *tp;
	struct ack_due *ack;
	__u32 zero = 0;
	__u8 state;

	if (!function)
		return 0;
	if (function == write_function) {
		sending_begins(timer);
		return 0;
	}
	if (function != ack_function)
		return 0;
	ack = bpf_map_lookup_elem(&due, &zero);
	if (!ack)
		return 0;
	tp = socket_of_ack_timer(timer);
	ack->from = BPF_CORE_READ(tp, rcv_wup);
	ack->since_ns = 0;
	if (BPF_CORE_READ(tp, rcv_nxt) == ack->from)
		return 0;
	/* Nobody waits for the ACK of a FIN. */
	state = BPF_CORE_READ(tp, inet_conn.icsk_inet.sk.__sk_common.skc_state);
	if (state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK)
		return 0;
	ack->since_ns = data_came_ns(BPF_CORE_READ(tp, tcp_mstamp),
				     BPF_CORE_READ(tp, inet_conn.icsk_ack.lrcvtime),
				     bpf_ktime_get_ns());
	ack->quick = BPF_CORE_READ(tp, inet_conn.icsk_ack.quick);
	ack->pingpong = BPF_CORE_READ(tp, inet_conn.icsk_ack.pingpong);
	return 0;
}

static __always_inline void ack_sent(struct tcp_sock *tp, struct ack_due *ack)
{
	struct sock *sk = (struct sock *)tp;
	struct connection *connection;
	struct event_ack_timer *event;
	struct tuple own, other;
	bool peer = false;
	__u64 now;

	addresses(&own, sk);
	connection = bpf_map_lookup_elem(&connections, &own);
	if (!connection) {
		turned(&other, &own);
		if (!bpf_map_lookup_elem(&connections, &other))
			return;
		peer = true;
	}
	now = bpf_ktime_get_ns();
	if (connection) {
		connection->ack_timer_ns = last_ack_timer_ns = now;
		connection->ack_held_us = (now - ack->since_ns) / 1000;
		connection->ack_timers++;
	}
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&dropped, 1);
		return;
	}
	event->type = EVENT_ACK_TIMER;
	event->pad = event->pad2 = 0;
	event->cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	event->tuple = own;
	event->inode = inode_of(sk);
	event->at_ns = now;
	event->held_ns = now - ack->since_ns;
	event->offset = BPF_CORE_READ(tp, bytes_received);
	event->bytes = BPF_CORE_READ(tp, rcv_wup) - ack->from;
	event->segments_in = BPF_CORE_READ(tp, data_segs_in);
	event->quick = ack->quick;
	event->pingpong = ack->pingpong;
	event->peer = peer;
	bpf_ringbuf_submit(event, 0);
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(timer_ends, struct timer_list *timer)
{
	__u64 function = (__u64)timer->function;
	struct tcp_sock *tp;
	struct ack_due *ack;
	__u32 zero = 0;

	if (!function)
		return 0;
	if (function == write_function) {
		sending_ends();
		return 0;
	}
	if (function != ack_function)
		return 0;
	ack = bpf_map_lookup_elem(&due, &zero);
	if (!ack || !ack->since_ns)
		return 0;
	tp = socket_of_ack_timer(timer);
	/* Unless the timer was not due yet, or the program had the socket locked. */
	if (BPF_CORE_READ(tp, rcv_wup) != ack->from)
		ack_sent(tp, ack);
	ack->since_ns = 0;
	return 0;
}

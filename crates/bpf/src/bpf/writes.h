/*
 * Calls that write. This is on the path of every request: a look-up and a reading of the clock
 * before the bytes are sent, a look-up and a few additions after; and a look-up and a reading of
 * the clock when data comes. Reads are not watched at all: the kernel's own copied_seq shows whether
 * something was read since the last write.
 */
#pragma once

/* linux/socket.h */
#define MSG_MORE 0x8000

/*
 * Notes when data comes (Linux 6.2 and later): TCP's own time stamps are renewed by
 * later events, or count jiffies.
 */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(data_came, struct sock *sk)
{
	struct track *track = bpf_sk_storage_get(&tracks, sk, 0, 0);

	if (track)
		track->came_ns = bpf_ktime_get_ns();
	return 0;
}

/*
 * Returns when the last data came, where that was not seen. tcp_mstamp is to the microsecond, but is renewed by whatever
 * is sent or comes after the data; lrcvtime is only renewed by data, but counts jiffies.
 */
static __always_inline __u64 data_came_ns(__u64 mstamp_us, __u32 lrcvtime, __u64 now)
{
	__u64 fine = mstamp_us * 1000;
	__u64 jiffy_ns = (__u64)jiffy_us() * 1000;
	__u64 coarse = (__u64)((__u32)bpf_jiffies64() - lrcvtime) * jiffy_ns;

	if (fine > now)
		fine = now;
	/* Both agree within a jiffy's rounding: the fine one is right. */
	if (now - fine + jiffy_ns >= coarse && see_begin)
		return fine;
	return coarse < now ? now - coarse : 0;
}

static __always_inline __u64 last_data_ns(struct track *track, struct tcp_sock *tp, __u64 now)
{
	if (see_data && track->came_ns)
		return track->came_ns;
	return data_came_ns(tp->tcp_mstamp, tp->inet_conn.icsk_ack.lrcvtime, now);
}

/* Closes the message before the one that begins now. */
static __always_inline void close_message(struct track *track, struct tcp_sock *tp)
{
	__u32 bytes = tp->write_seq - track->message_seq;
	__u32 segments = tp->data_segs_out - track->message_segments;

	if (!track->message_open || !track->message_writes)
		return;
	track->messages++;
	track->message_bytes += bytes;
	track->message_segments_sum += segments;
	track->message_writes_sum += track->message_writes;
	track->writing_ns += track->last_ns - track->message_ns;
	note_size(track->size_count, track->size_sum, bytes);
	note_size(track->segment_count, track->segment_sum, segments);
	track->message_writes = 0;
	track->message_open = 0;
}

/*
 * The rest of an answer came right after a late ACK of ours, within a round trip and the time
 * of two interrupts: it had waited for that ACK. Only detected if the other end is not on this host.
 */
static __always_inline void note_awaited(struct track *track, struct tcp_sock *tp, __u64 came)
{
	struct connection *connection;
	__u64 soon;

	if (last_ack_timer_ns < track->message_ns)
		return;
	connection = bpf_map_lookup_elem(&connections, &track->tuple);
	if (!connection || connection->ack_timer_ns < track->message_ns)
		return;
	soon = connection->ack_timer_ns + (__u64)tp->rtt_min.s[0].v * 1250 + 2000000;
	if (came > connection->ack_timer_ns && came < soon) {
		track->awaited_acks++;
		track->awaited_ack_ns += (__u64)connection->ack_held_us * 1000;
	}
}

static __always_inline void answered(struct track *track, struct tcp_sock *tp, __u64 came)
{
	__u64 took;

	if (!track->message_writes || came <= track->message_ns)
		return;
	took = came - track->message_ns;
	track->waits++;
	track->wait_ns += took;
	if (took > track->wait_max_ns)
		track->wait_max_ns = took;
	note_time(track->wait_times, track->wait_sums, took);
	note_awaited(track, tp, came);
}

static __always_inline void next_message(struct track *track, struct tcp_sock *tp, __u64 now)
{
	bool answers = tp->copied_seq != track->copied_seq;
	__u64 came = now, took;

	if (answers)
		came = last_data_ns(track, tp, now);
	/* What a server's client does between its requests is that client's business, and the time that
	 * a client's program thinks is its own. */
	if (answers && track->origin != ACCEPTED)
		answered(track, tp, came);
	if (answers && track->origin != OPENED) {
		took = now - came;
		track->turns++;
		track->turn_ns += took;
		if (took > track->turn_max_ns)
			track->turn_max_ns = took;
		note_time(track->turn_times, track->turn_sums, took);
	}
	close_message(track, tp);
	track->copied_seq = tp->copied_seq;
	track->message_open = 1;
	track->message_ns = now;
	track->message_seq = tp->write_seq;
	track->message_segments = tp->data_segs_out;
}

static __always_inline void begins(struct track *track, struct tcp_sock *tp)
{
	__u64 now = bpf_ktime_get_ns();

	if (tp->copied_seq != track->copied_seq || !track->message_open ||
	    (now - track->last_ns > pause_ns && !track->held_ns))
		next_message(track, tp, now);
	track->begun++;
	track->last_ns = now;
}

/* Before the bytes are sent; once for each buffer that a large write fills. */
static __always_inline int write_begins(struct sock *sk, struct msghdr *msg)
{
	struct track *track = bpf_sk_storage_get(&tracks, sk, 0, 0);
	struct tcp_sock *tp;

	if (!track)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp)
		begins(track, tp);
	track->more = msg->msg_flags & MSG_MORE;
	return 0;
}

static __always_inline int write_ended(struct sock *sk, int written)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct track *track;
	__u64 id;

	if (!tp)
		return 0;
	track = bpf_sk_storage_get(&tracks, sk, 0, 0);
	if (!track || !track->origin) {
		if (tp->write_seq == tp->snd_nxt || written <= 0)
			return 0;
		track = adopt(sk, tp);
		if (!track)
			return 0;
	}
	if (written <= 0)
		return 0;
	if (!see_begin || !track->message_open)
		begins(track, tp);
	/* An accepted socket gets its inode after it is established. */
	if (!track->inode)
		track->inode = inode_of(sk);
	track->message_writes++;
	track->writes++;
	track->written_bytes += written;
	id = bpf_get_current_pid_tgid();
	if (id != track->writer_id) {
		track->writer_id = id;
		id = current_ids();
		track->writer.pid = id >> 32;
		track->writer.tid = (__u32)id;
	}
	if (tp->write_seq != tp->snd_nxt || track->held_ns)
		look_at_queue(track, tp, sk);
	return 0;
}

/* Linux 6.16 and later. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(write_begins_tp, struct sock *sk, struct msghdr *msg)
{
	return write_begins(sk, msg);
}

/* Earlier kernels: the function itself. */
SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(write_begins_fn, struct sock *sk, struct msghdr *msg)
{
	return write_begins(sk, msg);
}

/* Linux 6.3 and later. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(write_ended_tp, struct sock *sk, int written)
{
	return write_ended(sk, written);
}

SEC("fexit/tcp_sendmsg")
int BPF_PROG(write_ended_fn, struct sock *sk, struct msghdr *msg, unsigned long size, int written)
{
	return write_ended(sk, written);
}

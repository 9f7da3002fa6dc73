/*
 * Selects the traced sockets: those that a traced process opens or listens with, those that it has
 * when tracing begins, and the other ends of both if they are on this host.
 */
#pragma once

static __always_inline void connect_up(struct track *track)
{
	struct connection fresh = { .cookie = track->cookie };

	bpf_map_update_elem(&connections, &track->tuple, &fresh, BPF_ANY);
}

static __always_inline struct track *begin(struct sock *sk, struct tcp_sock *tp, __u32 origin,
					   const struct who *owner, __s32 fd)
{
	struct track *track = bpf_sk_storage_get(&tracks, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (!track) {
		__sync_fetch_and_add(&refused, 1);
		return NULL;
	}
	track->cookie = bpf_get_socket_cookie(sk);
	addresses(&track->tuple, sk);
	if (owner)
		track->owner = *owner;
	track->inode = inode_of(sk);
	track->fd = fd;
	track->origin = origin;
	track->since_ns = track->last_ns = bpf_ktime_get_ns();
	count(&track->base, tp);
	track->copied_seq = tp->copied_seq;
	track->message_seq = tp->write_seq;
	track->message_segments = tp->data_segs_out;
	if (!ack_function) {
		ack_function = (__u64)BPF_CORE_READ(tp, inet_conn.icsk_delack_timer.function);
		write_function = (__u64)BPF_CORE_READ(tp, inet_conn.icsk_retransmit_timer.function);
	}
	if (track->tuple.remote_port && origin != PEER)
		connect_up(track);
	return track;
}

/* The other end of a traced connection is traced from when it first holds something up. */
static __always_inline struct track *adopt(struct sock *sk, struct tcp_sock *tp)
{
	struct tuple own, other;
	struct who owner;

	addresses(&own, sk);
	turned(&other, &own);
	if (!bpf_map_lookup_elem(&connections, &other))
		return NULL;
	current_who(&owner);
	return begin(sk, tp, PEER, &owner, -1);
}

static __always_inline void port_of(struct port *port, struct sock *sk)
{
	port->namespace = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	port->port = sk->__sk_common.skc_num;
}

/* A traced process connects or listens: both happen in the process itself. */
static __always_inline void opened(struct sock *sk, struct tcp_sock *tp, int state)
{
	struct port port;
	struct who owner;

	if (traced(current_ids() >> 32) != WHOLE)
		return;
	current_who(&owner);
	if (state == TCP_SYN_SENT) {
		begin(sk, tp, OPENED, &owner, -1);
		return;
	}
	port_of(&port, sk);
	bpf_map_update_elem(&listeners, &port, &owner, BPF_ANY);
}

/* A connection is established: a traced process's own, or one to its port. */
static __always_inline void established(struct sock *sk, struct tcp_sock *tp, struct track *track)
{
	struct who *owner;
	struct port port;

	if (track && track->origin) {
		addresses(&track->tuple, sk);
		connect_up(track);
		return;
	}
	port_of(&port, sk);
	owner = bpf_map_lookup_elem(&listeners, &port);
	if (owner)
		begin(sk, tp, ACCEPTED, owner, -1);
}

/* Finds sockets that traced processes have open already. User space reads it once, after naming them. */
SEC("iter/task_file")
int descriptors_open(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct tcp_sock *tp;
	struct who owner = {};
	struct port port;
	struct sock *sk;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk || !tcp(sk))
		return 0;
	owner.pid = owner.tid = process_of(task);
	if (traced(owner.pid) != WHOLE)
		return 0;
	BPF_CORE_READ_STR_INTO(&owner.comm, task, group_leader, comm);
	if (sk->__sk_common.skc_state == TCP_LISTEN) {
		port_of(&port, sk);
		bpf_map_update_elem(&listeners, &port, &owner, BPF_ANY);
		return 0;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || sk->__sk_common.skc_state == TCP_CLOSE || bpf_sk_storage_get(&tracks, sk, 0, 0))
		return 0;
	begin(sk, tp, FOUND, &owner, ctx->fd);
	return 0;
}

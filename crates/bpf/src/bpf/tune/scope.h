/* Selects the sockets. */
#pragma once

/* Most levels of cgroups: the verifier wants a bound. */
#define DEEPEST 32

static __always_inline bool in_cgroup(struct tcp_sock *tp)
{
	struct cgroup *cgroup = tp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup;
	int i;

	/* Most often it is this cgroup itself, and the comparison needs no probe read. */
	if (cgroup->kn->id == settings.cgroup_id)
		return true;
	for (i = 0; i < DEEPEST && cgroup; i++) {
		if (BPF_CORE_READ(cgroup, kn, id) == settings.cgroup_id)
			return true;
		/* A cgroup begins with its own css, and so does its parent. */
		cgroup = (void *)BPF_CORE_READ(cgroup, self.parent);
	}
	return false;
}

static __always_inline bool to_peer(struct tcp_sock *tp)
{
	const struct sock_common *common = &tp->inet_conn.icsk_inet.sk.__sk_common;
	__u32 address[4] = { 0, 0, bpf_htonl(0xffff), 0 };
	int i;

	/* Any peer: a mask has its first bits set, or none. */
	if (!settings.peer_mask[0])
		return true;
	if (BPF_CORE_READ(common, skc_family) == AF_INET6)
		BPF_CORE_READ_INTO(&address, common, skc_v6_daddr.in6_u.u6_addr32);
	else
		address[3] = BPF_CORE_READ(common, skc_daddr);
	for (i = 0; i < 4; i++)
		if ((address[i] & settings.peer_mask[i]) != settings.peer[i])
			return false;
	return true;
}

/* Whether its route leads over the device. The route is cached on connecting, and again when routes change. */
static __always_inline bool over_device(struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	return (__u32)BPF_CORE_READ(sk, sk_dst_cache, dev, ifindex) == settings.device;
}

/* `tagged`: whether the socket belongs to a selected process. */
static __always_inline bool meant(struct tcp_sock *tp, bool tagged)
{
	const struct sock_common *common = &tp->inet_conn.icsk_inet.sk.__sk_common;

	if (settings.by_process && !tagged)
		return false;
	if (settings.netns_cookie &&
	    BPF_CORE_READ(common, skc_net.net, net_cookie) != settings.netns_cookie)
		return false;
	if (settings.port && BPF_CORE_READ(common, skc_num) != settings.port &&
	    bpf_ntohs(BPF_CORE_READ(common, skc_dport)) != settings.port)
		return false;
	if (settings.cgroup_id && !in_cgroup(tp))
		return false;
	if (settings.device && !over_device(tp))
		return false;
	return to_peer(tp);
}

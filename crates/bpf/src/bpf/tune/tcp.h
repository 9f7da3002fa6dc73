/* Distinguishes TCP sockets from others. */
#pragma once

static __always_inline bool tcp(struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return sk->sk_protocol == IPPROTO_TCP && sk->sk_type == SOCK_STREAM &&
	       (family == AF_INET || family == AF_INET6);
}

/*
 * Who owns a packet: the kernel, or a TCP stack in user space on the same address. One program takes
 * the kernel's copy of what is not its own away, behind packet sockets and before IP, so that it does
 * not answer with a reset; the other lets only what is the stack's into its packet socket.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "owned/packet.h"
#include "owned/maps.h"

/* linux/bpf.h: enum tcx_action_base. */
#define TCX_NEXT (-1)
#define TCX_DROP 2

static __always_inline bool is_owned(const struct packet *packet)
{
	struct connection connection = {};
	struct listener listener = {};

	if (bpf_map_lookup_elem(&addresses, &packet->local))
		return true;
	if (!packet->has_ports)
		return false;
	connection.local = packet->local;
	connection.remote = packet->remote;
	connection.local_port = packet->local_port;
	connection.remote_port = packet->remote_port;
	connection.protocol = packet->protocol;
	if (bpf_map_lookup_elem(&connections, &connection))
		return true;
	listener.local = packet->local;
	listener.port = packet->local_port;
	listener.protocol = packet->protocol;
	if (bpf_map_lookup_elem(&listeners, &listener))
		return true;
	/* On any address. */
	__builtin_memset(&listener.local, 0, sizeof(listener.local));
	return bpf_map_lookup_elem(&listeners, &listener) != NULL;
}

SEC("tcx/ingress")
int drop_owned(struct __sk_buff *skb)
{
	struct packet packet = {};
	__u32 key = 0;
	__u64 *count;

	if (!read_packet(skb, &packet) || !is_owned(&packet))
		return TCX_NEXT;
	count = bpf_map_lookup_elem(&dropped, &key);
	if (count)
		*count += 1;
	return TCX_DROP;
}

/* How much of a frame the packet socket gets: all, or nothing. */
SEC("socket")
int take_owned(struct __sk_buff *skb)
{
	struct packet packet = {};

	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return settings.neighbours ? -1 : 0;
	if (!read_packet(skb, &packet))
		return 0;
	if (is_owned(&packet) || is_icmp_error(&packet))
		return -1;
	return settings.neighbours && is_neighbour_discovery(&packet) ? -1 : 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

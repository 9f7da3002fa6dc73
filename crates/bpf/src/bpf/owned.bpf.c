/*
 * Who owns a packet: the kernel, or a TCP stack in user space on the same address. One program takes
 * the kernel's copy of what is not its own away, behind packet sockets and before IP, so that it does
 * not answer with a reset; the other lets only what is one engine's into that one's packet socket. What is
 * handed over to sockets of AF_XDP is in redirect.bpf.c.
 *
 * Nothing here depends on where the kernel has its members: libbpf would read all of its type information, five
 * milliseconds long, for each engine.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "owned/packet.h"
#include "owned/maps.h"
#include "owned/owner.h"

/* linux/bpf.h: enum tcx_action_base. */
#define TCX_NEXT (-1)
#define TCX_DROP 2

SEC("tcx/ingress")
int drop_owned(struct __sk_buff *skb)
{
	struct packet packet = {};

	if (!read_packet(skb, &packet) || owner(&packet, LOOKED_UP, KERNEL) == KERNEL)
		return TCX_NEXT;
	count_dropped();
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
	if (owner(&packet, WRITTEN_DOWN, settings.engine) == settings.engine || is_icmp_error(&packet))
		return -1;
	return settings.neighbours && is_neighbour_discovery(&packet) ? -1 : 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/*
 * Who owns a packet: the kernel, or a TCP stack in user space on the same address. One program takes
 * the kernel's copy of what is not its own away, behind packet sockets and before IP, so that it does
 * not answer with a reset; the other lets only what is one engine's into that one's packet socket. The
 * third hands what is one engine's over to its sockets of AF_XDP, before the kernel or anybody else sees it; the
 * fourth does so for several engines, each with queues of its own.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "owned/packet.h"
#include "owned/maps.h"
#include "owned/owner.h"
#include "owned/mark.h"
#include "owned/redirect.h"

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

SEC("xdp.frags")
int redirect_owned(struct xdp_md *xdp)
{
	int action = XDP_DROP;
	const struct sk_buff *skb;

	if (!is_for_engine(xdp))
		return XDP_PASS;
	/*
	 * What the engine owns is dropped if there is nobody to take it: the kernel would answer with a
	 * reset, and the other end sends it again.
	 */
	skb = settings.marks ? buffer_of(xdp) : NULL;
	if (is_of_vlan(skb))
		return XDP_PASS;
	if (!settings.marks || leave_mark(xdp, mark_of(skb)))
		action = bpf_redirect_map(&sockets, xdp->rx_queue_index, XDP_DROP);
	if (action == XDP_DROP)
		count_dropped();
	return action;
}

/* What it does not hand over comes to the engines by their packet sockets: nothing is lost here. */
SEC("xdp.frags")
int redirect_by_queue(struct xdp_md *xdp)
{
	__u32 queue = xdp->rx_queue_index;
	const __u32 *engine = bpf_map_lookup_elem(&engines, &queue);
	const struct sk_buff *skb;

	if (!engine || *engine == KERNEL || !is_engines(xdp, *engine))
		return XDP_PASS;
	skb = settings.marks ? buffer_of(xdp) : NULL;
	if (is_of_vlan(skb) || (settings.marks && !leave_mark(xdp, mark_of(skb))))
		return XDP_PASS;
	return bpf_redirect_map(&sockets, queue, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/*
 * Redirects frames to AF_XDP sockets, before the kernel or anybody else sees them: one program for a single engine,
 * the other for several engines, each with queues of its own. owned/owner.h decides which engine owns a frame.
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

SEC("xdp.frags")
int redirect_owned(struct xdp_md *xdp)
{
	int action = XDP_DROP;
	const struct sk_buff *skb;

	if (!is_for_engine(xdp))
		return XDP_PASS;
	/*
	 * A frame that the engine owns is dropped if no socket takes it: the kernel would answer with a
	 * reset, while a dropped frame is retransmitted.
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

/* Frames that it does not redirect reach the engines by their packet sockets: nothing is lost here. */
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

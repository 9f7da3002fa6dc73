/*
 * Decides whether a packet is the kernel's, or a user-space TCP stack's on the same address. One program drops the
 * kernel's copy of what a stack owns, after packet sockets and before IP, so that the kernel does not answer with a
 * reset; the others let only an engine's own packets into its packet socket, which is either the only one, or one of
 * a group. Redirection to AF_XDP sockets is in redirect.bpf.c.
 *
 * Nothing here uses the offsets of kernel structures: libbpf would parse all of the kernel's type information, which
 * takes five milliseconds, for each engine.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "owned/packet.h"
#include "owned/maps.h"
#include "owned/owner.h"
#include "owned/group.h"

/* linux/bpf.h: enum tcx_action_base. */
#define TCX_NEXT (-1)
#define TCX_DROP 2
/* linux/bpf.h: a flag of bpf_redirect. */
#define BPF_F_INGRESS 1

SEC("tcx/ingress")
int drop_owned(struct __sk_buff *skb)
{
	struct packet packet = {};
	__u32 engine;

	/* Most packets are an engine's, and their owner was determined a moment ago. */
	if (was_taken(skb)) {
		count_dropped();
		return TCX_DROP;
	}
	if (!read_packet(skb, link_bytes(), &packet))
		return TCX_NEXT;
	engine = owner(&packet, LOOKED_UP, KERNEL);
	if (has_missed(skb, engine))
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	if (engine == KERNEL)
		return TCX_NEXT;
	count_dropped();
	return TCX_DROP;
}

static __always_inline bool is_engines(struct __sk_buff *skb, struct packet *packet)
{
	return read_packet(skb, link_bytes(), packet) &&
	       owner(packet, WRITTEN_DOWN, settings.engine) == settings.engine;
}

/* Returns how much of a frame a packet socket in no group receives: all, or nothing. */
SEC("socket")
int take_owned(struct __sk_buff *skb)
{
	struct packet packet = {};
	bool is_taken = is_engines(skb, &packet);

	note_taken(skb, is_taken);
	if (is_taken || is_icmp_error(&packet))
		return -1;
	if (skb->protocol == bpf_htons(ETH_P_ARP) || is_neighbour_discovery(&packet))
		return settings.neighbours ? -1 : 0;
	return 0;
}

/* Chooses the group member that gets a frame. The link-layer header has been removed (packet_rcv_fanout). */
SEC("socket")
int choose_engine(struct __sk_buff *skb)
{
	struct packet packet = {}, quoting = {};
	struct frame frame = { .skb = skb };
	__u32 engine;

	if (!read_packet(skb, 0, &packet))
		return choose(skb, KERNEL, false);
	engine = owner(&packet, WRITTEN_DOWN, ANYONE);
	if (engine == KERNEL && read_quoted(&frame, &packet, &quoting))
		return choose(skb, owner(&quoting, LOOKED_UP, ANYONE), true);
	return choose(skb, engine, false);
}

/* Returns how much of a frame a member's socket receives. */
SEC("socket")
int take_chosen(struct __sk_buff *skb)
{
	return is_chosen(skb) ? -1 : 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

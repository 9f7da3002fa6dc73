/*
 * Who owns a packet: the kernel, or a TCP stack in user space on the same address. One program takes
 * the kernel's copy of what is not its own away, behind packet sockets and before IP, so that it does
 * not answer with a reset; the others let only what is one engine's into that one's packet socket, the only one's, or
 * one of a group's. What is handed over to sockets of AF_XDP is in redirect.bpf.c.
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
#include "owned/group.h"

/* linux/bpf.h: enum tcx_action_base. */
#define TCX_NEXT (-1)
#define TCX_DROP 2
/* linux/bpf.h: of bpf_redirect. */
#define BPF_F_INGRESS 1

SEC("tcx/ingress")
int drop_owned(struct __sk_buff *skb)
{
	struct packet packet = {};
	__u32 engine;

	/* Most are an engine's, and whose they are was found out a moment ago. */
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

/* How much of a frame the packet socket gets that is in no group: all, or nothing. */
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

/* Which member of a group gets a frame. What stands before IP is not there for it (packet_rcv_fanout). */
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

/* How much of a frame a member's socket gets. */
SEC("socket")
int take_chosen(struct __sk_buff *skb)
{
	return is_chosen(skb) ? -1 : 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

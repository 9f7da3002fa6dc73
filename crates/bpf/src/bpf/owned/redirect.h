/*
 * Selects the received frames of one engine. Unlike a packet socket, an AF_XDP socket takes a frame
 * away from the kernel, so frames that both may want are examined more closely.
 */
#pragma once

/* linux/bpf.h: enum xdp_action. */
#define XDP_DROP 1
#define XDP_PASS 2

/* RFC 826: offset of the target address, counted from the Ethernet header. */
#define ARP_TARGET_AT (ETHERNET_BYTES + 24)
/* RFC 4861 4.3: offset of the target address. */
#define NEIGHBOUR_SOLICITATION 135
#define TARGET_BYTES 8

/* The AF_XDP sockets, by queue. Its size is set on loading, to the number of the device's queues. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* The engine of each queue, where several engines share a device. As many entries as there are queues. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} engines SEC(".maps");

static __always_inline bool is_of_address(const struct address *address)
{
	const __u32 *engine = bpf_map_lookup_elem(&addresses, address);

	return engine && *engine == settings.engine;
}

/* Both the kernel and the stack have neighbours: each gets what is addressed to an address of its own. */
static __always_inline bool is_arp_for_engine(const struct frame *frame)
{
	struct address target = {};
	__u32 v4;

	if (!settings.neighbours || !load(frame, ARP_TARGET_AT, &v4, sizeof(v4)))
		return false;
	map_v4(&target, v4);
	return is_of_address(&target);
}

/* An answer goes to the asking address, which was checked before; a solicitation goes to a multicast group. */
static __always_inline bool is_solicitation_for_engine(const struct frame *frame,
						      const struct packet *packet)
{
	struct address target;

	if (!settings.neighbours || packet->protocol != IPPROTO_ICMPV6 ||
	    packet->type != NEIGHBOUR_SOLICITATION)
		return false;
	if (!load(frame, packet->transport_at + TARGET_BYTES, &target, sizeof(target)))
		return false;
	return is_of_address(&target);
}

static __always_inline bool is_about_ours(const struct frame *frame, const struct packet *packet)
{
	struct packet ours = {};

	return read_quoted(frame, packet, &ours) &&
	       owner(&ours, NONE, settings.engine) == settings.engine;
}

static __always_inline bool is_for_engine(struct xdp_md *xdp)
{
	struct frame frame = { .xdp = xdp, .is_xdp = true };
	struct packet packet = { .device = xdp->ingress_ifindex };
	__be16 protocol;

	/* A tagged frame has none of these protocols. */
	if (!load(&frame, ETHERNET_BYTES - sizeof(protocol), &protocol, sizeof(protocol)))
		return false;
	if (protocol == bpf_htons(ETH_P_ARP))
		return is_arp_for_engine(&frame);
	if (!read_ip(&frame, protocol, ETHERNET_BYTES, &packet))
		return false;
	return owner(&packet, NONE, settings.engine) == settings.engine ||
	       is_solicitation_for_engine(&frame, &packet) || is_about_ours(&frame, &packet);
}

/*
 * Whether a frame is the engine's, where each engine has queues of its own and a packet socket beside them, which receives
 * all else: frames that come by another's queue, errors, and neighbour discovery, of which the kernel has to know.
 */
static __always_inline bool is_engines(struct xdp_md *xdp, __u32 engine)
{
	struct frame frame = { .xdp = xdp, .is_xdp = true };
	struct packet packet = { .device = xdp->ingress_ifindex };
	__be16 protocol;

	if (!load(&frame, ETHERNET_BYTES - sizeof(protocol), &protocol, sizeof(protocol)))
		return false;
	return read_ip(&frame, protocol, ETHERNET_BYTES, &packet) &&
	       owner(&packet, WRITTEN_DOWN, engine) == engine;
}

/* The parts of a packet that decide who owns it. */
#pragma once

#define ETH_P_IP 0x0800
#define ETH_P_ARP 0x0806
#define ETH_P_IPV6 0x86dd
#define ETHERNET_BYTES 14

#define IPPROTO_HOPOPTS 0
#define IPPROTO_ICMP 1
#define IPPROTO_UDP 17
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_ICMPV6 58
#define IPPROTO_DSTOPTS 60

#define IPV4_BYTES 20
#define IPV6_BYTES 40
/* RFC 9293 3.1. */
#define TCP_FLAGS_AT 13
#define TCP_SYN 0x02
#define TCP_ACK 0x10
/* Most extension headers that are skipped; a packet with more is the kernel's. */
#define EXTENSIONS 4
/* How far a packet is read: four extension headers, each of the longest, and what an error quotes. */
#define HEADERS_BYTES 16384
/* RFC 792, RFC 4443 3: the quoted packet follows an error's header. */
#define ICMP_ERROR_BYTES 8
/* The VLAN identifier within a tag (IEEE 802.1Q); zero means priority only. */
#define VLAN_NUMBER 0x0fff

/* The beginning of linux/bpf.h's, whose members the kernel translates by offset, not by name. */
struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
};

/* Layout shared with user space. */
struct settings {
	/* Whether an Ethernet header precedes IP. */
	__u8 ethernet;
	/* Whether the stack resolves its neighbours itself. */
	__u8 neighbours;
	/* Whether a redirected frame gets a word that says what is known of its checksum. */
	__u8 marks;
	__u8 unused;
	/* The engine that owns the sockets. */
	__u32 engine;
	/* Seed of the hash that distributes connections. */
	__u32 seed;
	/* Number of a socket in a group. */
	__u32 socket;
};

const volatile struct settings settings = { .ethernet = 1, .engine = 1 };

/* IPv4 addresses are mapped into IPv6 (RFC 4291 2.5.5.2). */
struct address {
	__u32 words[4];
};

/* A program's input: an sk_buff, or an XDP frame that has none yet. */
struct frame {
	struct __sk_buff *skb;
	struct xdp_md *xdp;
	/* Which of them it is: constant when a program is compiled. */
	bool is_xdp;
};

struct packet {
	struct address local;
	struct address remote;
	__be16 local_port;
	__be16 remote_port;
	__u8 protocol;
	bool has_ports;
	/* TCP: the first segment of a connection. */
	bool is_first;
	/* TCP: a SYN, also one that answers. */
	bool is_syn;
	/* Type of an ICMP message. */
	__u8 type;
	/* Offset of the TCP, UDP or ICMP header. */
	__u32 transport_at;
	/* Index of the device by which it came; 0 for a packet that an error quotes, which came by none. */
	__u32 device;
};

/* Headers are in a frame's first buffer, where they can be read without a call. */
static __always_inline bool load_xdp(struct xdp_md *xdp, __u32 at, void *to, __u32 bytes)
{
	void *from = (void *)(long)xdp->data;
	void *end = (void *)(long)xdp->data_end;

	if (at > HEADERS_BYTES)
		return false;
	/* The compiler knows that this is in bounds, the kernel's verifier does not: keep the check. */
	asm volatile("" : "+r"(at));
	from += at;
	if (from + bytes > end)
		return bpf_xdp_load_bytes(xdp, at, to, bytes) == 0;
	__builtin_memcpy(to, from, bytes);
	return true;
}

/* An sk_buff is read by a call: direct access takes CAP_PERFMON in addition to CAP_BPF. */
static __always_inline bool load(const struct frame *frame, __u32 at, void *to, __u32 bytes)
{
	if (frame->is_xdp)
		return load_xdp(frame->xdp, at, to, bytes);
	return bpf_skb_load_bytes(frame->skb, at, to, bytes) == 0;
}

/* Reads TCP's ports and flags at once; a packet that an error quotes may end between them. */
static __always_inline bool read_tcp(const struct frame *frame, __u32 at, struct packet *packet)
{
	struct {
		__be16 ports[2];
		__u8 others[TCP_FLAGS_AT - 4];
		__u8 flags;
	} head;

	if (!load(frame, at, &head, sizeof(head)))
		return false;
	packet->remote_port = head.ports[0];
	packet->local_port = head.ports[1];
	packet->has_ports = true;
	packet->is_first = (head.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	packet->is_syn = head.flags & TCP_SYN;
	return true;
}

static __always_inline void read_transport(const struct frame *frame, __u32 at,
					    struct packet *packet)
{
	__be16 ports[2];

	packet->transport_at = at;
	if (packet->protocol == IPPROTO_TCP && read_tcp(frame, at, packet))
		return;
	if (packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_UDP) {
		if (!load(frame, at, ports, sizeof(ports)))
			return;
		packet->remote_port = ports[0];
		packet->local_port = ports[1];
		packet->has_ports = true;
	}
	if (packet->protocol == IPPROTO_ICMP || packet->protocol == IPPROTO_ICMPV6)
		load(frame, at, &packet->type, sizeof(packet->type));
}

static __always_inline void map_v4(struct address *address, __u32 v4)
{
	address->words[2] = bpf_htonl(0xffff);
	address->words[3] = v4;
}

static __always_inline bool read_ipv4(const struct frame *frame, __u32 at, struct packet *packet)
{
	__u32 words[IPV4_BYTES / 4];
	__u8 *octets = (__u8 *)words;

	if (!load(frame, at, words, sizeof(words)))
		return false;
	packet->protocol = octets[9];
	map_v4(&packet->remote, words[3]);
	map_v4(&packet->local, words[4]);
	/* A later fragment has no ports. */
	if (!((octets[6] & 0x1f) | octets[7]))
		read_transport(frame, at + (octets[0] & 0x0f) * 4, packet);
	return true;
}

static __always_inline bool read_ipv6(const struct frame *frame, __u32 at, struct packet *packet)
{
	__u32 words[IPV6_BYTES / 4];
	__u8 next, extension[4];
	int i;

	if (!load(frame, at, words, sizeof(words)))
		return false;
	next = ((__u8 *)words)[6];
	__builtin_memcpy(&packet->remote, &words[2], sizeof(packet->remote));
	__builtin_memcpy(&packet->local, &words[6], sizeof(packet->local));
	at += IPV6_BYTES;
	for (i = 0; i < EXTENSIONS; i++) {
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING &&
		    next != IPPROTO_DSTOPTS && next != IPPROTO_FRAGMENT)
			break;
		if (!load(frame, at, extension, sizeof(extension)))
			return true;
		/* A later fragment has no ports. */
		if (next == IPPROTO_FRAGMENT && (extension[2] | (extension[3] & 0xf8)))
			return true;
		at += next == IPPROTO_FRAGMENT ? 8 : (extension[1] + 1) * 8;
		next = extension[0];
	}
	packet->protocol = next;
	read_transport(frame, at, packet);
	return true;
}

/* Returns false if it is not IP. */
static __always_inline bool read_ip(const struct frame *frame, __be16 protocol, __u32 at,
				    struct packet *packet)
{
	if (protocol == bpf_htons(ETH_P_IP))
		return read_ipv4(frame, at, packet);
	if (protocol == bpf_htons(ETH_P_IPV6))
		return read_ipv6(frame, at, packet);
	return false;
}

/* Length of the header before IP. */
static __always_inline __u32 link_bytes(void)
{
	return settings.ethernet ? ETHERNET_BYTES : 0;
}

/* Reads a packet whose IP header is at `at`. Returns false if it is not IP, or of a VLAN, which is another network. */
static __always_inline bool read_packet(struct __sk_buff *skb, __u32 at, struct packet *packet)
{
	struct frame frame = { .skb = skb };

	if (skb->vlan_present && (skb->vlan_tci & VLAN_NUMBER))
		return false;
	packet->device = skb->ifindex;
	return read_ip(&frame, skb->protocol, at, packet);
}

/* Errors that may be about a packet of the stack. The kernel knows no socket for them, and ignores them. */
static __always_inline bool is_icmp_error(const struct packet *packet)
{
	/* Unreachable, time exceeded, parameter problem (RFC 792). */
	if (packet->protocol == IPPROTO_ICMP)
		return packet->type == 3 || packet->type == 11 || packet->type == 12;
	/* RFC 4443 2.1: errors are below 128. */
	return packet->protocol == IPPROTO_ICMPV6 && packet->type && packet->type < 128;
}

/* Reads the packet that an error quotes, with its ends swapped, as the stack had sent it; false if none can be read. */
static __always_inline bool read_quoted(const struct frame *frame, const struct packet *packet,
					struct packet *ours)
{
	struct packet quoted = {};
	__u32 at = packet->transport_at + ICMP_ERROR_BYTES;
	bool read = false;

	if (!is_icmp_error(packet))
		return false;
	if (packet->protocol == IPPROTO_ICMP)
		read = read_ipv4(frame, at, &quoted);
	else
		read = read_ipv6(frame, at, &quoted);
	if (!read || !quoted.has_ports)
		return false;
	ours->local = quoted.remote;
	ours->remote = quoted.local;
	ours->local_port = quoted.remote_port;
	ours->remote_port = quoted.local_port;
	ours->protocol = quoted.protocol;
	ours->has_ports = true;
	return true;
}

/* From router solicitations to redirects (RFC 4861 4). */
static __always_inline bool is_neighbour_discovery(const struct packet *packet)
{
	return packet->protocol == IPPROTO_ICMPV6 && packet->type >= 133 && packet->type <= 137;
}

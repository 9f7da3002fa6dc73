/* Finds the owner of a packet, by the entries of user space in the maps. */
#pragma once

/* Hashes with a secret seed, so that a remote host cannot choose the engine that it burdens. */
static __always_inline __u32 mixed(const struct packet *packet)
{
	const __u32 words[] = {
		packet->remote.words[0], packet->remote.words[1], packet->remote.words[2],
		packet->remote.words[3], packet->local.words[3],
		(__u32)packet->remote_port << 16 | packet->local_port,
	};
	__u32 hash = settings.seed, i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		hash = (hash ^ words[i]) * 0x9e3779b1;
		hash ^= hash >> 15;
	}
	/* Until each bit depends on all: with few members the low bits count (MurmurHash3's fmix32). */
	hash = (hash ^ hash >> 16) * 0x85ebca6b;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35;
	return hash ^ hash >> 16;
}

/* Returns one of the members of a port; for a connection always the same while the members are the same. */
static __always_inline __u32 member(const struct members *members, const struct packet *packet)
{
	__u32 count = members->count, i;

	if (!count || count > MEMBERS)
		return KERNEL;
	i = mixed(packet) % count;
	/* The compiler knows that this is in bounds, the kernel's verifier does not: keep the check. */
	asm volatile("" : "+r"(i));
	return i < MEMBERS ? members->engines[i] : KERNEL;
}

/* How a program treats members that change. */
enum changes {
	/* The members do not change: the engine has its ports alone. */
	NONE,
	/* The program looks up recorded connections. */
	LOOKED_UP,
	/* It also records new ones of `mine`: its engine, or any engine. */
	WRITTEN_DOWN,
};

static __always_inline bool stands(const struct listener *listener, __u32 engine)
{
	struct standing key = { .listener = *listener, .engine = engine };
	const __u32 *how = bpf_map_lookup_elem(&standing, &key);

	return how && *how != LEFT;
}

/*
 * Within this time, a SYN between the same ends is the same packet, which several programs look at in turn while engines
 * change: all must find what the first has found. Only moments lie between them, unless a virtual processor is preempted.
 */
#define SAME_SYN_MILLIS 20
/* How long a SYN is retransmitted if the answer to the first one was lost. */
#define SENT_AGAIN_MILLIS 20000

static __always_inline __u32 millis(void)
{
	return bpf_ktime_get_ns() / 1000000;
}

static __always_inline bool is_mine(__u32 engine, __u32 mine)
{
	return mine == ANYONE ? engine != KERNEL : engine == mine;
}

static __always_inline __u32 member_for(const struct members *members, const struct packet *packet,
					const struct listener *listener,
					const struct connection *connection, enum changes changes,
					__u32 mine)
{
	const struct begun *before;
	struct begun now = {};

	if (changes != NONE && members->state == CHANGED) {
		before = bpf_map_lookup_elem(&begun, connection);
		/* An engine that has left the port does not answer a retransmitted SYN: it starts anew, with another engine. */
		if (before && (!packet->is_first || millis() - before->millis < SAME_SYN_MILLIS ||
			       stands(listener, before->engine)))
			return before->engine;
	}
	now.engine = member(members, packet);
	if (!packet->is_first || !members->state)
		return now.engine;
	/*
	 * While engines change, the program that looks first records the owner for the others, whichever it is. The kernel itself
	 * records nothing, so its SYNs are recorded, too: one that is under way when an engine joins is no connection yet.
	 */
	if (changes == WRITTEN_DOWN ? is_mine(now.engine, mine) || members->state == CHANGED
				    : changes != NONE && now.engine == KERNEL) {
		now.millis = millis();
		bpf_map_update_elem(&begun, connection, &now, 0 /* BPF_ANY */);
	}
	return now.engine;
}

static __always_inline const struct members *members_at(const struct counts *there,
							 struct listener *listener)
{
	const struct members *members = NULL;

	if (there->at_addresses)
		members = bpf_map_lookup_elem(&listeners, listener);
	if (members)
		return members;
	/* A listener at any address. */
	__builtin_memset(&listener->local, 0, sizeof(listener->local));
	return bpf_map_lookup_elem(&listeners, listener);
}

/*
 * Whether the thread that answered for the maps has ended. Then everything is the kernel's, at the same time for the programs
 * that let packets in and those that keep them from the kernel: otherwise for a while both would answer, or nobody.
 */
static __always_inline bool is_orphaned(void)
{
	__u32 key = 0;
	const struct life *his = bpf_map_lookup_elem(&life, &key);

	return !his || his->futex & FUTEX_OWNER_DIED;
}

static __always_inline bool is_martian_v4(__u32 v4)
{
	__u32 net = v4 >> 24;

	/* This host on this network, loopback, multicast (RFC 6890), limited broadcast. */
	return net == 0 || net == 127 || net >> 4 == 14 || v4 == 0xffffffff;
}

static __always_inline bool is_martian_v6(const struct address *address)
{
	/* RFC 4291 2.7; then the unspecified address and loopback (2.5.2, 2.5.3). */
	if (bpf_ntohl(address->words[0]) >> 24 == 0xff)
		return true;
	return !address->words[0] && !address->words[1] && !address->words[2] &&
	       bpf_ntohl(address->words[3]) <= 1;
}

static __always_inline bool is_v4(const struct address *address)
{
	return !address->words[0] && !address->words[1] && address->words[2] == bpf_htonl(0xffff);
}

/* RFC 4291 2.5.6, link-local: another host may have the same address on another link. */
static __always_inline bool is_of_link(const struct address *address)
{
	return bpf_ntohl(address->words[0]) >> 22 == 0xfe80 >> 6;
}

/*
 * Whether the source address is impossible over a wire: a remote host must not be let in as a local one. Such a packet is the
 * kernel's, which drops and counts it (fib_validate_source, ip_route_input_slow, ipv6_rcv).
 */
static __always_inline bool is_martian(const struct packet *packet)
{
	const __u32 *device;

	if (is_v4(&packet->remote) ? is_martian_v4(bpf_ntohl(packet->remote.words[3]))
				   : is_martian_v6(&packet->remote))
		return true;
	device = bpf_map_lookup_elem(&hosts, &packet->remote);
	if (!device)
		return false;
	return !is_of_link(&packet->remote) || *device == OUTSIDE || *device == packet->device;
}

/*
 * Whether a packet came by another device than `device`, which has its local address: the stack there does not know the address.
 * It may be on its way to that device all the same: what is for a macvlan device passes the device below it first.
 */
static __always_inline bool is_astray(__u32 device, const struct packet *packet)
{
	/* For nearly all frames this comparison is all it takes. */
	return device != packet->device && packet->device && device != ANYWHERE && device != OUTSIDE;
}

/*
 * Whether a packet is the kernel's although it is for a port of engines. That is so if it came by another device than the
 * address's: the kernel listens there, too, and takes it as ever. And if it opens a connection from an impossible address; other
 * segments from there find no connection.
 */
static __always_inline bool is_kernels(const struct members *members, const struct packet *packet)
{
	if (is_astray(members->device, packet))
		return true;
	return packet->is_first && members->device != ANYWHERE && is_martian(packet);
}

/*
 * Whether an entry no longer counts, because its engine has lost the port and a new connection begins: what the engine has
 * written into its table may be untrue, and another user's program may have the port by now, without anybody being told. A SYN
 * that went to the engine itself while it had the port is a retransmission.
 */
static __always_inline bool gives_way(struct entered *entered, const struct packet *packet,
				      const struct connection *connection)
{
	struct standing key = {};
	const struct begun *before;

	if (!(entered->engine & CAME))
		return false;
	if (entered->engine == CAME)
		return true;
	if (!packet->is_syn)
		return false;
	key.listener.local = connection->local;
	key.listener.port = connection->local_port;
	key.listener.protocol = connection->protocol;
	key.engine = entered->engine & ~CAME;
	if (bpf_map_lookup_elem(&standing, &key))
		return false;
	before = bpf_map_lookup_elem(&begun, connection);
	if (before && before->engine == key.engine && millis() - before->millis < SENT_AGAIN_MILLIS)
		return false;
	/* Seen by all programs that look next, and by the process that made the entry. */
	entered->engine = CAME;
	return true;
}

/* Returns the owner of a packet, an engine or KERNEL; `mine` is the engine that the program works for, or ANYONE. */
static __always_inline __u32 owner(const struct packet *packet, enum changes changes, __u32 mine)
{
	struct connection connection = {};
	struct listener listener = {};
	const struct counts *there;
	const struct members *members;
	struct entered *entered;
	__u32 *engine;
	__u32 key = 0;

	there = bpf_map_lookup_elem(&counts, &key);
	if (!there || is_orphaned())
		return KERNEL;
	engine = there->addresses ? bpf_map_lookup_elem(&addresses, &packet->local) : NULL;
	if (engine)
		return *engine;
	if (!packet->has_ports)
		return KERNEL;
	connection.local = packet->local;
	connection.remote = packet->remote;
	connection.local_port = packet->local_port;
	connection.remote_port = packet->remote_port;
	connection.protocol = packet->protocol;
	entered = there->connections ? bpf_map_lookup_elem(&connections, &connection) : NULL;
	if (entered && !gives_way(entered, packet, &connection))
		return is_astray(entered->device, packet) ? KERNEL : entered->engine & ~CAME;
	listener.local = packet->local;
	listener.port = packet->local_port;
	listener.protocol = packet->protocol;
	members = members_at(there, &listener);
	if (!members || is_kernels(members, packet))
		return KERNEL;
	return member_for(members, packet, &listener, &connection, changes, mine);
}

static __always_inline void count_dropped(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&dropped, &key);

	if (count)
		*count += 1;
}

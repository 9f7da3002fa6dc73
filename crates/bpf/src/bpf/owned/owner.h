/*
 * Whose a packet is, by what user space has entered into the maps.
 */
#pragma once

/* Mixed with a number that nobody outside knows, so that nobody chooses whom he burdens. */
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
	/* Until each bit depends on all: the low ones count where members are few (MurmurHash3's fmix32). */
	hash = (hash ^ hash >> 16) * 0x85ebca6b;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35;
	return hash ^ hash >> 16;
}

/* One of those that have a port; each connection always the same as long as they are the same. */
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

/* What a program has to do with members that come and go. */
enum changes {
	/* There are none: the engine has its ports alone. */
	NONE,
	/* It looks up what is written down. */
	LOOKED_UP,
	/* And writes down what is mine: its engine's, or any engine's. */
	WRITTEN_DOWN,
};

static __always_inline bool stands(const struct listener *listener, __u32 engine)
{
	struct standing key = { .listener = *listener, .engine = engine };
	const __u32 *how = bpf_map_lookup_elem(&standing, &key);

	return how && *how != LEFT;
}

/*
 * A SYN that comes sooner again is the same one, which several programs look at one after the other while engines change: all
 * find what the first has found. Between them are moments, unless a virtual processor is taken away.
 */
#define SAME_SYN_MILLIS 20
/* So long a SYN is sent again for want of an answer, which may have been lost, that the first has had. */
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
		/* Who has left the port does not answer a SYN that is sent again: it begins anew, elsewhere. */
		if (before && (!packet->is_first || millis() - before->millis < SAME_SYN_MILLIS ||
			       stands(listener, before->engine)))
			return before->engine;
	}
	now.engine = member(members, packet);
	if (!packet->is_first || !members->state)
		return now.engine;
	/*
	 * While engines change whoever looks first says so to the others, whosever it is. The kernel writes nothing down: a SYN
	 * of its that is on the way is no connection yet, when an engine comes.
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
	/* On any address. */
	__builtin_memset(&listener->local, 0, sizeof(listener->local));
	return bpf_map_lookup_elem(&listeners, listener);
}

/*
 * Whether he has ended who answered for what is in the maps. Then all is the kernel's, at the same time to who lets packets
 * in and to who keeps them from the kernel: or there would be a while in which two answer, or nobody.
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
	/* RFC 4291 2.7; below it are the unspecified one and loopback (2.5.2, 2.5.3). */
	if (bpf_ntohl(address->words[0]) >> 24 == 0xff)
		return true;
	return !address->words[0] && !address->words[1] && !address->words[2] &&
	       bpf_ntohl(address->words[3]) <= 1;
}

static __always_inline bool is_v4(const struct address *address)
{
	return !address->words[0] && !address->words[1] && address->words[2] == bpf_htonl(0xffff);
}

/* RFC 4291 2.5.6: another host may have the same one on another link. */
static __always_inline bool is_of_link(const struct address *address)
{
	return bpf_ntohl(address->words[0]) >> 22 == 0xfe80 >> 6;
}

/*
 * Whether nobody can have sent this over a wire: who is let in as one who is on the host itself would be let in. The kernel,
 * whose it is then, drops it and counts it (fib_validate_source, ip_route_input_slow, ipv6_rcv).
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
 * What is the kernel's although it comes to a port of engines'. What comes by another device than the address's, whose stack does
 * not know the address: the kernel listens there, too, and takes it as ever. And beginnings from where nobody is; other segments
 * from there find no connection.
 */
static __always_inline bool is_kernels(const struct members *members, const struct packet *packet)
{
	/* Of nearly all frames this compare is all that there is to it. */
	if (members->device != packet->device && packet->device &&
	    members->device != ANYWHERE && members->device != OUTSIDE)
		return true;
	return packet->is_first && members->device != ANYWHERE && is_martian(packet);
}

/*
 * Whether an entry is of no account, as its engine has the port no more and somebody begins anew: what that one has written into its
 * table may not be true, and another user's program may have the port by now, of which nobody need know. A SYN that the engine had
 * itself, while the port was its own, is the same one.
 */
static __always_inline bool gives_way(__u32 *entered, const struct packet *packet,
				      const struct connection *connection)
{
	struct standing key = {};
	const struct begun *before;

	if (!(*entered & CAME))
		return false;
	if (*entered == CAME)
		return true;
	if (!packet->is_syn)
		return false;
	key.listener.local = connection->local;
	key.listener.port = connection->local_port;
	key.listener.protocol = connection->protocol;
	key.engine = *entered & ~CAME;
	if (bpf_map_lookup_elem(&standing, &key))
		return false;
	before = bpf_map_lookup_elem(&begun, connection);
	if (before && before->engine == key.engine && millis() - before->millis < SENT_AGAIN_MILLIS)
		return false;
	/* For all that look at it next, and for who has entered it. */
	*entered = CAME;
	return true;
}

/* Whose a packet is: an engine's, or the kernel's; `mine` is the engine that who asks works for, or ANYONE. */
static __always_inline __u32 owner(const struct packet *packet, enum changes changes, __u32 mine)
{
	struct connection connection = {};
	struct listener listener = {};
	const struct counts *there;
	const struct members *members;
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
	engine = there->connections ? bpf_map_lookup_elem(&connections, &connection) : NULL;
	if (engine && !gives_way(engine, packet, &connection))
		return *engine & ~CAME;
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

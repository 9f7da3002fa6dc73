/*
 * Engines on one device: a packet socket each, all in one group (PACKET_FANOUT). By itself each socket would look at each
 * frame, which with forty of them takes longer than all that the kernel does with it besides; in a group one program
 * chooses the engine, and only that one's socket sees the frame.
 *
 * The program has to say where in the group the socket is, which the kernel does not tell, and changes: who leaves is
 * replaced by the last one, and when the device goes down and up again all stand in another order (net/packet/af_packet.c,
 * __fanout_link). So each engine's place is a guess, which nearly always holds. Where it does not the frame has come to a
 * socket that is not the engine's; then the next place is the guess, and the frame comes into the device once more. Who is
 * put in another's place comes from behind it, so guesses go down.
 *
 * There is one group of a device, and somebody is always in it: were there two, as one whose members have all gone is there
 * until the kernel has closed the last, each would find that the other's frames have missed.
 */
#pragma once

#define SEATS 65536
/* Members of a group at most. */
#define PLACES 4096
/* So many wrong guesses, and frames are no longer sent round: nobody is there. */
#define GUESSES (2 * PLACES)

struct seat_key {
	__u32 device;
	__u32 engine;
};

struct seat {
	/* Number of the socket: that which an engine had before may be in the group for a while yet. */
	__u32 socket;
	/* Where it is likely to be, modulo the number of members. */
	__u32 place;
	/* Wrong guesses since a right one. */
	__u32 missed;
};

/* Sockets that are in a group. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SEATS);
	__type(key, struct seat_key);
	__type(value, struct seat);
} seats SEC(".maps");

/* Of the frame that this processor is at, from the group's program over the member's to the one behind all sockets. */
struct choice {
	__u32 engine;
	__u32 socket;
	__u32 place;
	/* Guesses were wrong before this one. */
	bool is_guess;
	bool is_about;
	/* Number of the device by which it has come, once its engine's socket has it. */
	__u32 taken_at;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct choice);
} choices SEC(".maps");

static __always_inline struct choice *current_choice(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&choices, &key);
}

static __always_inline struct seat *seat_of(const struct __sk_buff *skb, __u32 engine)
{
	struct seat_key key = { .device = skb->ifindex, .engine = engine };

	return bpf_map_lookup_elem(&seats, &key);
}

/*
 * The place in the group of whom this frame is for; of a frame that is nobody's it does not matter. What is only about
 * something of an engine's is the kernel's, too.
 */
static __always_inline __u32 choose(const struct __sk_buff *skb, __u32 engine, bool is_about)
{
	struct choice *choice = current_choice();
	const struct seat *seat;

	if (!choice)
		return 0;
	seat = engine == KERNEL ? NULL : seat_of(skb, engine);
	choice->engine = engine;
	choice->is_about = is_about;
	choice->taken_at = 0;
	if (!seat) {
		choice->socket = 0;
		return 0;
	}
	choice->socket = seat->socket;
	choice->place = seat->place;
	choice->is_guess = seat->missed;
	return seat->place;
}

/* Whether this frame is for the socket to which it has come. */
static __always_inline bool is_chosen(const struct __sk_buff *skb)
{
	struct choice *choice = current_choice();
	struct seat *seat;

	if (!choice || choice->socket != settings.socket)
		return false;
	choice->socket = 0;
	if (!choice->is_about)
		choice->taken_at = skb->ifindex;
	seat = choice->is_guess ? seat_of(skb, choice->engine) : NULL;
	if (seat)
		seat->missed = 0;
	return true;
}

/* A frame has come to a socket that is in no group, as there is one engine, and is the engine's or not. */
static __always_inline void note_taken(const struct __sk_buff *skb, bool is_taken)
{
	struct choice *choice = current_choice();

	if (choice)
		choice->taken_at = is_taken ? skb->ifindex : 0;
}

/*
 * Whether the frame that is here has been taken. What is said counts once. Were a program of somebody else's, in front of the
 * one that asks, to take a frame away behind the sockets, it would be said of the next one, if that came past them.
 */
static __always_inline bool was_taken(const struct __sk_buff *skb)
{
	struct choice *choice = current_choice();

	if (!choice || choice->taken_at != skb->ifindex)
		return false;
	choice->taken_at = 0;
	return true;
}

/* Whether this frame is for an engine, and has come to another's socket. If so the next place is guessed. */
static __always_inline bool has_missed(const struct __sk_buff *skb, __u32 engine)
{
	struct choice *choice = current_choice();
	struct seat *seat;

	if (!choice || !choice->socket || engine != (choice->is_about ? KERNEL : choice->engine))
		return false;
	seat = seat_of(skb, choice->engine);
	if (!seat || seat->socket != choice->socket)
		return false;
	/* Of frames that are at it together the first counts. */
	if (seat->place == choice->place) {
		seat->place = (seat->place ? seat->place : PLACES) - 1;
		seat->missed++;
	}
	/* What was chosen is of one frame, also if the next one comes past all sockets. */
	choice->socket = 0;
	return seat->missed < GUESSES;
}

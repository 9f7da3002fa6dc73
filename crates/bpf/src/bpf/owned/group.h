/*
 * Engines on one device: each has a packet socket, and all sockets are in one group (PACKET_FANOUT). Outside a group each
 * socket would look at every frame, which with forty of them takes longer than all else that the kernel does with it; in a
 * group one program chooses the engine, and only that engine's socket sees the frame.
 *
 * The program has to return the socket's index in the group, which the kernel does not tell, and which changes: a socket
 * that leaves is replaced by the last one, and when the device goes down and up again all are in another order
 * (net/packet/af_packet.c, __fanout_link). So each engine's place is a guess, which nearly always holds. Where it does not,
 * the frame reaches another engine's socket; then the next place is guessed, and the frame is redirected into the device
 * once more. A socket that takes another's place comes from a higher index, so guesses go down.
 *
 * A device has one group, which is never empty. With two (a group whose members have all left exists until the kernel has
 * closed the last), each would find that the other's frames have missed.
 */
#pragma once

#define SEATS 65536
/* Most members of a group. */
#define PLACES 4096
/* After this many wrong guesses frames are no longer redirected: the socket is not there. */
#define GUESSES (2 * PLACES)

struct seat_key {
	__u32 device;
	__u32 engine;
};

struct seat {
	/* Number of the socket: the engine's former socket may be in the group for a while yet. */
	__u32 socket;
	/* Its likely index in the group, modulo the number of members. */
	__u32 place;
	/* Wrong guesses since a right one. */
	__u32 missed;
};

/* Sockets in a group. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SEATS);
	__type(key, struct seat_key);
	__type(value, struct seat);
} seats SEC(".maps");

/* The choice for this processor's current frame, from the group's program by the member's to the one after all sockets. */
struct choice {
	__u32 engine;
	__u32 socket;
	__u32 place;
	/* Whether guesses before this one were wrong. */
	bool is_guess;
	bool is_about;
	/* Index of the device by which the frame came, once its engine's socket has it. */
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
 * Returns the index in the group of the socket that this frame is for; for a frame that is no engine's any will do. A frame
 * that is only about an engine's packets (an ICMP error) is the kernel's, too.
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

/* Whether this frame is for the socket that it has reached. */
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

/* Notes whether a frame is the engine's, at a socket that is in no group, as there is only one engine. */
static __always_inline void note_taken(const struct __sk_buff *skb, bool is_taken)
{
	struct choice *choice = current_choice();

	if (choice)
		choice->taken_at = is_taken ? skb->ifindex : 0;
}

/*
 * Whether the current frame has been taken by a socket. The note counts once. If somebody else's program, attached before the
 * one that asks, dropped a frame after the sockets, the note would apply to the next frame that bypasses them.
 */
static __always_inline bool was_taken(const struct __sk_buff *skb)
{
	struct choice *choice = current_choice();

	if (!choice || choice->taken_at != skb->ifindex)
		return false;
	choice->taken_at = 0;
	return true;
}

/* Whether this frame is for an engine, and has reached another's socket. If so, the next place is guessed. */
static __always_inline bool has_missed(const struct __sk_buff *skb, __u32 engine)
{
	struct choice *choice = current_choice();
	struct seat *seat;

	if (!choice || !choice->socket || engine != (choice->is_about ? KERNEL : choice->engine))
		return false;
	seat = seat_of(skb, choice->engine);
	if (!seat || seat->socket != choice->socket)
		return false;
	/* If several frames miss at once, only the first counts. */
	if (seat->place == choice->place) {
		seat->place = (seat->place ? seat->place : PLACES) - 1;
		seat->missed++;
	}
	/* The choice is for one frame, even if the next one bypasses all sockets. */
	choice->socket = 0;
	return seat->missed < GUESSES;
}

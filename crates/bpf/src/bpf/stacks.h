/*
 * Records where a write was made. C libraries are built without frame pointers, so the kernel
 * cannot unwind beyond them: registers and stack are passed to user space, which has the tables of
 * .eh_frame. That is expensive, so each place is captured only once in a while. A place is the set
 * of writes with this stack depth and these return addresses into the program on the stack.
 */
#pragma once

/* Words at the top of the stack that distinguish places. */
#define TOP 64
/* Interval after which a place is captured again, and the most captures within it. */
#define AGAIN_NS 1000000000ULL
#define MOST_STACKS 64

struct top {
	__u64 words[TOP];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct top);
} tops SEC(".maps");

/* When a place was last captured. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} places SEC(".maps");

/* Beginning of the current interval, and captures since then, for all places. */
__u64 looked_since_ns = 0;
__u64 looked = 0;

static __always_inline __u64 mixed(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

static __always_inline void read_registers(struct event_stack *event, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	event->ip = regs->ip;
	event->sp = regs->sp;
	event->fp = regs->bp;
	event->lr = 0;
#elif defined(__TARGET_ARCH_arm64)
	event->ip = regs->pc;
	event->sp = regs->sp;
	event->fp = regs->regs[29];
	event->lr = regs->regs[30];
#else
	event->ip = regs->epc;
	event->sp = regs->sp;
	event->fp = regs->s0;
	event->lr = regs->ra;
#endif
}

static __always_inline __u64 stack_pointer(struct pt_regs *regs)
{
	return regs->sp;
}

/* Returns a number for the place; 0 if there is none (a kernel thread). */
static __noinline __u64 place_of(__u64 id, __u64 sp, __u64 from, __u64 to)
{
	__u64 hash = mixed(id >> 32, sp), word;
	struct top *top;
	__u32 zero = 0, i;

	top = bpf_map_lookup_elem(&tops, &zero);
	if (!top || bpf_probe_read_user(top, sizeof(*top), (void *)sp))
		return 0;
	for (i = 0; i < TOP; i++) {
		word = top->words[i];
		if (word >= from && word < to)
			hash = mixed(hash, word);
	}
	return hash | 1;
}

static __always_inline bool too_many(__u64 now)
{
	if (now - looked_since_ns > AGAIN_NS) {
		looked_since_ns = now;
		looked = 0;
	}
	return looked++ >= MOST_STACKS;
}

static __noinline int tell_stack(__u64 place, __u32 pid)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	struct event_stack *event;
	__u32 i;

	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&dropped, 1);
		return 0;
	}
	event->type = EVENT_STACK;
	event->pid = pid;
	event->stack = place;
	read_registers(event, regs);
	/* The stack ends somewhere above, and pages that are not in memory cannot be read here. */
	for (i = 0; i < STACK / STACK_PART; i++)
		if (bpf_probe_read_user(event->copy + i * STACK_PART, STACK_PART,
					(void *)(event->sp + i * STACK_PART)))
			break;
	event->bytes = i * STACK_PART;
	bpf_ringbuf_submit(event, 0);
	return 1;
}

/* Returns the number of the program's current place, which is captured if that is due. */
static __always_inline __u64 look_at_stack(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	__u64 now = bpf_ktime_get_ns(), place, *last;

	if (!task->mm)
		return 0;
	place = place_of(bpf_get_current_pid_tgid(), stack_pointer(regs), task->mm->start_code,
			 task->mm->end_code);
	if (!place)
		return 0;
	last = bpf_map_lookup_elem(&places, &place);
	if (last && now - *last < AGAIN_NS)
		return place;
	if (too_many(now))
		return last ? place : 0;
	if (tell_stack(place, current_ids() >> 32))
		bpf_map_update_elem(&places, &place, &now, BPF_ANY);
	return place;
}

/*
 * Translation of process numbers to those that user space uses. The kernel's own numbers are those
 * of the initial PID namespace; in a container uncork and its caller use others.
 */
#pragma once

/* MAX_PID_NS_LEVEL (kernel/pid_namespace.c). */
#define DEEPEST 32

/* Returns a task's number in user space's namespace; 0 if it has none there. */
static __noinline __u32 number_of(struct pid *pid)
{
	__u32 level = BPF_CORE_READ(pid, level), each = bpf_core_type_size(struct upid), i;
	void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);

	for (i = 0; i <= DEEPEST && i <= level; i++) {
		struct upid *at = numbers + i * each;

		if (BPF_CORE_READ(at, ns, ns.inum) == pid_namespace)
			return BPF_CORE_READ(at, nr);
	}
	return 0;
}

static __always_inline __u32 process_of(struct task_struct *task)
{
	if (!pid_namespace)
		return BPF_CORE_READ(task, tgid);
	return number_of(BPF_CORE_READ(task, group_leader, thread_pid));
}

/* Returns process and thread, as bpf_get_current_pid_tgid does. */
static __always_inline __u64 current_ids(void)
{
	struct task_struct *task;

	if (!pid_namespace)
		return bpf_get_current_pid_tgid();
	task = (void *)bpf_get_current_task();
	return (__u64)process_of(task) << 32 | number_of(BPF_CORE_READ(task, thread_pid));
}

static __always_inline void current_who(struct who *who)
{
	__u64 id = current_ids();

	who->pid = id >> 32;
	who->tid = (__u32)id;
	bpf_get_current_comm(who->comm, sizeof(who->comm));
}

static __always_inline __u32 traced(__u32 pid)
{
	__u32 *how = bpf_map_lookup_elem(&scope, &pid);

	return how ? *how : 0;
}

/* A process executes another program: reports its arguments, before it can overwrite them. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(program_begun, struct task_struct *task)
{
	__u32 pid = process_of(task);
	struct event_program *event;
	__u64 from, bytes;

	if (traced(pid) != WHOLE)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return 0;
	event->type = EVENT_PROGRAM;
	event->pid = pid;
	event->pad = 0;
	from = BPF_CORE_READ(task, mm, arg_start);
	bytes = BPF_CORE_READ(task, mm, arg_end) - from;
	if (bytes > ARGUMENTS)
		bytes = ARGUMENTS;
	event->bytes = bytes;
	if (bpf_probe_read_user(event->arguments, bytes, (void *)from))
		event->bytes = 0;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_begun, struct task_struct *parent, struct task_struct *child)
{
	__u32 pid, how = WHOLE;

	if (child->tgid == parent->tgid || !traced(process_of(parent)))
		return 0;
	pid = process_of(child);
	bpf_map_update_elem(&scope, &pid, &how, BPF_ANY);
	return 0;
}

/* Removes a process that ends: its number may be reused. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_ended, struct task_struct *task)
{
	__u32 pid = process_of(task);

	/* The last thread to end need not be the first one. */
	if (traced(pid) == WHOLE && task->signal->live.counter == 0)
		bpf_map_delete_elem(&scope, &pid);
	return 0;
}

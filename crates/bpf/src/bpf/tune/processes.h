/*
 * The selected processes: one, and all that descend from it. A child is recorded when it is
 * forked, so it stays selected when its parent is gone (as a daemon's is), and no number is
 * kept beyond its process's end.
 */
#pragma once

/* Most levels of PID namespaces (MAX_PID_NS_LEVEL). */
#define PID_LEVELS 33

/* Number of processes that the last scan of all tasks has added. */
__u32 grown = 0;

static __always_inline bool is_member(__u32 tgid)
{
	return bpf_map_lookup_elem(&members, &tgid) != NULL;
}

static __always_inline void add_member(__u32 tgid)
{
	__u32 yes = 1;

	bpf_map_update_elem(&members, &tgid, &yes, BPF_ANY);
}

static __always_inline void remove_member(__u32 tgid)
{
	bpf_map_delete_elem(&members, &tgid);
}

/* Whether it is the process that was named, by its number in the namespace of the caller that named it. */
static __always_inline bool is_root(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);
	__u32 level = BPF_CORE_READ(pid, level), i;
	struct upid number;

	for (i = 0; i < PID_LEVELS && i <= level; i++) {
		if (bpf_probe_read_kernel(&number, bpf_core_type_size(struct upid),
					  numbers + i * bpf_core_type_size(struct upid)))
			return false;
		if ((__u32)number.nr == settings.root &&
		    BPF_CORE_READ(number.ns, ns.inum) == settings.pid_namespace)
			return true;
	}
	return false;
}

/* Read repeatedly until no process is added. */
SEC("iter/task")
int family(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task || task->pid != task->tgid || is_member(task->tgid))
		return 0;
	if (is_root(task) || is_member(BPF_CORE_READ(task, real_parent, tgid))) {
		add_member(task->tgid);
		/* A process that ends from now on is removed by `ended`; one that has ended before must not be added. */
		if (BPF_CORE_READ(task, signal, live.counter) > 0)
			grown++;
		else
			remove_member(task->tgid);
	}
	return 0;
}

/* Tags the sockets that they have already. */
SEC("iter/task_file")
int descriptors(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;

	if (!task || !file || !is_member(task->tgid))
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (sk && tcp(sk))
		bpf_sk_storage_get(&tags, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	return 0;
}

/* Tags the sockets that they create. */
SEC("cgroup/sock_create")
int created(struct bpf_sock *ctx)
{
	if (ctx->protocol == IPPROTO_TCP && is_member(bpf_get_current_pid_tgid() >> 32))
		bpf_sk_storage_get(&tags, ctx, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	return 1;
}

SEC("tp_btf/sched_process_fork")
int forked(__u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];

	if (child->tgid != parent->tgid && is_member(parent->tgid))
		add_member(child->tgid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int ended(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	__u32 tgid = task->tgid;

	/* The last thread to end need not be the first one. */
	if (is_member(tgid) && task->signal->live.counter == 0)
		remove_member(tgid);
	return 0;
}

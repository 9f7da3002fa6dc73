/*
 * What the kernel knows of a frame's checksum, where frames come whose checksum is not filled in.
 * veth delivers what programs of this host have sent: their kernel has left the checksum to a device
 * that does not exist (CHECKSUM_PARTIAL). XDP has no way to ask for that (its metadata are a time, a
 * hash and a tag), but in veth the program's context is followed by a pointer to the frame's sk_buff.
 */
#pragma once

/* The kernel's own view of the program's context, and of what a pointer points to (Linux 6.2). */
void *bpf_cast_to_kern_ctx(void *context) __ksym __weak;
void *bpf_rdonly_cast(const void *pointer, __u32 type) __ksym __weak;

/* include/linux/skbuff.h */
#define CHECKSUM_UNNECESSARY 1
#define CHECKSUM_PARTIAL 3

/* The word before a frame, which user space reads. */
#define MARK_UNKNOWN 0
#define MARK_GOOD 1

/* Returns the sk_buff of a frame; NULL if it has none, as with frames that XDP itself has redirected. */
static __always_inline struct sk_buff *buffer_of(struct xdp_md *xdp)
{
	struct veth_xdp_buff *frame;
	struct sk_buff *skb = NULL;

	if (!bpf_core_field_exists(struct veth_xdp_buff, skb))
		return NULL;
	frame = bpf_cast_to_kern_ctx(xdp);
	/* Beyond the part of the structure that the verifier knows. */
	bpf_core_read(&skb, sizeof(skb), &frame->skb);
	return skb ? bpf_rdonly_cast(skb, bpf_core_type_id_kernel(struct sk_buff)) : NULL;
}

/* Whether it is of a VLAN, which is another network: over veth, the tag is not in the frame. */
static __always_inline bool is_of_vlan(const struct sk_buff *skb)
{
	return skb && skb->vlan_tci & VLAN_NUMBER;
}

static __always_inline __u32 mark_of(const struct sk_buff *skb)
{
	__u64 summed;

	if (!skb)
		return MARK_UNKNOWN;
	summed = BPF_CORE_READ_BITFIELD(skb, ip_summed);
	return summed == CHECKSUM_PARTIAL || summed == CHECKSUM_UNNECESSARY ? MARK_GOOD : MARK_UNKNOWN;
}

/* Writes the word right before the frame. Returns false if the driver has no room for it. */
static __always_inline bool leave_mark(struct xdp_md *xdp, __u32 mark)
{
	void *end;
	__u32 *place;

	if (bpf_xdp_adjust_meta(xdp, -(int)sizeof(mark)))
		return false;
	place = (void *)(long)xdp->data_meta;
	end = (void *)(long)xdp->data;
	if ((void *)(place + 1) > end)
		return false;
	*place = mark;
	return true;
}

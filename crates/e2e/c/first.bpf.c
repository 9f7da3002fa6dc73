/*
 * An XDP program already attached to a device, like a firewall's: it drops packets from one port and passes all others.
 */
#include <linux/bpf.h>

#define SECTION(name) __attribute__((section(name), used))

/* Ethernet, IPv4 without options, TCP. */
enum { TYPE = 12, PROTOCOL = 23, SOURCE = 34, ENOUGH = 38 };

SECTION("xdp") int first(struct xdp_md *xdp)
{
	const unsigned char *frame = (void *)(long)xdp->data;

	if (frame + ENOUGH > (const unsigned char *)(long)xdp->data_end)
		return XDP_PASS;
	if (frame[TYPE] != 0x08 || frame[TYPE + 1] != 0x00 || frame[PROTOCOL] != 6)
		return XDP_PASS;
	return (frame[SOURCE] << 8 | frame[SOURCE + 1]) == FROM ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SECTION("license") = "Dual MIT/GPL";

/*
 * Live tracing of TCP stalls. Its design follows from its cost: a program that is served well
 * by TCP pays for two look-ups and one reading of the clock in each write, and one load in each
 * packet; everything else happens only when something waits. Only stalls, and sockets when they
 * end, are reported to user space.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "state.h"
#include "common.h"
#include "processes.h"
#include "scope.h"
#include "stacks.h"
#include "holds.h"
#include "writes.h"
#include "losses.h"
#include "timers.h"
#include "options.h"
#include "records.h"

/* Some helpers are only available to programs under a GPL-compatible licence. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

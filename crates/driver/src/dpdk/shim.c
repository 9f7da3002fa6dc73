/* See shim.h. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_tcp.h>
#include <rte_udp.h>

/* Frames that are received, and sent, at once. */
#define BURST 32
/* The longest frame that is joined from several buffers: the longest IP packet, and the header before it. */
#define LONGEST_FRAME (65535 + 18)
/* Octets before each frame, which some drivers demand. */
#define HEADROOM RTE_PKTMBUF_HEADROOM
/* Drivers demand no less (RTE_MBUF_DEFAULT_DATAROOM). */
#define LEAST_ROOM 2048

struct uncork_dpdk_port {
    uint16_t number;
    struct rte_mempool *receive_pool;
    struct rte_mempool *transmit_pool;
    /* The received burst. */
    struct rte_mbuf *in[BURST];
    uint16_t in_count;
    /* Frames to be sent. */
    struct rte_mbuf *out[BURST];
    uint16_t out_count;
    struct rte_mbuf *room;
    /* Whether the device fills in the IPv4 header checksum. */
    int sums_ipv4;
    /* Whether frames may ask for an offload. */
    int prepares;
    uint64_t too_long;
    uint64_t given_up;
    /* A frame of several buffers is joined here. */
    uint8_t whole[LONGEST_FRAME];
};

/* The ports that are attached. */
static uint8_t attached[RTE_MAX_ETHPORTS];

/* DPDK's log goes only here: its first sentence is the reason, the rest what came of it. */
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[256];
static size_t said_bytes;
static int said_all;

static ssize_t listen_to(void *cookie, const char *octets, size_t bytes) {
    (void)cookie;
    pthread_mutex_lock(&said_lock);
    for (size_t at = 0; at < bytes && !said_all; at++) {
        if (octets[at] == '\n')
            said_all = said_bytes > 0;
        else if (said_bytes + 1 < sizeof said)
            said[said_bytes++] = octets[at];
    }
    pthread_mutex_unlock(&said_lock);
    return (ssize_t)bytes;
}

void uncork_dpdk_said(char *text, size_t room) {
    pthread_mutex_lock(&said_lock);
    size_t bytes = said_bytes < room ? said_bytes : room - 1;
    memcpy(text, said, bytes);
    text[bytes] = 0;
    said_bytes = 0;
    said_all = 0;
    pthread_mutex_unlock(&said_lock);
}

/* Makes one lcore of all processors of the thread: DPDK binds threads to lcores, so this leaves the thread unbound. */
static void lcore_of(const cpu_set_t *processors, char *text, size_t room) {
    size_t used = (size_t)snprintf(text, room, "--lcores=0@(");
    const char *comma = "";
    for (int processor = 0; processor < CPU_SETSIZE && used + 8 < room; processor++) {
        if (!CPU_ISSET(processor, processors))
            continue;
        used += (size_t)snprintf(text + used, room - used, "%s%d", comma, processor);
        comma = ",";
    }
    snprintf(text + used, room - used, ")");
}

int uncork_dpdk_start(int count, const char *const *arguments) {
    static char lcores[8 * CPU_SETSIZE];
    cookie_io_functions_t functions = {.write = listen_to};
    FILE *listening = fopencookie(NULL, "w", functions);
    char **all = calloc((size_t)count + 2, sizeof *all);
    cpu_set_t processors;

    if (listening == NULL || all == NULL ||
        pthread_getaffinity_np(pthread_self(), sizeof processors, &processors) != 0)
        return -ENOMEM;
    setvbuf(listening, NULL, _IONBF, 0);
    for (int at = 0; at < count; at++)
        /* DPDK reorders the pointers, and does not change the strings. */
        all[at] = (char *)(uintptr_t)arguments[at];
    lcore_of(&processors, lcores, sizeof lcores);
    all[count] = lcores;
    rte_openlog_stream(listening);
    /* Why it cannot start, and a list of its options, it prints to the streams beside its log. */
    FILE *output = stdout, *error = stderr;
    stdout = stderr = listening;
    int started = rte_eal_init(count + 1, all);
    stdout = output;
    stderr = error;
    pthread_setaffinity_np(pthread_self(), sizeof processors, &processors);
    /* The directory is empty. The one above it may be another program's. */
    rmdir(rte_eal_get_runtime_dir());
    if (started < 0)
        return rte_errno > 0 ? -rte_errno : -EIO;
    return 0;
}

/* Returns the port of this name, or the first port of the device of this name. */
static int port_of(const char *name) {
    uint16_t port;
    if (rte_eth_dev_get_port_by_name(name, &port) == 0)
        return port;
    RTE_ETH_FOREACH_DEV(port) {
        struct rte_eth_dev_info info;
        if (rte_eth_dev_info_get(port, &info) == 0 && info.device != NULL &&
            strcmp(rte_dev_name(info.device), name) == 0)
            return port;
    }
    return -ENODEV;
}

int uncork_dpdk_attach(const char *name, const char *with_arguments) {
    int done = rte_dev_probe(with_arguments);
    /* DPDK already has the PCI device that it was started for. */
    if (done < 0 && done != -EEXIST)
        return done;
    int port = port_of(name);
    if (port < 0)
        return port;
    if (attached[port])
        return -EEXIST;
    attached[port] = 1;
    return port;
}

static void remove_device(uint16_t port) {
    struct rte_eth_dev_info info;
    struct rte_device *device = rte_eth_dev_info_get(port, &info) == 0 ? info.device : NULL;
    rte_eth_dev_close(port);
    attached[port] = 0;
    if (device != NULL)
        rte_dev_remove(device);
}

void uncork_dpdk_detach(uint16_t port) {
    remove_device(port);
}

int uncork_dpdk_look(uint16_t port, struct uncork_dpdk_found *found) {
    const uint64_t sums = RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
    const uint64_t trains = sums | RTE_ETH_TX_OFFLOAD_TCP_TSO;
    const uint64_t verified = RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
    struct rte_eth_dev_info info;
    struct rte_ether_addr mac;
    int done;

    if ((done = rte_eth_dev_info_get(port, &info)) != 0 || (done = rte_eth_macaddr_get(port, &mac)) != 0)
        return done;
    memset(found, 0, sizeof *found);
    memcpy(found->mac, mac.addr_bytes, sizeof found->mac);
    if ((done = rte_eth_dev_get_mtu(port, &found->mtu)) != 0)
        return done;
    found->kernel_index = info.if_index;
    found->completes_checksums = (info.tx_offload_capa & sums) == sums;
    found->cuts_trains = (info.tx_offload_capa & trains) == trains;
    found->verifies_checksums = (info.rx_offload_capa & verified) == verified;
    snprintf(found->driver, sizeof found->driver, "%s", info.driver_name);
    return 0;
}

static struct rte_mempool *make_pool(const char *what, uint16_t port, unsigned frames, uint16_t bytes) {
    char name[RTE_MEMPOOL_NAMESIZE];
    unsigned room = HEADROOM + (bytes > LEAST_ROOM ? bytes : LEAST_ROOM);
    snprintf(name, sizeof name, "uncork-%s-%u", what, port);
    if (room > UINT16_MAX)
        room = UINT16_MAX;
    /* The cache, twice a burst, serves the thread that has started DPDK; others do without. */
    return rte_pktmbuf_pool_create(name, frames + 6 * BURST, 2 * BURST, 0, (uint16_t)room, rte_eth_dev_socket_id(port));
}

static int configure(uint16_t port, const struct uncork_dpdk_wanted *wanted, const struct rte_eth_dev_info *info) {
    struct rte_eth_conf conf;
    memset(&conf, 0, sizeof conf);
    conf.rxmode.mtu = wanted->mtu;
    /* A frame that is longer than a buffer comes in several, where the device can do that. */
    conf.rxmode.offloads = info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
    if (wanted->verifies_checksums)
        conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM |
                                (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM);
    if (wanted->completes_checksums)
        conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
    if (wanted->cuts_trains)
        conf.txmode.offloads |=
            RTE_ETH_TX_OFFLOAD_TCP_TSO | (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM);
    return rte_eth_dev_configure(port, 1, 1, &conf);
}

/* Some drivers accept a pool only if its buffers hold the longest frame that they might ever receive, and otherwise
 * refuse it: then the buffers are doubled. */
static int set_up_receiving(struct uncork_dpdk_port *self, uint16_t bytes, uint16_t frames) {
    for (uint32_t room = bytes;; room *= 2) {
        uint16_t octets = room > UINT16_MAX - HEADROOM ? UINT16_MAX - HEADROOM : (uint16_t)room;
        self->receive_pool = make_pool("in", self->number, frames, octets);
        if (self->receive_pool == NULL)
            return -rte_errno;
        int done = rte_eth_rx_queue_setup(self->number, 0, frames, rte_eth_dev_socket_id(self->number), NULL,
                                          self->receive_pool);
        if (done == 0 || octets < room)
            return done;
        rte_mempool_free(self->receive_pool);
        self->receive_pool = NULL;
    }
}

static int set_up(struct uncork_dpdk_port *self, const struct uncork_dpdk_wanted *wanted) {
    uint16_t port = self->number;
    uint16_t receive_frames = wanted->receive_frames, transmit_frames = wanted->transmit_frames;
    struct rte_eth_dev_info info;
    int done;

    if ((done = rte_eth_dev_info_get(port, &info)) != 0 || (done = configure(port, wanted, &info)) != 0)
        return done;
    self->sums_ipv4 = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0;
    /* Some drivers must be told the MTU once more, others cannot be told at all. */
    done = wanted->mtu == 0 ? 0 : rte_eth_dev_set_mtu(port, wanted->mtu);
    if ((done != 0 && done != -ENOTSUP) ||
        (done = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive_frames, &transmit_frames)) != 0)
        return done;
    self->transmit_pool = make_pool("out", port, transmit_frames, wanted->transmit_bytes);
    if (self->transmit_pool == NULL)
        return -rte_errno;
    if ((done = set_up_receiving(self, wanted->receive_bytes, receive_frames)) != 0 ||
        (done = rte_eth_tx_queue_setup(port, 0, transmit_frames, rte_eth_dev_socket_id(port), NULL)) != 0 ||
        (done = rte_eth_dev_start(port)) != 0)
        return done;
    /* IPv6 neighbour discovery is multicast. A device without this setting receives it anyway, or goes without. */
    (void)rte_eth_allmulticast_enable(port);
    return 0;
}

static void free_pools(struct uncork_dpdk_port *self) {
    rte_mempool_free(self->receive_pool);
    rte_mempool_free(self->transmit_pool);
}

struct uncork_dpdk_port *uncork_dpdk_open(uint16_t port, const struct uncork_dpdk_wanted *wanted, int *error) {
    struct uncork_dpdk_port *self = calloc(1, sizeof *self);
    *error = -ENOMEM;
    if (self == NULL) {
        remove_device(port);
        return NULL;
    }
    self->number = port;
    self->prepares = wanted->completes_checksums || wanted->cuts_trains;
    *error = set_up(self, wanted);
    if (*error == 0)
        return self;
    /* The device may refer to the pools until it is removed. */
    remove_device(port);
    free_pools(self);
    free(self);
    return NULL;
}

static void drop_received(struct uncork_dpdk_port *self) {
    rte_pktmbuf_free_bulk(self->in, self->in_count);
    self->in_count = 0;
}

void uncork_dpdk_close(struct uncork_dpdk_port *self) {
    drop_received(self);
    rte_pktmbuf_free_bulk(self->out, self->out_count);
    rte_pktmbuf_free(self->room);
    rte_eth_dev_stop(self->number);
    remove_device(self->number);
    free_pools(self);
    free(self);
}

uint16_t uncork_dpdk_mtu(const struct uncork_dpdk_port *self) {
    uint16_t mtu = 0;
    (void)rte_eth_dev_get_mtu(self->number, &mtu);
    return mtu;
}

uint16_t uncork_dpdk_receive(struct uncork_dpdk_port *self) {
    drop_received(self);
    self->in_count = rte_eth_rx_burst(self->number, 0, self->in, BURST);
    return self->in_count;
}

void uncork_dpdk_frame(struct uncork_dpdk_port *self, uint16_t number, struct uncork_dpdk_frame *frame) {
    struct rte_mbuf *mbuf = self->in[number];
    uint64_t sum = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    frame->bytes = rte_pktmbuf_pkt_len(mbuf);
    if (frame->bytes > LONGEST_FRAME) {
        self->too_long++;
        frame->bytes = 0;
    }
    frame->octets = rte_pktmbuf_read(mbuf, 0, frame->bytes, self->whole);
    /* CKSUM_NONE: the checksum is not filled in, and the data are known to be intact. */
    frame->segment_bytes = mbuf->ol_flags & RTE_MBUF_F_RX_LRO ? mbuf->tso_segsz : 0;
    frame->good = sum == RTE_MBUF_F_RX_L4_CKSUM_GOOD || sum == RTE_MBUF_F_RX_L4_CKSUM_NONE;
}

uint8_t *uncork_dpdk_room(struct uncork_dpdk_port *self) {
    if (self->out_count == BURST)
        return NULL;
    if (self->room == NULL)
        self->room = rte_pktmbuf_alloc(self->transmit_pool);
    return self->room == NULL ? NULL : rte_pktmbuf_mtod(self->room, uint8_t *);
}

/* The field holds the checksum of the pseudo-header. For a train DPDK wants it without the length, and the IPv4 header
 * checksum zero if the device fills that in. */
static void prepare_train(struct uncork_dpdk_port *self, struct rte_mbuf *mbuf,
                          const struct uncork_dpdk_leaving *leaving) {
    struct rte_tcp_hdr *tcp = rte_pktmbuf_mtod_offset(mbuf, struct rte_tcp_hdr *, leaving->transport_at);
    mbuf->l4_len = leaving->tcp_bytes;
    mbuf->tso_segsz = leaving->segment_bytes;
    mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
    if (leaving->is_ipv6) {
        tcp->cksum = rte_ipv6_phdr_cksum(rte_pktmbuf_mtod_offset(mbuf, struct rte_ipv6_hdr *, RTE_ETHER_HDR_LEN),
                                         mbuf->ol_flags);
        return;
    }
    struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(mbuf, struct rte_ipv4_hdr *, RTE_ETHER_HDR_LEN);
    if (self->sums_ipv4) {
        mbuf->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
        ip->hdr_checksum = 0;
    }
    tcp->cksum = rte_ipv4_phdr_cksum(ip, mbuf->ol_flags);
}

void uncork_dpdk_push(struct uncork_dpdk_port *self, const struct uncork_dpdk_leaving *leaving) {
    struct rte_mbuf *mbuf = self->room;
    self->room = NULL;
    mbuf->data_len = (uint16_t)leaving->bytes;
    mbuf->pkt_len = leaving->bytes;
    if (leaving->transport_at != 0) {
        mbuf->l2_len = RTE_ETHER_HDR_LEN;
        mbuf->l3_len = leaving->transport_at - RTE_ETHER_HDR_LEN;
        mbuf->ol_flags |= leaving->is_ipv6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4;
        if (leaving->segment_bytes != 0)
            prepare_train(self, mbuf, leaving);
        else
            mbuf->ol_flags |= leaving->is_tcp ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM;
    }
    self->out[self->out_count++] = mbuf;
}

static void forget_first(struct uncork_dpdk_port *self, uint16_t count) {
    self->out_count -= count;
    memmove(self->out, self->out + count, self->out_count * sizeof *self->out);
}

uint16_t uncork_dpdk_send(struct uncork_dpdk_port *self, uint16_t *taken) {
    uint16_t ready = self->out_count;
    /* Some devices need headers changed before they do their part. Preparing a frame twice changes nothing more. */
    if (self->prepares && ready > 0)
        ready = rte_eth_tx_prepare(self->number, 0, self->out, ready);
    *taken = ready > 0 ? rte_eth_tx_burst(self->number, 0, self->out, ready) : 0;
    forget_first(self, *taken);
    return self->out_count;
}

void uncork_dpdk_give_up(struct uncork_dpdk_port *self) {
    if (self->out_count == 0)
        return;
    rte_pktmbuf_free(self->out[0]);
    forget_first(self, 1);
    self->given_up++;
}

void uncork_dpdk_count(struct uncork_dpdk_port *self, struct uncork_dpdk_counts *counts) {
    struct rte_eth_stats stats;
    memset(counts, 0, sizeof *counts);
    counts->too_long = self->too_long;
    counts->given_up = self->given_up;
    if (rte_eth_stats_get(self->number, &stats) != 0)
        return;
    counts->received = stats.ipackets;
    counts->missed = stats.imissed + stats.rx_nombuf;
    counts->receive_errors = stats.ierrors;
    counts->sent = stats.opackets;
    counts->send_errors = stats.oerrors;
}

/* What uncork needs of DPDK, as functions that are called by their names: most of DPDK's own are inline, and its
 * structures differ from version to version. Nothing in here decides anything but how DPDK is to be asked.
 *
 * What starts, attaches, opens and closes is called by one thread at a time, the rest by one thread at a time of each
 * port. */
#ifndef UNCORK_DPDK_SHIM_H
#define UNCORK_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* A port that receives and sends. */
struct uncork_dpdk_port;

/* What a device is, once DPDK has it. */
struct uncork_dpdk_found {
    uint8_t mac[6];
    /* The longest packet that it is set to, in octets. */
    uint16_t mtu;
    /* Number of the kernel's device below it or at its other end; 0 if there is none. */
    uint32_t kernel_index;
    /* Whether it completes checksums of TCP and UDP, cuts trains of TCP, verifies checksums of what comes. */
    uint8_t completes_checksums;
    uint8_t cuts_trains;
    uint8_t verifies_checksums;
    /* The name of its driver in DPDK, ended by a zero. */
    char driver[33];
};

/* How a port is to be. */
struct uncork_dpdk_wanted {
    /* The longest packet, in octets; 0 for what the device has by itself. */
    uint16_t mtu;
    /* Room for a frame that comes and for one that leaves, in octets. */
    uint16_t receive_bytes;
    uint16_t transmit_bytes;
    /* Descriptors, if the device takes so many. */
    uint16_t receive_frames;
    uint16_t transmit_frames;
    /* Which of the device's abilities are used. */
    uint8_t completes_checksums;
    uint8_t cuts_trains;
    uint8_t verifies_checksums;
};

/* A frame that has come. */
struct uncork_dpdk_frame {
    const uint8_t *octets;
    uint32_t bytes;
    /* Of a train that the device hands over whole: data in each segment; 0 otherwise. */
    uint16_t segment_bytes;
    /* Whether the device has found its checksum above IP to be right. */
    uint8_t good;
};

/* What is left to be done to a frame that leaves. */
struct uncork_dpdk_leaving {
    uint32_t bytes;
    /* Where the transport header begins, in octets from the frame's first; 0 if the frame is complete. */
    uint16_t transport_at;
    uint8_t is_tcp;
    uint8_t is_ipv6;
    /* Of a train: data in each segment, and the octets of TCP's header; 0 otherwise. */
    uint16_t segment_bytes;
    uint8_t tcp_bytes;
};

/* What DPDK has counted, and this file. */
struct uncork_dpdk_counts {
    uint64_t received;
    /* For want of descriptors or buffers. */
    uint64_t missed;
    uint64_t receive_errors;
    uint64_t sent;
    uint64_t send_errors;
    /* Longer than any buffer of ours. */
    uint64_t too_long;
    /* Given up: the device does not take them. */
    uint64_t given_up;
};

/* Starts DPDK's environment (EAL), once a process; 0, or a negative number. The processors on which the calling thread
 * may run stay what they were, and nothing is printed. */
int uncork_dpdk_start(int count, const char *const *arguments);

/* Copies the first sentence of complaint since it was asked last, ended by a zero; empty if there was none. */
void uncork_dpdk_said(char *text, size_t room);

/* Has DPDK take up a device, with its arguments ("net_null0,copy=1"); its number, or a negative errno: -EEXIST if it is
 * attached already. */
int uncork_dpdk_attach(const char *name, const char *with_arguments);

/* Lets go of a device that was attached and never opened. */
void uncork_dpdk_detach(uint16_t port);

/* What it is; 0 or a negative errno. */
int uncork_dpdk_look(uint16_t port, struct uncork_dpdk_found *found);

/* Makes it receive and send. NULL with a negative errno in `error`; the device is still attached then. */
struct uncork_dpdk_port *uncork_dpdk_open(uint16_t port, const struct uncork_dpdk_wanted *wanted, int *error);

/* Ends that, and lets go of the device. */
void uncork_dpdk_close(struct uncork_dpdk_port *port);

/* The MTU as it is set now. */
uint16_t uncork_dpdk_mtu(const struct uncork_dpdk_port *port);

/* Takes in a burst of frames, and gives how many they are; those of the call before are gone. */
uint16_t uncork_dpdk_receive(struct uncork_dpdk_port *port);

/* One of those that the last call has taken in, until the next one; 0 octets if it is too long. */
void uncork_dpdk_frame(struct uncork_dpdk_port *port, uint16_t number, struct uncork_dpdk_frame *frame);

/* The room for the next frame to leave, the same until it is pushed, of `transmit_bytes`; NULL if there is none. */
uint8_t *uncork_dpdk_room(struct uncork_dpdk_port *port);

/* The frame in that room is to leave with the next uncork_dpdk_send. There must be a room. */
void uncork_dpdk_push(struct uncork_dpdk_port *port, const struct uncork_dpdk_leaving *leaving);

/* Hands frames that were pushed to the device, and says how many it has taken; how many are left over. */
uint16_t uncork_dpdk_send(struct uncork_dpdk_port *port, uint16_t *taken);

/* Drops the first of those that are left over. */
void uncork_dpdk_give_up(struct uncork_dpdk_port *port);

void uncork_dpdk_count(struct uncork_dpdk_port *port, struct uncork_dpdk_counts *counts);

#endif

/* What uncork needs of DPDK, as functions that can be linked by name: most of DPDK's own are inline, and its
 * structures differ from version to version. Nothing here decides anything but how DPDK is to be called.
 *
 * Start, attach, open and close are called by one thread at a time, the rest by one thread at a time for each
 * port. */
#ifndef UNCORK_DPDK_SHIM_H
#define UNCORK_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* A started port. */
struct uncork_dpdk_port;

/* The properties of an attached device. */
struct uncork_dpdk_found {
    uint8_t mac[6];
    /* The longest packet that it is set to, in octets. */
    uint16_t mtu;
    /* Index of the kernel's device below it or at its other end; 0 if there is none. */
    uint32_t kernel_index;
    /* Whether it completes checksums of TCP and UDP, cuts trains of TCP, verifies checksums of received frames. */
    uint8_t completes_checksums;
    uint8_t cuts_trains;
    uint8_t verifies_checksums;
    /* The name of its driver in DPDK, NUL-terminated. */
    char driver[33];
};

/* The configuration of a port. */
struct uncork_dpdk_wanted {
    /* The longest packet, in octets; 0 leaves the device's own. */
    uint16_t mtu;
    /* Room for a received frame and for one to be sent, in octets. */
    uint16_t receive_bytes;
    uint16_t transmit_bytes;
    /* Numbers of descriptors, if the device supports that many. */
    uint16_t receive_frames;
    uint16_t transmit_frames;
    /* Which of the device's offloads are used. */
    uint8_t completes_checksums;
    uint8_t cuts_trains;
    uint8_t verifies_checksums;
};

/* A received frame. */
struct uncork_dpdk_frame {
    const uint8_t *octets;
    uint32_t bytes;
    /* For a train that the device has joined: data in each segment; otherwise 0. */
    uint16_t segment_bytes;
    /* Whether the device has found its transport checksum to be right. */
    uint8_t good;
};

/* What the device has to do to a frame that is sent. */
struct uncork_dpdk_leaving {
    uint32_t bytes;
    /* Offset of the transport header in the frame, in octets; 0 if the frame is complete. */
    uint16_t transport_at;
    uint8_t is_tcp;
    uint8_t is_ipv6;
    /* For a train: data in each segment, and the length of the TCP header; otherwise 0. */
    uint16_t segment_bytes;
    uint8_t tcp_bytes;
};

/* Counters of DPDK, and of this file. */
struct uncork_dpdk_counts {
    uint64_t received;
    /* Frames that were lost for want of descriptors or buffers. */
    uint64_t missed;
    uint64_t receive_errors;
    uint64_t sent;
    uint64_t send_errors;
    /* Frames longer than any buffer of ours. */
    uint64_t too_long;
    /* Frames dropped because the device did not take them. */
    uint64_t given_up;
};

/* Starts DPDK's environment (EAL), once a process; returns 0 or a negative errno. The calling thread's processor
 * affinity stays as it was, and nothing is printed. */
int uncork_dpdk_start(int count, const char *const *arguments);

/* Copies DPDK's first complaint since the last call, NUL-terminated; empty if there was none. */
void uncork_dpdk_said(char *text, size_t room);

/* Attaches a device, with its arguments ("net_null0,copy=1"); returns its port number, or a negative errno: -EEXIST if
 * it is attached already. */
int uncork_dpdk_attach(const char *name, const char *with_arguments);

/* Detaches a device that was attached and never opened. */
void uncork_dpdk_detach(uint16_t port);

/* Fills in the device's properties; returns 0 or a negative errno. */
int uncork_dpdk_look(uint16_t port, struct uncork_dpdk_found *found);

/* Starts the device. On failure NULL with a negative errno in `error`; the device is then detached. */
struct uncork_dpdk_port *uncork_dpdk_open(uint16_t port, const struct uncork_dpdk_wanted *wanted, int *error);

/* Stops the device and detaches it. */
void uncork_dpdk_close(struct uncork_dpdk_port *port);

/* Returns the current MTU. */
uint16_t uncork_dpdk_mtu(const struct uncork_dpdk_port *port);

/* Receives a burst of frames, and returns their number; the frames of the previous call become invalid. */
uint16_t uncork_dpdk_receive(struct uncork_dpdk_port *port);

/* Returns a frame of the last burst, valid until the next one; 0 octets if it is too long. */
void uncork_dpdk_frame(struct uncork_dpdk_port *port, uint16_t number, struct uncork_dpdk_frame *frame);

/* Returns the buffer for the next frame, of `transmit_bytes`, the same until it is pushed; NULL if there is none. */
uint8_t *uncork_dpdk_room(struct uncork_dpdk_port *port);

/* Queues the frame in that buffer for the next uncork_dpdk_send. There must be a buffer. */
void uncork_dpdk_push(struct uncork_dpdk_port *port, const struct uncork_dpdk_leaving *leaving);

/* Hands pushed frames to the device: `taken` is how many it has taken; returns how many are left. */
uint16_t uncork_dpdk_send(struct uncork_dpdk_port *port, uint16_t *taken);

/* Drops the first of the frames that are left. */
void uncork_dpdk_give_up(struct uncork_dpdk_port *port);

void uncork_dpdk_count(struct uncork_dpdk_port *port, struct uncork_dpdk_counts *counts);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The virtio socket device (virtio 1.2, 5.10), wholly in user space: no vhost, no host AF_VSOCK.
 *
 * It owns a bounded table of connections (vsock-conn.h) and moves packets between them and the
 * guest's rings. The guest may open one connection, the control stream to AGENT_CONTROL_PORT;
 * everything else it asks for is answered by RST. The host opens streams to AGENT_STREAM_PORT.
 *
 * Lives on the loop's thread: rings, connections and callbacks. A callback may call back in. */

#include "vmm/virtio-pci.h"
#include "vmm/vsock-conn.h"

#define VSOCK_CONNECTIONS_MAX 256U

typedef struct VirtioVsock VirtioVsock;

int virtio_vsock_new(Vm *vm, Loop *loop, uint64_t bar_gpa, uint32_t guest_cid, const VsockControlEvents *events,
                     VirtioErrorFn on_error, void *on_error_userdata, VirtioVsock **ret);
VirtioVsock *virtio_vsock_free(VirtioVsock *s);
VirtioPci *virtio_vsock_pci(VirtioVsock *s);

/* As devices_control_send(), devices_control_hold() and devices_stream_open(), devices.h. */
int virtio_vsock_control_send(VirtioVsock *s, const uint8_t *frame, size_t size);
void virtio_vsock_control_hold(VirtioVsock *s, bool hold);
int virtio_vsock_stream_open(VirtioVsock *s, int fd, const uint8_t *frame, size_t size, StreamAnswer answer,
                             void *userdata);

void virtio_vsock_pause(VirtioVsock *s);
void virtio_vsock_resume(VirtioVsock *s);

/* Connections in a snapshot: the control stream goes on, all others are reset in the copy, behind the first
 * frame that its agent is sent. */
void virtio_vsock_save(const VirtioVsock *s, unsigned slot, SnapshotWriter *w);
typedef struct VsockLoad VsockLoad;
/* live: whether the device's registers, as loaded, say so. */
int virtio_vsock_parse(const VirtioVsock *s, bool live, SnapshotReader *r, VsockLoad **ret, ErrorText *e);
/* Drops all connections that there are, and takes l. */
void virtio_vsock_apply(VirtioVsock *s, VsockLoad *l);
VsockLoad *virtio_vsock_load_free(VsockLoad *l);
bool virtio_vsock_load_has_control(const VsockLoad *l);

void virtio_vsock_counters(VirtioVsock *s, CounterFn fn, void *userdata);

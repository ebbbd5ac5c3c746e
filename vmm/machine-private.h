/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What machine.c (life) and machine-snapshot.c (pause, save, load, rollback) share. */

#include "vmm/machine.h"
#include "vmm/mailbox.h"
#include "vmm/snapshot-layer.h"
#include "vmm/snapshot-vcpu.h"
#include "vmm/vcpu.h"

struct Machine {
        Loop *loop;
        MachineEvents events;
        VmmState state;
        BuildConfig config;
        Vm vm;
        Serial serial;
        Devices *devices;
        Vcpu *vcpus[CONFIG_CPUS_MAX];
        unsigned n_vcpus;
        LoopSource *stop_timer;

        /* For snapshots. */
        CpuidTable *cpuid;        /* what the vCPUs' tables are made from */
        MsrList msrs;
        uint32_t xsave_bytes;
        bool loaded;              /* LOAD, not BUILD, made it */
        bool needs_claim;         /* the guest is a copy and does not know it yet */
        VcpuTime *times;          /* of the first n_times vCPUs, to be set before they run; NULL: none */
        unsigned n_times;
        uint64_t clock_nsec;      /* kvm-clock, together with times */
        uint8_t saved_id[SNAPSHOT_ID_BYTES];  /* of the last SAVE since guest code ran */
        /* What the RAM is made of, the lowest first, but for its private pages. */
        uint8_t layer_ids[SNAPSHOT_LAYERS_MAX][SNAPSHOT_ID_BYTES];
        unsigned n_layers;
        unsigned n_layer_runs;

        uint8_t *claim_frame;
        size_t claim_size;
        bool claim_sent;
        uint32_t claim_id;        /* of the claim that was sent, while its answer is waited for; 0: it is not */
        uint8_t *ready_frame;
        size_t ready_size;
        _Atomic bool agent_seen;

        Mailbox mailbox; /* all that other threads touch, but for agent_seen */
};

int machine_wrong_state(const Machine *m, const char *what, ErrorText *e);
/* Makes the devices and vCPUs out of m->config, m->vm and, for the vCPUs, cpuid. */
int machine_add_devices(Machine *m, ErrorText *e);
int machine_add_vcpus(Machine *m, const CpuidTable *cpuid, ErrorText *e);
/* Back to NEW; closes what config holds. */
void machine_unbuild(Machine *m);
/* Keeps a copy of the AGENT_CLAIM frame until the agent can take it. */
int machine_keep_claim(Machine *m, const char *what, const uint8_t *frame, size_t size, ErrorText *e);
/* Sends it when the agent is there. The guest hears nothing of the network before it has answered. */
void machine_send_claim(Machine *m);
/* Sets what depends on the time at which the guest goes on, if it was loaded, and tells it that it was away. */
int machine_set_time(Machine *m, ErrorText *e);

/* SPDX-License-Identifier: Apache-2.0 */

/* Who is idle at the end of the idle time-out. What VMM, guest and filter say is put there by the test. */

#include "base/clock.h"
#include "base/parse.h"
#include "daemon/sandbox-private.h"
#include "tests/unit/test.h"

#define TIMEOUT_USEC (100 * USEC_PER_SEC)

static Manager manager;
static Sandbox *sandbox;
static NetStats net;
static VmmCounter connections;
static bool net_known;
static unsigned n_pauses, n_asked_guest, n_asked;

int __wrap_sandbox_get_statistics(Sandbox *s, StatisticsDone done, void *userdata, sd_bus_error *error);
int __wrap_sandbox_get_statistics(Sandbox *s, StatisticsDone done, void *userdata, sd_bus_error *error) {
        SandboxStatistics st = { .counters = &connections, .n_counters = 1, .net = net_known ? &net : NULL };

        n_asked++;
        done(s, NULL, &st, userdata);
        return 0;
}

int __wrap_vmm_client_agent(VmmClient *c, AgentFrameType type, const TlvWriter *body, uint64_t timeout_usec, VmmAgentReply reply,
                            void *userdata);
int __wrap_vmm_client_agent(VmmClient *c, AgentFrameType type, const TlvWriter *body, uint64_t timeout_usec, VmmAgentReply reply,
                            void *userdata) {
        assert_eq(type, AGENT_LIST_PROCESSES);
        n_asked_guest++;
        reply(c, 0, "", NULL, 0, false, userdata);
        return 0;
}

int __wrap_sandbox_pause(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error);
int __wrap_sandbox_pause(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error) {
        n_pauses++;
        return 0;
}

static uint64_t boot_usec(void) {
        return clock_usec(CLOCK_BOOTTIME);
}

/* Nothing was asked of it for longer than its time-out. */
static void make(void) {
        n_pauses = n_asked_guest = n_asked = 0;
        net_known = true;
        net = (NetStats) {};
        connections = (VmmCounter) { .name = "vsock-connections", .value = 1 };
        manager = (Manager) {};
        assert_ok(sd_event_new(&manager.event));
        assert_ok(sandbox_new(&manager, "abcdefghijklmnop", &sandbox));
        sandbox->state = SANDBOX_RUNNING;
        sandbox->slot = 5;
        sandbox->idle_timeout_usec = TIMEOUT_USEC;
        sandbox->on_timeout = SANDBOX_END_PAUSE;
        sandbox->priv->active_boot_usec = boot_usec() - 2 * TIMEOUT_USEC;
}

static void done(void) {
        sandbox_free(sandbox);
        manager.event = sd_event_unref(manager.event);
}

/* The timer fires, once. */
static void end_of_time(void) {
        assert_ok(sandbox_arm_idle(sandbox));
        while (n_asked == 0)
                assert_ok(sd_event_run(manager.event, UINT64_MAX));
}

static uint64_t next_look(void) {
        uint64_t usec;
        int enabled;

        assert_ok(sd_event_source_get_enabled(sandbox->priv->idle_timer, &enabled));
        assert_eq(enabled, SD_EVENT_ONESHOT);
        assert_ok(sd_event_source_get_time(sandbox->priv->idle_timer, &usec));
        return usec;
}

TEST(of_whom_nothing_is_asked_is_idle) {
        make();
        end_of_time();
        assert_true(n_pauses == 1 && n_asked_guest == 1);
        done();
}

TEST(who_was_of_use_over_the_network_lately_is_idle_so_much_later) {
        make();
        uint64_t used = boot_usec() - TIMEOUT_USEC / 2;
        net.used = used * NSEC_PER_USEC;
        end_of_time();
        assert_eq(n_pauses, 0);
        assert_eq(next_look(), used + TIMEOUT_USEC);
        /* It may sleep on. */
        assert_eq(n_asked_guest, 0);
        done();
}

TEST(who_was_of_use_long_ago_is_idle) {
        make();
        net.used = (boot_usec() - TIMEOUT_USEC - USEC_PER_SEC) * NSEC_PER_USEC;
        end_of_time();
        assert_eq(n_pauses, 1);
        done();
}

TEST(a_request_that_came_later_than_the_last_packet_counts) {
        make();
        net.used = (boot_usec() - TIMEOUT_USEC - USEC_PER_SEC) * NSEC_PER_USEC;
        end_of_time();
        uint64_t asked = boot_usec();
        sandbox_touch(sandbox);
        assert_ok(sandbox_arm_idle(sandbox));
        assert_true(next_look() >= asked + TIMEOUT_USEC);
        done();
}

TEST(whose_traffic_is_not_known_is_busy) {
        make();
        net_known = false;
        end_of_time();
        assert_true(n_pauses == 0 && sandbox->priv->idle_was_busy);
        assert_true(next_look() > boot_usec() + TIMEOUT_USEC / 8 && next_look() < boot_usec() + TIMEOUT_USEC);
        done();
}

TEST(who_has_no_network_has_no_traffic) {
        make();
        net_known = false;
        sandbox->slot = 0;
        end_of_time();
        assert_eq(n_pauses, 1);
        done();
}

TEST(who_has_a_stream_is_busy) {
        make();
        connections.value = 2;
        end_of_time();
        assert_true(n_pauses == 0 && sandbox->priv->idle_was_busy);
        done();
}

/* SPDX-License-Identifier: Apache-2.0 */

/* How often a guest is told the time. What it answers, and when, is the test's. */

#include "base/agent-proto.h"
#include "base/clock.h"
#include "daemon/sandbox-private.h"
#include "tests/unit/test.h"

static Manager manager;
static Sandbox *sandbox;
static unsigned n_sent, n_told;
static VmmAgentReply answer;
static uint64_t told_nsec;

int __wrap_vmm_client_agent(VmmClient *c, AgentFrameType type, const TlvWriter *body, uint64_t timeout_usec, VmmAgentReply reply,
                            void *userdata);
int __wrap_vmm_client_agent(VmmClient *c, AgentFrameType type, const TlvWriter *body, uint64_t timeout_usec, VmmAgentReply reply,
                            void *userdata) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        Tlv t;

        assert_eq(type, AGENT_SET_TIME);
        assert_true(userdata == sandbox);
        assert_true(tlv_next(&reader, &t) > 0 && t.tag == AGENT_TAG_REALTIME_NSEC && tlv_get_u64(&t, &told_nsec) >= 0);
        n_sent++;
        answer = reply;
        return 0;
}

static void on_told(Sandbox *s) {
        assert_true(s == sandbox);
        n_told++;
}

static void make(void) {
        uint64_t before = clock_usec(CLOCK_REALTIME) * NSEC_PER_USEC;

        n_sent = n_told = 0;
        assert_ok(sandbox_new(&manager, "abcdefghijklmnop", &sandbox));
        /* It is asked nothing but by what is above. */
        sandbox->priv->vmm = (VmmClient *) &manager;
        sandbox_tell_time(sandbox, on_told);
        assert_true(n_sent == 1 && n_told == 0);
        assert_true(before <= told_nsec && told_nsec / NSEC_PER_USEC <= clock_usec(CLOCK_REALTIME));
}

static void done(void) {
        sandbox->priv->vmm = NULL;
        sandbox_free(sandbox);
}

static void answered(int error, bool late) {
        /* However long it is since that was sent. */
        sandbox->priv->time_sent_usec = now_usec() - (late ? USEC_PER_SEC : 0);
        answer(sandbox->priv->vmm, error, "", NULL, 0, false, sandbox);
}

TEST(who_answers_at_once_was_told_the_time) {
        make();
        answered(0, false);
        assert_true(n_sent == 1 && n_told == 1);
        done();
}

TEST(who_answers_late_is_told_again) {
        make();
        answered(0, true);
        assert_true(n_sent == 2 && n_told == 0);
        answered(0, false);
        assert_true(n_sent == 2 && n_told == 1);
        done();
}

TEST(who_is_always_late_is_told_five_times) {
        make();
        for (unsigned i = 0; i < 5; i++) {
                assert_eq(n_told, 0);
                answered(0, true);
        }
        assert_true(n_sent == 5 && n_told == 1);
        done();
}

TEST(who_can_not_set_it_has_the_clock_that_it_has) {
        make();
        answered(-EPERM, true);
        assert_true(n_sent == 1 && n_told == 1);
        done();
}

/* It may take it much later, and would be as much behind. */
TEST(who_does_not_answer_is_not_waited_for_but_told_again) {
        make();
        answered(-ETIMEDOUT, true);
        assert_true(n_sent == 2 && n_told == 1);
        answered(0, false);
        assert_true(n_sent == 2 && n_told == 1);
        done();
}

TEST(who_never_answers_is_told_five_times) {
        make();
        for (unsigned i = 0; i < 5; i++)
                answered(-ETIMEDOUT, true);
        assert_true(n_sent == 5 && n_told == 1);
        done();
}

TEST(of_one_that_ends_others_tell) {
        make();
        answered(-ECONNRESET, false);
        assert_true(n_sent == 1 && n_told == 0);
        done();
}

TEST(nobody_need_wait_for_it) {
        make();
        sandbox_tell_time(sandbox, NULL);
        answered(0, true);
        assert_true(n_sent == 3 && n_told == 0);
        answered(0, false);
        assert_true(n_sent == 3 && n_told == 0);
        done();
}

TEST(one_without_a_vmm_is_told_nothing) {
        make();
        sandbox->priv->vmm = NULL;
        n_sent = 0;
        sandbox_tell_time(sandbox, on_told);
        assert_true(n_sent == 0 && n_told == 1);
        done();
}

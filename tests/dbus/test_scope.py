# SPDX-License-Identifier: Apache-2.0
"""daemon/scope.c against python3-dbusmock's systemd, on a bus of its own.

What PID 1 is asked for is read from the mock's log of calls; how it answers is overridden where a
test needs a PID 1 that refuses.
"""

import os
import select
import subprocess
import tempfile
import unittest

import dbus
import dbusmock

from bushost import wait_for

DRIVER = os.environ.get("SCOPE_DRIVER",
                        os.path.join(os.environ.get("CUBE_BUILD", "build"), "tests/dbus/scope-driver"))
MAIN = "/org/freedesktop/systemd1"
IFACE = "org.freedesktop.systemd1.Manager"
NAME = "cube-abcdefghijklmnop.scope"
UNIT = MAIN + "/unit/cube_2dabcdefghijklmnop_2escope"


class TestScope(dbusmock.DBusTestCase):
    @classmethod
    def setUpClass(cls):
        cls.start_system_bus()
        cls.bus = cls.get_dbus(system_bus=True)

    def setUp(self):
        self.mock, obj = self.spawn_server_template("systemd", {}, stdout=subprocess.DEVNULL)
        self.obj = dbus.Interface(obj, dbusmock.MOCK_IFACE)
        for name, signature in (("Subscribe", ""), ("UnrefUnit", "s"), ("RefUnit", "s"), ("ResetFailedUnit", "s"),
                                ("KillUnit", "ssi"), ("SetUnitProperties", "sba(sv)")):
            self.obj.AddMethod(IFACE, name, signature, "", "")
        self.obj.AddMethod(IFACE, "Taken", "", "i", "ret = getattr(self, 'taken', 0)")
        self.start_driver(DRIVER)

    def start_driver(self, *command):
        self.driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.assertEqual(self.line(), "ready")

    def end_driver(self):
        self.driver.stdin.close()
        self.assertEqual(self.driver.wait(60), 0)
        self.driver.stdout.close()

    def tearDown(self):
        self.end_driver()
        self.mock.terminate()
        self.mock.wait()

    def tell(self, *lines):
        self.driver.stdin.write("".join(line + "\n" for line in lines).encode())

    def line(self, timeout=60):
        ready, _, _ = select.select([self.driver.stdout], [], [], timeout)
        self.assertTrue(ready, "the driver says nothing")
        return self.driver.stdout.readline().decode().strip()

    def silent(self, seconds=0.3):
        return not select.select([self.driver.stdout], [], [], seconds)[0]

    def calls(self, name):
        return [args for _, member, args in self.obj.GetCalls() if member == name]

    def wait_call(self, name, number=1):
        wait_for(f"PID 1 to be asked for {name}", lambda: len(self.calls(name)) >= number)
        return self.calls(name)[number - 1]

    def refuse_starts(self, code):
        """A StartTransientUnit of our own instead of the template's."""
        self.obj.AddMethod(IFACE, "StartTransientUnit", "ssa(sv)a(sa(sv))", "o", code)

    # Calls that a method with this takes are told from those that came before it was there: see taken().
    TAKES = "self.taken = getattr(self, 'taken', 0) + 1"

    def take_starts(self):
        self.refuse_starts(f"{self.TAKES}; ret = dbus.ObjectPath('{MAIN}/job/7')")

    def taken(self):
        return dbus.Interface(self.obj.proxy_object, IFACE).Taken()

    def wait_taken(self, number):
        wait_for(f"{number} calls to be taken", lambda: self.taken() >= number)

    def job_removed(self, result, path=MAIN + "/job/7", unit=NAME):
        self.obj.EmitSignal(IFACE, "JobRemoved", "uoss", [dbus.UInt32(7), dbus.ObjectPath(path), unit, result])

    def test_properties_of_the_unit(self):
        self.refuse_starts(f"ret = dbus.ObjectPath('{MAIN}/job/7')")
        self.tell("start " + NAME)
        name, mode, properties, aux = self.wait_call("StartTransientUnit")
        self.assertEqual((name, mode, list(aux)), (NAME, "fail", []))
        p = {key: value for key, value in properties}
        self.assertEqual(p["Slice"], "cube.slice")
        self.assertEqual(list(p["PIDs"]), [self.driver.pid])
        self.assertEqual(p["CollectMode"], "inactive-or-failed")
        self.assertEqual(p["AddRef"], True)
        self.assertEqual(p["KillMode"], "control-group")
        self.assertEqual(p["OOMPolicy"], "kill")
        self.assertEqual(p["DevicePolicy"], "closed")
        self.assertEqual(list(p["After"]), ["cubed.service"])
        self.assertEqual(p["MemoryMax"], (256 << 20) * 257 // 256 + (48 << 20))
        self.assertEqual(p["MemorySwapMax"], 256 << 20)
        self.assertEqual(p["CPUQuotaPerSecUSec"], 500000)
        self.assertEqual(p["TasksMax"], 64)
        self.assertEqual(p["TimeoutStopUSec"], 15000000)
        self.assertNotIn("Controller", p)
        self.assertNotIn("RuntimeMaxUSec", p)
        self.assertEqual(len(self.calls("Subscribe")), 1)

    def test_done_only_with_its_own_job(self):
        self.refuse_starts(f"ret = dbus.ObjectPath('{MAIN}/job/7')")
        self.tell("start " + NAME)
        # its answer is on its way by then, before any signal
        self.wait_call("StartTransientUnit")
        self.job_removed("done", path=MAIN + "/job/8")
        self.assertTrue(self.silent())
        self.job_removed("done")
        self.assertEqual(self.line(), "done")
        self.job_removed("done")
        self.assertTrue(self.silent())

    def test_the_templates_own_jobs(self):
        self.tell("start " + NAME)
        self.assertEqual(self.line(), "done")

    def test_a_job_that_fails(self):
        self.refuse_starts(f"ret = dbus.ObjectPath('{MAIN}/job/7')")
        for result in ("failed", "timeout", "canceled"):
            self.tell("start " + NAME)
            self.wait_call("StartTransientUnit", ("failed", "timeout", "canceled").index(result) + 1)
            self.job_removed(result)
            line = self.line()
            self.assertTrue(line.startswith("error "), line)
            self.assertIn(f'"{result}"', line)
            self.assertIn(NAME, line)
            self.tell("free")

    def test_a_call_that_is_refused(self):
        self.refuse_starts("raise dbus.exceptions.DBusException('no', name='org.freedesktop.DBus.Error.AccessDenied')")
        self.tell("start " + NAME)
        self.assertEqual(self.line(), "error org.freedesktop.DBus.Error.AccessDenied: no")
        self.assertEqual(len(self.calls("StartTransientUnit")), 1)
        # Nothing was made that a reference could be dropped on.
        self.tell("free")
        self.assertTrue(self.silent())
        self.assertEqual(self.calls("UnrefUnit"), [])

    THERE = "raise dbus.exceptions.DBusException('there', name='org.freedesktop.systemd1.UnitExists')"

    def test_a_left_over_unit_is_reset_and_tried_again_for_a_while(self):
        self.refuse_starts(self.THERE)
        self.tell("start " + NAME)
        self.assertEqual(self.line(), "error org.freedesktop.systemd1.UnitExists: there")
        resets, starts = self.calls("ResetFailedUnit"), self.calls("StartTransientUnit")
        self.assertEqual(len(starts), len(resets) + 1)
        self.assertTrue(len(starts) > 2 and all(s == starts[0] for s in starts))
        self.assertTrue(all(list(r) == [NAME] for r in resets))

    def test_once_it_is_gone_the_next_try_succeeds(self):
        self.refuse_starts(self.THERE)
        self.tell("start " + NAME)
        self.wait_call("ResetFailedUnit", 3)
        self.take_starts()
        self.wait_taken(1)
        self.job_removed("done")
        self.assertEqual(self.line(), "done")

    AWAY = "raise dbus.exceptions.DBusException('away', name='org.freedesktop.DBus.Error.NoReply')"

    def test_a_pid_1_that_goes_away_is_asked_again(self):
        """Whatever it is asked for: it executes itself anew with each update."""
        self.refuse_starts(self.AWAY)
        self.tell("start " + NAME)
        self.wait_call("StartTransientUnit", 3)
        self.take_starts()
        self.wait_taken(1)
        starts = self.calls("StartTransientUnit")
        self.assertTrue(all(s == starts[0] for s in starts))
        self.job_removed("done")
        self.assertEqual(self.line(), "done")
        for name, signature, command, answer in (("SetUnitProperties", "sba(sv)", "limits 0 250000", "done"),
                                                 ("KillUnit", "ssi", "kill", None), ("UnrefUnit", "s", "free", None)):
            self.obj.AddMethod(IFACE, name, signature, "", self.AWAY)
            self.tell(command)
            self.wait_call(name, 2)
            self.assertTrue(self.silent())
            before = self.taken()
            self.obj.AddMethod(IFACE, name, signature, "", self.TAKES)
            self.wait_taken(before + 1)
            if answer:
                self.assertEqual(self.line(), answer)
            self.assertTrue(self.silent())
            self.assertEqual(self.taken(), before + 1)

    def test_a_pid_1_that_stays_away_is_an_error(self):
        self.refuse_starts(self.AWAY)
        self.tell("start " + NAME)
        self.assertEqual(self.line(), "error org.freedesktop.DBus.Error.NoReply: away")

    def test_started_and_not_told(self):
        """PID 1 went away behind the start: the process is where it is to be."""
        if os.geteuid() != 0:
            self.skipTest("takes root")
        self.refuse_starts(f"ret = dbus.ObjectPath('{MAIN}/job/7')")
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as cgroup:
            # in a mount namespace of its own, where the driver's cgroup is what this file says
            self.end_driver()
            self.start_driver("unshare", "--mount", "sh", "-c", f"mount --bind {cgroup.name} /proc/$$/cgroup && exec {DRIVER}")
            self.tell("start " + NAME)
            self.wait_call("StartTransientUnit")
            for elsewhere in "0::/system.slice/cubed.service\n", f"0::/{NAME}/inner\n", f"0::/x{NAME}\n":
                self.write(cgroup, elsewhere)
                self.assertTrue(self.silent(0.6))
            self.write(cgroup, f"0::/cube.slice/{NAME}\n")
            self.assertEqual(self.line(), "done")
            self.job_removed("done")
            self.assertTrue(self.silent())

    @staticmethod
    def write(file, text):
        file.seek(0)
        file.truncate()
        file.write(text)
        file.flush()

    def test_freed_while_starting(self):
        self.refuse_starts(f"ret = dbus.ObjectPath('{MAIN}/job/7')")
        self.tell("start " + NAME, "free")
        self.assertEqual(list(self.wait_call("UnrefUnit")), [NAME])
        self.job_removed("done")
        self.assertTrue(self.silent())

    def test_limits(self):
        self.tell("start " + NAME)
        self.assertEqual(self.line(), "done")
        self.tell("limits 0 250000")
        self.assertEqual(self.line(), "done")
        name, runtime, properties = self.wait_call("SetUnitProperties")
        self.assertEqual((name, runtime), (NAME, True))
        self.assertEqual(dict(properties), {"CPUQuotaPerSecUSec": 250000})
        self.tell("limits 1048576 0")
        self.assertEqual(self.line(), "done")
        self.assertEqual(dict(self.wait_call("SetUnitProperties", 2)[2]), {"MemoryMax": 1048576, "MemorySwapMax": 1048576})

    def test_kill(self):
        self.tell("start " + NAME)
        self.assertEqual(self.line(), "done")
        self.tell("kill")
        self.assertEqual(list(self.wait_call("KillUnit")), [NAME, "all", 9])

    def add_unit(self, state, result):
        self.obj.AddObject(UNIT, "org.freedesktop.systemd1.Unit", {"ActiveState": state},
                           dbus.Array([], signature="(ssss)"))
        unit = dbus.Interface(self.bus.get_object("org.freedesktop.systemd1", UNIT), dbusmock.MOCK_IFACE)
        unit.AddProperties("org.freedesktop.systemd1.Scope", {"Result": result})
        return unit

    def test_result_once_the_unit_is_down(self):
        unit = self.add_unit("active", "success")
        self.tell("start " + NAME)
        self.assertEqual(self.line(), "done")
        self.tell("result")
        self.assertTrue(self.silent())
        unit.UpdateProperties("org.freedesktop.systemd1.Scope", {"Result": "oom-kill"})
        unit.UpdateProperties("org.freedesktop.systemd1.Unit", {"ActiveState": "failed"})
        self.assertEqual(self.line(), "result oom-kill")

    def test_result_of_a_unit_that_is_gone(self):
        self.tell("start " + NAME)
        self.assertEqual(self.line(), "done")
        self.tell("result")
        self.assertEqual(self.line(), "result")

    def test_adoption_takes_a_reference_and_gives_it_back(self):
        self.tell("adopt " + NAME)
        self.assertEqual(list(self.wait_call("RefUnit")), [NAME])
        self.tell("free")
        self.assertEqual(list(self.wait_call("UnrefUnit")), [NAME])


if __name__ == "__main__":
    unittest.main()

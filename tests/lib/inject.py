# SPDX-License-Identifier: Apache-2.0
"""System calls made by the threads of a running VMM, as a guest that took one over would make them.

    with Injector(pid, task) as thread:
        thread.call(SYS_execve)     # True: its filter let it through

A call that is let through is made, with these arguments. One that is not costs the VMM nothing: the tracer takes SIGSYS away
before its handler sees it."""

import ctypes
import os
import signal

PTRACE_CONT, PTRACE_SINGLESTEP, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_DETACH = 7, 9, 12, 13, 17
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000
GETPID = 39
ALL_ONES = (1 << 64) - 1
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in (
        'r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base '
        'ds es fs gs').split()]


def ptrace(request, task, data=None):
    if libc.ptrace(request, task, None, data) < 0:
        raise OSError(ctypes.get_errno(), f'ptrace {request:#x}')


def find_code(pid, code):
    """Where the program has these bytes, among what it may execute."""
    with open(f'/proc/{pid}/maps') as maps, open(f'/proc/{pid}/mem', 'rb') as mem:
        for line in maps:
            where, permissions, *_ = line.split()
            start, end = (int(x, 16) for x in where.split('-'))
            if 'x' not in permissions or 'vsyscall' in line:
                continue
            mem.seek(start)
            at = mem.read(end - start).find(code)
            if at >= 0:
                return start + at
    raise AssertionError(f'no {code.hex()} in its code')


class Injector:
    def __init__(self, pid, task):
        self.task = task
        self.syscall = find_code(pid, b'\x0f\x05')
        ptrace(PTRACE_SEIZE, task)
        ptrace(PTRACE_INTERRUPT, task)
        os.waitpid(task, WALL)
        self.before = Registers()
        ptrace(PTRACE_GETREGS, task, ctypes.byref(self.before))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ptrace(PTRACE_SETREGS, self.task, ctypes.byref(self.before))
        ptrace(PTRACE_DETACH, self.task)

    def call(self, number, *args):
        """Whether it was let through. What is not given of the arguments is all ones."""
        stopped_by = self._step(number, args)
        if stopped_by == signal.SIGTRAP:
            return True
        assert stopped_by == signal.SIGSYS, f'system call {number}: {signal.Signals(stopped_by)}'
        # The end of the step is still to be told.
        assert self._step(GETPID, ()) == signal.SIGTRAP
        return False

    def _step(self, number, args):
        registers = Registers.from_buffer_copy(self.before)
        registers.rip, registers.rax, registers.orig_rax = self.syscall, number, ALL_ONES
        names = ('rdi', 'rsi', 'rdx', 'r10', 'r8', 'r9')
        for name, value in zip(names, [*args] + [ALL_ONES] * 6):
            setattr(registers, name, value & ALL_ONES)
        ptrace(PTRACE_SETREGS, self.task, ctypes.byref(registers))
        ptrace(PTRACE_SINGLESTEP, self.task)
        _, status = os.waitpid(self.task, WALL)
        assert os.WIFSTOPPED(status), f'system call {number}: status {status:#x}'
        return os.WSTOPSIG(status)

    def end(self, number):
        """Makes the call, and lets the VMM go on from there: to its end, if its filter forbids it."""
        registers = Registers.from_buffer_copy(self.before)
        registers.rip, registers.rax, registers.orig_rax = self.syscall, number, ALL_ONES
        ptrace(PTRACE_SETREGS, self.task, ctypes.byref(registers))
        ptrace(PTRACE_DETACH, self.task)
        self.before = None

# SPDX-License-Identifier: Apache-2.0
"""What a cube-vmm gives up when it starts, and what each thread of a running one can still call.

What can be seen of it from outside is tests/lib/vmm_audit.py, for which cubed has to have started it."""

import fcntl
import os
import re
import shutil
import subprocess

import pytest

import snapshot as s
from inject import Injector
from snapguest import disks, started  # noqa: F401  disks is a fixture
from test_devices import disk_files, with_disks
from vmm import Op, Reason, Vmm, find_program

# By thread, the calls whose arguments are of no interest to the filter. Kept by hand, and apart from vmm/seccomp.c.
ANY = {'futex', 'read', 'write', 'clock_gettime', 'restart_syscall', 'rt_sigreturn', 'rt_sigprocmask', 'munmap', 'mremap',
       'madvise', 'brk', 'getrandom', 'getpid', 'gettid', 'tgkill', 'exit', 'exit_group'}
LOOP = {'epoll_wait', 'epoll_pwait', 'epoll_ctl', 'close'}
FILES = {'readv', 'writev', 'fstat', 'newfstatat', 'pread64', 'pwrite64', 'preadv', 'pwritev', 'preadv2', 'pwritev2', 'lseek',
         'fdatasync', 'fallocate'}
SOCKETS = {'recvmsg', 'sendmsg', 'recvfrom', 'sendto', 'accept4', 'shutdown', 'getsockopt', 'setsockopt', 'poll', 'getuid'}
MAKING = {'set_robust_list', 'rseq', 'rt_sigaction', 'eventfd2', 'epoll_create1', 'clone3'}
ALLOWED = {
    'main, before guest code runs': ANY | LOOP | FILES | SOCKETS | MAKING,
    'main': ANY | LOOP | FILES | SOCKETS,
    'disk': ANY | LOOP | FILES,
    'vcpu': ANY,
}
SAVE = {f'KVM_{verb}_{what}' for verb in ('GET', 'SET') for what in (
    'REGS', 'MP_STATE', 'SREGS2', 'XCRS', 'DEBUGREGS', 'LAPIC', 'MSRS', 'VCPU_EVENTS', 'DEVICE_ATTR', 'CLOCK')}
RUN = SAVE | {'KVM_SIGNAL_MSI', 'KVM_CHECK_EXTENSION', 'KVM_SET_USER_MEMORY_REGION', 'KVM_GET_XSAVE2', 'KVM_SET_XSAVE',
              'KVM_GET_TSC_KHZ', 'KVM_KVMCLOCK_CTRL', 'PAGEMAP_SCAN', 'TUNSETOFFLOAD'}
ALLOWED_IOCTLS = {
    'main, before guest code runs': RUN | {
        'KVM_RUN', 'KVM_GET_API_VERSION', 'KVM_CREATE_VM', 'KVM_ENABLE_CAP', 'KVM_SET_TSS_ADDR', 'KVM_GET_SUPPORTED_CPUID',
        'KVM_GET_VCPU_MMAP_SIZE', 'KVM_CREATE_VCPU', 'KVM_SET_CPUID2', 'KVM_GET_SREGS', 'KVM_SET_SREGS', 'KVM_IOEVENTFD',
        'KVM_GET_MSR_INDEX_LIST', 'TUNGETIFF', 'TUNSETVNETHDRSZ'},
    'main': RUN,
    'disk': {'KVM_SIGNAL_MSI'},
    'vcpu': {'KVM_SIGNAL_MSI', 'KVM_RUN', 'KVM_GET_REGS'},
}
FCNTLS = {'F_GETFL', 'F_SETFL', 'F_GETFD', 'F_SETFD', 'F_DUPFD_CLOEXEC'}
PR_SET_NAME = 15
THREAD = 0x3d0f00
# They end the thread, or take it where it can't come back from: tests/unit/test-seccomp.c tries them.
NOT_TRIED = {'exit', 'exit_group', 'rt_sigreturn', 'restart_syscall'}
# uretprobe() and uprobe(), since Linux 6.14, pass by all filters. Who is not at a probe of the kernel's gets nothing from them.
UNFILTERED = {335, 336}
HIGHEST_CALL = 600


@pytest.fixture(autouse=True)
def jailed():
    version = subprocess.run([find_program(), '--version'], capture_output=True, text=True, check=True)
    if 'no jail' in version.stdout:
        pytest.skip('a sanitizer build has no jail')


@pytest.fixture(scope='session')
def numbers():
    """{name: number} of system calls."""
    text = subprocess.run(['cc', '-E', '-dM', '-include', 'asm/unistd.h', '-xc', '/dev/null'], capture_output=True, text=True,
                          check=True).stdout
    return {name: int(number) for name, number in re.findall(r'#define __NR_(\w+) (\d+)', text)}


HEADERS = ('linux/kvm.h', 'linux/if_tun.h', 'linux/fs.h', 'linux/vhost.h', 'linux/sockios.h', 'linux/fiemap.h', 'linux/btrfs.h',
           'linux/serial.h', 'asm/termbits.h', 'asm/ioctls.h')
# Structures of these are not in the headers of this architecture.
OTHER_MACHINES = re.compile(r'KVM_(PPC|ARM|S390|\w*SPAPR|ALLOCATE_RMA)')


@pytest.fixture(scope='session')
def ioctls(tmp_path_factory):
    """{name: request} of all that these headers know, and one that Debian's do not."""
    text = ''.join(f'#include <{name}>\n' for name in HEADERS)
    macros = subprocess.run(['cc', '-E', '-dM', '-xc', '-'], input=text, capture_output=True, text=True, check=True).stdout
    names = [name for name in re.findall(r'#define ((?:KVM|TUN|FI|FS_IOC|BTRFS_IOC|VHOST|TIOC|TC|SIOC)\w+) (?:_IO|0x)', macros)
             if not OTHER_MACHINES.match(name)]
    program = tmp_path_factory.mktemp('ioctls') / 'names'
    lines = ''.join(f'printf("%s %llu\\n", "{name}", (unsigned long long) {name});\n' for name in names)
    text = f'#include <stdio.h>\n#include <sys/ioctl.h>\n{text}int main(void) {{ {lines} }}\n'
    subprocess.run(['cc', '-w', '-xc', '-', '-o', program], input=text, text=True, check=True)
    listed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    found = {name: int(number) for name, number in map(str.split, listed.splitlines())}
    assert len(found) > 150
    return found | {'PAGEMAP_SCAN': 0xc0606610}


def tasks(vmm):
    """{name: number} of its threads."""
    found = {}
    for task in os.listdir(f'/proc/{vmm.process.pid}/task'):
        with open(f'/proc/{vmm.process.pid}/task/{task}/comm') as f:
            found[f.read().strip()] = int(task)
    return found


def differences(vmm, task, kind, numbers):
    names = {number: name for name, number in numbers.items()}
    with Injector(vmm.process.pid, task) as thread:
        for number in range(HIGHEST_CALL):
            name = names.get(number, f'number {number}')
            if name in NOT_TRIED or number in UNFILTERED:
                continue
            let_through = thread.call(number)
            if let_through != (name in ALLOWED[kind]):
                yield f'{kind}: {name} is {"let through" if let_through else "forbidden"}'


def wrong_arguments(vmm, task, kind, numbers, ioctls):
    """What is let through or forbidden by its arguments, other than the tables say."""
    building = kind == 'main, before guest code runs'
    main = kind.startswith('main')
    with Injector(vmm.process.pid, task) as thread:
        allowed = {ioctls[name] & 0xffffffff for name in ALLOWED_IOCTLS[kind]}
        for name, request in ioctls.items():
            # Of the request 32 bits count, for the kernel and so for the filter.
            for value in (request, request | 1 << 40):
                if thread.call(numbers['ioctl'], -1, value) != ((request & 0xffffffff) in allowed):
                    yield f'{kind}: ioctl {name} {value:#x}'
        for command in [*range(64), *range(1024, 1048)]:
            known = command in {getattr(fcntl, name) for name in FCNTLS}
            if thread.call(numbers['fcntl'], -1, command) != (main and known):
                yield f'{kind}: fcntl {command}'
        for protection in range(16):
            for name, at in (('mmap', [0, 4096, protection, 0x22]), ('mprotect', [0, 0, protection])):
                if name == 'mmap' and not protection & 4:
                    at[1] = 0  # is let through, and maps nothing
                if thread.call(numbers[name], *at) != (not protection & 4):
                    yield f'{kind}: {name} with protection {protection}'
        for option in range(100):
            if thread.call(numbers['prctl'], option) != (building and option == PR_SET_NAME):
                yield f'{kind}: prctl {option}'
        for operation in range(5):
            if thread.call(numbers['seccomp'], operation) != (building and operation == 1):
                yield f'{kind}: seccomp {operation}'
        for flags in [THREAD, 0x11, THREAD & ~0x10000, *(THREAD | 1 << bit for bit in range(32) if not THREAD & 1 << bit)]:
            # A thread's flags alone would make one.
            if flags != THREAD and thread.call(numbers['clone'], flags, 0, 0, 0, 0):
                yield f'{kind}: clone {flags:#x}'
        for pid in (0, 1, vmm.process.pid):
            if thread.call(numbers['prlimit64'], pid, 100, 0, 0) != (building and pid == 0):
                yield f'{kind}: prlimit64 of {pid}'


def test_every_argument_before_guest_code_runs(vmm, peer, numbers, ioctls):
    peer.request(Op.HELLO)
    assert not list(wrong_arguments(vmm, vmm.process.pid, 'main, before guest code runs', numbers, ioctls))


def test_every_argument_of_every_thread(disks, numbers, ioctls):
    vmm = disks.guest.vmm
    found = []
    for name, kind in (('cube-vmm', 'main'), ('vcpu0', 'vcpu'), ('disk', 'disk')):
        found += wrong_arguments(vmm, tasks(vmm)[name], kind, numbers, ioctls)
    assert not found
    disks.guest.peer.request(Op.HELLO)


def test_every_call_before_guest_code_runs(vmm, peer, numbers):
    peer.request(Op.HELLO)
    assert not list(differences(vmm, vmm.process.pid, 'main, before guest code runs', numbers))
    # It came to no harm, so what was let through was indeed made and refused.
    peer.request(Op.HELLO)


def test_every_call_of_every_thread(disks, numbers):
    """The filters that are in force in a guest's VMM, not those that a table has."""
    vmm, threads = disks.guest.vmm, tasks(disks.guest.vmm)
    assert threads.keys() >= {'cube-vmm', 'vcpu0', 'disk'}
    found = []
    for name, task in threads.items():
        if name.startswith('kvm-'):
            continue
        kind = {'cube-vmm': 'main', 'disk': 'disk'}.get(name, 'vcpu')
        found += differences(vmm, task, kind, numbers)
    assert not found
    disks.guest.peer.request(Op.HELLO)


@pytest.mark.parametrize('name,told', [('cube-vmm', 'main'), ('vcpu0', 'vcpu'), ('disk', 'disk')])
def test_a_forbidden_call_ends_it_and_is_named(disks, numbers, name, told):
    vmm = disks.guest.vmm
    Injector(vmm.process.pid, tasks(vmm)[name]).end(numbers['execve'])
    status, record = vmm.wait()
    assert record == (Reason.FORBIDDEN_CALL, numbers['execve'], f'a forbidden system call of thread {told}')
    assert status == 128 + 31


def test_a_forbidden_call_before_there_is_a_record(vmm, peer, numbers):
    peer.request(Op.HELLO)
    Injector(vmm.process.pid, vmm.process.pid).end(numbers['execve'])
    assert vmm.wait() == (128 + 31, None)


def test_what_it_gives_up_before_it_hears_anybody(tmp_path):
    """In this order, and each with success, or for want of it in an older kernel."""
    strace = shutil.which('strace')
    log = tmp_path / 'calls'
    calls = 'pivot_root,setgroups,setresgid,setresuid,capset,prctl,prlimit64,landlock_create_ruleset,landlock_restrict_self,seccomp'
    with Vmm(prefix=[strace, '-f', '-o', log, '-e', f'trace={calls},recvmsg']) as vmm:
        peer = vmm.connect()
        peer.request(Op.HELLO)
        peer.send(Op.KILL)
        vmm.wait()
    started = log.read_text().split('recvmsg(')[0]
    lines = [line.split(None, 1)[1] for line in started.splitlines() if ' = ' in line]
    wanted = [r'prlimit64\(0, RLIMIT_CORE, \{rlim_cur=0, rlim_max=0\}', r'prlimit64\(0, RLIMIT_NPROC, \{rlim_cur=19, rlim_max=19\}',
              r'pivot_root\("\.", "\."\) += 0', r'prctl\(PR_CAPBSET_DROP, CAP_CHOWN[^)]*\) += 0', r'prctl\(PR_SET_SECUREBITS, .* = 0',
              r'setgroups\(0, NULL\) += 0', r'setresgid\(\d+, \d+, \d+\) += 0', r'setresuid\(\d+, \d+, \d+\) += 0', r'capset\(.* = 0',
              r'prctl\(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0\) += 0', r'prctl\(PR_SET_DUMPABLE, SUID_DUMP_DISABLE\) += 0',
              r'prctl\((PR_SET_MDWE|0x41 [^,]*), .* = (0|-1 EINVAL)',
              r'landlock_create_ruleset\(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION\) += (\d+|-1 (ENOSYS|EOPNOTSUPP))']
    if version := landlock_version():
        assert f'LANDLOCK_CREATE_RULESET_VERSION) = {version}' in started
        wanted += [r'landlock_create_ruleset\(\{.* = \d+', r'landlock_restrict_self\(\d+, 0\) += 0']
    wanted.append(r'seccomp\(SECCOMP_SET_MODE_FILTER, 0, .* = 0')
    for pattern in wanted:
        at = next((i for i, line in enumerate(lines) if re.match(pattern, line)), None)
        assert at is not None, f'no {pattern} in\n' + '\n'.join(lines)
        lines = lines[at + 1:]


def test_as_many_vcpus_as_there_can_be(vmm, tmp_path):
    """The limit of threads has room for them, for the disks' and for what KVM adds, which it does once they run."""
    guest = started(vmm)
    with_disks(vmm, guest.peer, *disk_files(tmp_path), '', cpus=16)
    vmm.claim(guest.peer)
    guest.wait_ready()
    # Those of CPUs that have nothing to do may begin later.
    s.wait_until(lambda: tasks(vmm).keys() >= {'cube-vmm', 'disk', *(f'vcpu{i}' for i in range(16))})


def landlock_version():
    """0 where the kernel has none."""
    program = 'import ctypes; print(max(0, ctypes.CDLL(None).syscall(444, None, 0, 1)))'
    return int(subprocess.run(['python3', '-c', program], capture_output=True, text=True, check=True).stdout)


def test_sizes_are_limited_once_it_is_built(disks):
    """More than the guest has and what a rollback takes beside it would be a flaw's."""
    with open(f'/proc/{disks.guest.vmm.process.pid}/limits') as f:
        limits = {line[:25].strip(): line[25:].split()[:2] for line in f}
    with open(f'/proc/{disks.guest.vmm.process.pid}/status') as f:
        peak = next(int(line.split()[1]) << 10 for line in f if line.startswith('VmPeak:'))
    soft, hard = limits['Max address space']
    assert soft == hard and peak < int(soft) < peak + (160 << 20)
    assert limits['Max file size'] == [str(max(4 << 20, disks.overlay.stat().st_size))] * 2
    assert limits['Max processes'] == ['19', '19']

# SPDX-License-Identifier: Apache-2.0
"""The small guest kernel: what its fragment wishes is what guests need, and a wish that is not granted is told. The kernel
itself is built under --long only: ten minutes of CPU."""

import os
import pathlib
import re
import subprocess

import pytest

TREE = pathlib.Path(__file__).parents[2]
BUILD = TREE / "guest/kernel/build"
FRAGMENT = TREE / "guest/kernel/small.config"

# What cube-image looks for as a module, and what builds it in.
DRIVERS = {
    "pvpanic-pci": "PVPANIC_PCI",
    "virtio_pci": "VIRTIO_PCI",
    "virtio_blk": "VIRTIO_BLK",
    "vmw_vsock_virtio_transport": "VIRTIO_VSOCKETS",
    "virtio_rng": "HW_RANDOM_VIRTIO",
    "squashfs": "SQUASHFS",
    "erofs": "EROFS_FS",
    "overlay": "OVERLAY_FS",
    "crc32c_generic": "CRYPTO_CRC32C",
    "ext4": "EXT4_FS",
    "virtio_net": "VIRTIO_NET",
    "virtio_balloon": "VIRTIO_BALLOON",
    "virtio_mem": "VIRTIO_MEM",
}

# What else cube-vmm and cube-agent count on.
NEEDED = {
    "the boot": "PVH KVM_GUEST ACPI PCI_MMCONFIG PCI_MSI X86_X2APIC BLK_DEV_INITRD SERIAL_8250_CONSOLE DEVTMPFS PROC_FS SYSFS "
                "BINFMT_ELF",
    "a restore": "VMGENID PAGE_REPORTING COMPACTION PROC_SYSCTL",
    "more memory": "MEMORY_HOTPLUG MEMORY_HOTREMOVE",
    "more CPUs": "SMP",
    "memory that runs out": "LRU_GEN LRU_GEN_ENABLED",
    "servers on 127.0.0.1": "BPF_SYSCALL BPF_JIT CGROUP_BPF CGROUPS INET",
    "processes": "UNIX98_PTYS MULTIUSER POSIX_MQUEUE TMPFS UNIX CGROUP_FREEZER",
    "root images": "SQUASHFS_XATTR SQUASHFS_ZLIB SQUASHFS_LZ4 SQUASHFS_XZ SQUASHFS_ZSTD EROFS_FS_XATTR EROFS_FS_ZIP "
                   "TMPFS_XATTR EXT4_FS_SECURITY EXT4_FS_POSIX_ACL",
}

# What users run in it.
PROMISED = {
    "containers": "FUSE_FS TUN VETH BRIDGE UTS_NS IPC_NS PID_NS NET_NS USER_NS MEMCG CGROUP_PIDS CPUSETS CGROUP_SCHED CFS_BANDWIDTH "
                  "CGROUP_DEVICE SECCOMP_FILTER KEYS",
    "their networks": "NF_TABLES NF_TABLES_INET NF_NAT NFT_CT NFT_NAT NFT_MASQ NFT_REJECT NFT_COMPAT NF_CONNTRACK IP_NF_TARGET_REJECT "
                      "NETFILTER_XT_MATCH_COMMENT NETFILTER_XT_MATCH_CONNTRACK NETFILTER_XT_MATCH_ADDRTYPE "
                      "NETFILTER_XT_TARGET_MASQUERADE BRIDGE_NETFILTER",
    "browsers and databases": "IO_URING AIO USERFAULTFD SYSVIPC INOTIFY_USER EPOLL FUTEX SHMEM MEMBARRIER SECURITY_LANDLOCK",
}

# The stock kernel's, but for one that is KVM's and nothing for a kernel that runs no guests of its own.
MITIGATIONS = """PAGE_TABLE_ISOLATION RETPOLINE RETHUNK UNRET_ENTRY CALL_DEPTH_TRACKING IBPB_ENTRY IBRS_ENTRY SRSO SLS GDS RFDS
    SPECTRE_BHI MDS TAA MMIO_STALE_DATA L1TF RETBLEED SPECTRE_V1 SPECTRE_V2 SRBDS SSB ITS TSA""".split()


def lines():
    return [line for line in FRAGMENT.read_text().splitlines() if re.match("(# )?CONFIG_", line)]


def wishes():
    return dict(line.removeprefix("CONFIG_").split("=", 1) for line in lines() if line.startswith("CONFIG_"))


def test_each_name_is_said_once_and_as_kconfig_writes_it():
    names = []
    for line in lines():
        match = re.fullmatch(r'(?:CONFIG_([A-Z0-9_]+)=(?:y|[0-9]+|"[^"]*")|# CONFIG_([A-Z0-9_]+) is not set)', line)
        assert match, line
        names.append(match[1] or match[2])
    assert sorted(names) == sorted(set(names))


def test_all_is_built_in():
    assert "# CONFIG_MODULES is not set" in lines()
    assert "m" not in wishes().values()


def test_what_cube_image_would_load_is_built_in():
    text = (TREE / "daemon/image/modules-dep.c").read_text()
    table = re.search(r"module_wishes\[\] = \{(.*?)\n\};", text, re.S)[1]
    assert set(re.findall(r'\.name = "([^"]+)"', table)) == set(DRIVERS)
    assert [name for name in DRIVERS.values() if wishes().get(name) != "y"] == []


@pytest.mark.parametrize("what", [*NEEDED, *PROMISED])
def test_what_guests_need_is_wished_for(what):
    assert [name for name in {**NEEDED, **PROMISED}[what].split() if wishes().get(name) != "y"] == []


def test_mitigations_stay_on():
    assert wishes()["CPU_MITIGATIONS"] == "y"
    assert [name for name in MITIGATIONS if wishes().get(f"MITIGATION_{name}") != "y"] == []


def test_as_many_cpus_as_cube_vmm_can_make():
    most = re.search(r"#define TEMPLATE_CPUS_MAX (\d+)", (TREE / "daemon/template.h").read_text())[1]
    assert wishes()["NR_CPUS"] == most


def check(config, fragment=None):
    return subprocess.run([BUILD, "--check", config, *([fragment] if fragment else [])], stderr=subprocess.PIPE, text=True)


GRANTED = 'CONFIG_A=y\nCONFIG_NAME="a b"\nCONFIG_N=16\n# CONFIG_OFF is not set\nCONFIG_UNASKED=y\n'


def test_a_configuration_that_grants_all_passes(tmp_path):
    fragment, config = tmp_path / "f", tmp_path / "c"
    fragment.write_text('# why\nCONFIG_A=y\nCONFIG_NAME="a b"\nCONFIG_N=16\n# CONFIG_OFF is not set\n# CONFIG_GONE is not set\n')
    config.write_text(GRANTED)
    assert check(config, fragment).returncode == 0


@pytest.mark.parametrize("wish, words", [
    ("CONFIG_B=y", "CONFIG_B=y is not set"),
    ("CONFIG_OFF=y", "CONFIG_OFF=y is not set"),
    ("CONFIG_N=8", "CONFIG_N=8 is CONFIG_N=16"),
    ('CONFIG_NAME="a"', 'CONFIG_NAME="a" is CONFIG_NAME="a b"'),
    ("CONFIG_M=y", "CONFIG_M=y is CONFIG_M=m"),
    ("# CONFIG_A is not set", "CONFIG_A is not to be set, and is CONFIG_A=y"),
])
def test_a_wish_that_did_not_survive_is_named(tmp_path, wish, words):
    fragment, config = tmp_path / "f", tmp_path / "c"
    fragment.write_text(f"CONFIG_UNASKED=y\n{wish}\n")
    config.write_text(GRANTED + "CONFIG_M=m\n")
    result = check(config, fragment)
    assert result.returncode == 1
    assert words in result.stderr.splitlines() and "CONFIG_UNASKED" not in result.stderr


def test_an_empty_configuration_grants_nothing(tmp_path):
    fragment, config = tmp_path / "f", tmp_path / "c"
    fragment.write_text("CONFIG_A=y\n")
    config.write_text("")
    assert "CONFIG_A=y is not set" in check(config, fragment).stderr


def test_without_a_fragment_it_is_that_of_the_small_kernel(tmp_path):
    config = tmp_path / "c"
    config.write_text("".join(line + "\n" for line in lines() if line != "CONFIG_PVH=y"))
    result = check(config)
    assert result.returncode == 1 and "small.config" in result.stderr and "CONFIG_PVH=y is not set" in result.stderr
    config.write_text("".join(line + "\n" for line in lines()))
    assert check(config).returncode == 0


# A tree that asks of its builder what Linux asks, and is built in a moment. DROP is a wish that it does not grant.
MAKEFILE = """
allnoconfig:
	grep -v '^DROP' $(KCONFIG_ALLCONFIG) >.config
olddefconfig:
	@:
vmlinux:
	printf 'const char banner[] = "at %s by %s@%s #%s"; void _start(void) {}' "$(KBUILD_BUILD_TIMESTAMP)" \\
		"$(KBUILD_BUILD_USER)" "$(KBUILD_BUILD_HOST)" "$(KBUILD_BUILD_VERSION)" >v.c
	$(CC) -nostdlib -static -o vmlinux v.c
"""


def source(tmp_path, drop="nothing"):
    tree = tmp_path / "linux-source-6.12"
    tree.mkdir()
    (tree / "Makefile").write_text(MAKEFILE.replace("DROP", drop))
    os.utime(tree / "Makefile", (1_700_000_000, 1_700_000_000))
    tar = tmp_path / "source.tar.xz"
    subprocess.run(["tar", "-C", tmp_path, "-cJf", tar, tree.name], check=True)
    return tar


def build(tar, directory):
    return subprocess.run([BUILD, tar, directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_build_tells_of_its_source_and_of_nothing_else(tmp_path):
    tar = source(tmp_path)
    (tmp_path / "else" / "where").mkdir(parents=True)
    made = tmp_path / "one", tmp_path / "else" / "where" / "two"
    for directory in made:
        result = build(tar, directory)
        assert result.returncode == 0, result.stdout
        assert sorted(os.listdir(directory)) == ["config", "vmlinux"]
        assert not pathlib.Path(f"{directory}.work").exists()
    one, two = ((directory / "vmlinux").read_bytes() for directory in made)
    assert one == two
    assert b"at Tue Nov 14 22:13:20 UTC 2023 by cube@cube #1" in one
    assert b".symtab" not in one
    assert (made[0] / "config").read_text() == FRAGMENT.read_text()


def test_a_build_that_fails_leaves_nothing_and_names_what_it_could_not_have(tmp_path):
    result = build(source(tmp_path, "CONFIG_PVH=y"), tmp_path / "out")
    assert result.returncode == 1 and "CONFIG_PVH=y is not set" in result.stdout
    assert sorted(os.listdir(tmp_path)) == ["linux-source-6.12", "source.tar.xz"]


def test_a_directory_that_is_there_is_not_touched(tmp_path):
    (tmp_path / "out").mkdir()
    result = build(source(tmp_path), tmp_path / "out")
    assert result.returncode == 1 and "already there" in result.stdout
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="ten minutes of CPU twice: --long")
@pytest.mark.timeout(2 * 3600)
def test_another_build_makes_the_same_bytes():
    assert subprocess.run([TREE / "dev/kernel", "reproduce", "small"]).returncode == 0

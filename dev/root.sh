# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What we take from Debian and don't install here: the root file system that the box and the lab share, kernels for
# guests, and a QEMU that can run the lab. Sourced, with lib.sh.
#
# Everything comes from the mirrors that this machine's apt uses, for other suites too.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg
host_suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

# deb lines of a suite (trixie, bookworm-backports): this machine's, with its suite's name exchanged.
sources_of() {
    local suite=$1 repo codename component
    apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
        sed -n 's/^Debian //p' | sort -u | while read -r codename repo component; do
        [[ $component == main && $codename =~ ^$host_suite(-updates|-security)?$ ]] || continue
        [[ $suite != *-* || $codename == "$host_suite" ]] || continue
        echo "deb [signed-by=$debian_keys] $repo $suite${codename#"$host_suite"} main"
    done
}

# An apt of its own for a suite, which knows nothing of what is installed here: suite_apt SUITE COMMAND ARGS...
suite_apt() {
    local suite=$1 dir=$cache/apt/$1
    shift
    "$1" -qq -o Dir::State="$dir" -o Dir::State::Lists="$dir/lists" -o Dir::State::status="$dir/status" \
        -o Dir::Cache="$dir" -o Dir::Cache::Archives="$dir/archives" -o Dir::Etc::SourceList="$dir/sources.list" \
        -o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none -o APT::Sandbox::User=root "${@:2}"
}

# Before suite_apt is of use.
set_up_apt() {
    local suite=$1 dir=$cache/apt/$1
    mkdir -p "$dir/lists/partial" "$dir/archives/partial"
    : >"$dir/status"
    [[ -n $(sources_of "$suite") ]] || alone apt-get -qq update >&2
    sources_of "$suite" >"$dir/sources.list"
    [[ -s $dir/sources.list ]] || die "apt on this machine has no Debian $host_suite source to derive $suite from"
    suite_apt "$suite" apt-get update >&2
}

# unpack SUITE DIR PACKAGE..: what the newest versions of these packages hold.
unpack() {
    local suite=$1 dir=$2 deb
    shift 2
    mkdir -p "$dir"
    (cd "$dir" && suite_apt "$suite" apt-get download "$@" >&2)
    for deb in "$dir"/*.deb; do dpkg-deb -x "$deb" "$dir"; done
    rm "$dir"/*.deb
}

# once DIR FUNCTION ARG..: makes DIR by FUNCTION ARG.. DIR.new if it is not there.
once() {
    local dir=$1
    shift
    [[ ! -d $dir ]] || return 0
    mkdir -p "${dir%/*}"
    (
        flock 9
        [[ ! -d $dir ]] || exit 0
        rm -rf "$dir.new"
        "$@" "$dir.new" && mv "$dir.new" "$dir"
    ) 9>"${dir%/*}/lock"
}

# fetch_kernel SUITE: Debian's cloud kernel. Prints its directory.
fetch_kernel() {
    once "$cache/kernel/$1" unpack_kernel "$1"
    echo "$cache/kernel/$1"
}

unpack_kernel() {
    local suite=$1 dir=$2 package version
    install_packages kmod
    say "fetching the kernel of $suite"
    set_up_apt "$suite"
    package=$(suite_apt "$suite" apt-cache depends --important linux-image-cloud-amd64 |
        sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    unpack "$suite" "$dir" "$package"
    version=${package#linux-image-}
    # depmod and others look for lib/modules; newer packages have it under usr
    [[ -d $dir/lib ]] || ln -s usr/lib "$dir/lib"
    depmod -b "$dir" "$version"
    ln -s "boot/vmlinuz-$version" "$dir/vmlinuz"
    ln -s "boot/config-$version" "$dir/config"
    ln -s "lib/modules/$version" "$dir/modules"
}

# Prints the command of the QEMU for the lab. That of Debian 12 emulates no XSETBV exit, so that guests in the lab
# have no XSAVE, and has a race between translating code and patching it; its backports have one without.
fetch_qemu() {
    local version
    version=$(qemu-system-x86_64 --version | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p')
    if dpkg --compare-versions "$version" lt 8.1 && once "$cache/qemu" unpack_qemu "$host_suite-backports"; then
        echo "$cache/qemu/usr/bin/qemu-system-x86_64"
    else
        echo qemu-system-x86_64
    fi
}

# It runs with the libraries of the one that is installed.
unpack_qemu() {
    say "fetching QEMU from $1"
    set_up_apt "$1" &&
        unpack "$1" "$2" qemu-system-x86 qemu-system-data qemu-system-common seabios &&
        "$2/usr/bin/qemu-system-x86_64" --version >/dev/null
}

# What the tree needs beyond packages. $1 is its root.
# shellcheck disable=SC2317 # called by mmdebstrap's hooks
prepare_root() {
    # An initramfs of what the lab's disk needs, and no more: TCG unpacks it slowly.
    mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/initramfs-tools/hooks"
    echo MODULES=list >"$1/etc/initramfs-tools/conf.d/lab"
    printf '%s\n' '#!/bin/sh' '[ "$1" = prereqs ] && exit 0' '. /usr/share/initramfs-tools/hook-functions' \
        'manual_add_modules virtio_blk virtio_pci ext4' >"$1/etc/initramfs-tools/hooks/lab"
    chmod 755 "$1/etc/initramfs-tools/hooks/lab"
}

# shellcheck disable=SC2317 # called by mmdebstrap's hooks
finish_root() {
    local user
    for user in alice bob; do chroot "$1" useradd --create-home --shell /bin/bash "$user"; done
    chroot "$1" passwd --quiet --delete root
    : >"$1/etc/machine-id"
    rm -f "$1/etc/hostname" "$1/etc/resolv.conf" "$1/var/lib/dbus/machine-id"
    echo 'nameserver 10.0.2.3' >"$1/etc/resolv.conf"
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$1/etc/hosts"
    echo 'PermitRootLogin prohibit-password' >"$1/etc/ssh/sshd_config.d/lab.conf"
    printf '%s\n' '[Match]' 'Name=en* eth*' '[Network]' 'Address=10.0.2.15/24' 'Gateway=10.0.2.2' \
        >"$1/etc/systemd/network/lab.network"
    chroot "$1" systemctl --quiet enable systemd-networkd.service
    # tests use the console, and a lab starts no jobs of its own
    chroot "$1" systemctl --quiet mask serial-getty@ttyS0.service getty@tty1.service e2scrub_reap.service \
        systemd-networkd-wait-online.service
    chroot "$1" sh -c 'systemctl --quiet disable e2scrub_all.timer apt-daily.timer apt-daily-upgrade.timer \
        dpkg-db-backup.timer fstrim.timer 2>/dev/null || true'
}

root_recipe() { recipe "$1" prepare_root finish_root make_root "$top/dev/packages-root.txt"; }

# root_tree SUITE: makes the tree unless there is one of this recipe, and prints where it is.
root_tree() {
    local suite=$1 dir
    dir=$cache/root/$suite-$(root_recipe "$suite")
    if [[ ! -d $dir ]]; then
        once "$dir" make_root "$suite"
        # older recipes' trees, unless a box may stand on one
        compgen -G "$cache/box/*/pid" >/dev/null ||
            find "$cache/root" -mindepth 1 -maxdepth 1 -name "$suite-*" ! -path "$dir" -exec rm -rf {} +
    fi
    echo "$dir"
}

make_root() {
    local suite=$1 dir=$2 hook debs=$cache/debs/$1
    need_root
    install_packages mmdebstrap debian-archive-keyring
    say "making the Debian $suite root file system (about a minute)"
    mkdir -p "$debs"
    set_up_apt "$suite"
    apt-config dump | grep -E '^Acquire::(https?|Check-)' >"$cache/apt/$suite/acquire.conf" || :

    # Packages are kept between runs, so that another recipe or a new kernel fetches only what is new.
    export CUBE_DEBS=$debs
    hook="$(declare -f prepare_root finish_root);"
    mmdebstrap --mode=root --variant=minbase --quiet --format=directory \
        --include="$(packages_in "$top/dev/packages-root.txt" | paste -sd,)" \
        --aptopt="$cache/apt/$suite/acquire.conf" --aptopt='Acquire::Languages "none"' \
        --dpkgopt='force-unsafe-io' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --skip=essential/unlink \
        --setup-hook='mkdir -p "$1/var/cache/apt/archives"' \
        --setup-hook='find "$CUBE_DEBS" -name "*.deb" -exec cp -t "$1/var/cache/apt/archives" {} +' \
        --setup-hook="$hook prepare_root \"\$1\"" \
        --customize-hook='cp -u "$1"/var/cache/apt/archives/*.deb "$CUBE_DEBS/"' \
        --customize-hook="$hook finish_root \"\$1\"" \
        "$suite" "$dir" "$cache/apt/$suite/sources.list" >&2
}

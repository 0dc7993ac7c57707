#!/usr/bin/env bash
# Installs what the whole-program tests need and this machine lacks: the NBD clients and servers and
# the iSCSI targets and tools that weir is tried against, and tools to look at it from outside. Does
# nothing when all is there.
set -euo pipefail

# Debian package, then a command that works when it is installed. mkfs.ext4 and its kin stand in
# a folder that ordinary users do not search; the package's Python module belongs to the
# distribution's interpreter, whichever python3 comes first in PATH.
export PATH="$PATH:/usr/sbin:/sbin"
packages=(
    "fio                 fio --version"
    "nbdkit              nbdkit --version"
    "libnbd-bin          nbdcopy --version"
    "python3-libnbd      /usr/bin/python3 -c 'import nbd'"
    "qemu-utils          qemu-img --version"
    "qemu-system-common  qemu-storage-daemon --version"
    "e2fsprogs           mkfs.ext4 -V"
    "xfsprogs            mkfs.xfs -V"
    "sqlite3             sqlite3 --version"
    "postgresql          ls /usr/lib/postgresql/*/bin/initdb"
    "sysstat             iostat -V"
    "strace              strace --version"
    "iproute2            ip -V"
    "tgt                 tgtd --version"
    "istgt               istgt -V"
    "libiscsi-bin        iscsi-inq --version"
    "chromium            chromium --version"
    "prometheus          prometheus --version"
    "man-db              man --version"
    "systemd             systemd-analyze --version"
    "dpkg-dev            dpkg-shlibdeps --version"
    "zsh                 zsh --version"
    "fish                fish --version"
)

missing_packages() {
    local row package probe
    for row in "${packages[@]}"; do
        read -r package probe <<<"$row"
        bash -c "$probe" >/dev/null 2>&1 || echo "$package"
    done
}

# Only names them, a line each.
if [ "${1:-}" = --missing ]; then
    missing_packages
    exit 0
fi

mapfile -t missing < <(missing_packages)
if [ "${#missing[@]}" -eq 0 ]; then
    echo "packages: all ${#packages[@]} are installed"
    exit 0
fi
echo "packages: missing ${missing[*]}"

by_hand() {
    echo "packages: $1. The tests need: ${missing[*]} (names of Debian packages)" >&2
    exit 1
}
command -v apt-get >/dev/null || by_hand "there is no apt-get here, install them by hand"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || by_hand "neither root nor sudo, ask somebody who may install"
    as_root=(sudo)
fi
# The tests start the servers that they need; none is to be left listening on the machine. Debian's
# packages ask this file before they start theirs.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi
install_packages() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --no-install-recommends "$@"
}
# Lists that cannot be renewed may still have what is missing.
"${as_root[@]}" apt-get update || echo "packages: apt-get update failed" >&2
# One that cannot be had keeps none of the others away.
if ! install_packages "${missing[@]}"; then
    for package in "${missing[@]}"; do
        install_packages "$package" || echo "packages: $package could not be installed" >&2
    done
fi

mapfile -t missing < <(missing_packages)
[ "${#missing[@]}" -eq 0 ] || by_hand "after the installation these commands do not work"

#!/usr/bin/env bash
# Makes a Debian package of what install.sh installs: target/deb/weir_VERSION_ARCHITECTURE.deb.
# WEIR is the built program, LIBWEIR the built shared library (without it the package has none and no
# header), VERSION its own unless it is given, DEB_DIR the folder for the package,
# DEB_COMPRESSION what dpkg-deb packs it with. Needs dpkg-dev.
set -euo pipefail

weir=${WEIR:?names the built program}
library=${LIBWEIR:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${DEB_DIR:-target/deb}
umask 022

fail() {
    echo "deb: $*" >&2
    exit 2
}

command -v dpkg-deb >/dev/null || fail "there is no dpkg-deb here"
command -v dpkg-shlibdeps >/dev/null || fail "there is no dpkg-shlibdeps here: install dpkg-dev"
[ -x "$weir" ] || fail "WEIR=$weir is no program"
version=$("$weir" --version | cut -d ' ' -f 2)
# A version before another one, as 0.2.0-rc.1, has a tilde for dpkg to sort it so.
version=${VERSION:-${version/-/\~}}
[[ $version =~ ^[0-9][0-9A-Za-z.+~-]*$ ]] || fail "VERSION=$version is no version"
architecture=$(dpkg --print-architecture)

# Where libraries of this architecture lie, below which ldconfig and the linker look.
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/weir
PREFIX=/usr LIBDIR=$libdir LIBWEIR=$library DESTDIR=$stage WEIR=$weir \
    "$here/../install.sh" install >"$work/said" \
    || fail "$(cat "$work/said")"
# dpkg has a list of its own, and Debian a place of its own for licences.
rm -r "$stage/usr/share/weir" "$stage/usr/share/doc/weir"
install -D -m 644 "$here/copyright" "$stage/usr/share/doc/weir/copyright"

# What the program is linked with; the tool wants to be in a source package.
mkdir "$work/debian"
printf 'Source: weir\n\nPackage: weir\nArchitecture: any\n' >"$work/debian/control"
binaries=(-e"$stage/usr/bin/weir")
[ -z "$library" ] || binaries+=(-e"$(readlink -f "$stage$libdir/libweir.so")")
linked=$(cd "$work" && dpkg-shlibdeps -O "${binaries[@]}" 2>said) \
    || fail "$(cat "$work/said")"

mkdir "$stage/DEBIAN"
sed -e "s|@VERSION@|$version|" -e "s|@ARCHITECTURE@|$architecture|" \
    -e "s|@LINKED@|${linked#shlibs:Depends=}|" \
    -e "s|@SIZE@|$(du -k -s --apparent-size "$stage" | cut -f 1)|" \
    "$here/control.in" >"$stage/DEBIAN/control"
echo /etc/weir/weir.toml >"$stage/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    install -m 755 "$here/$script" "$stage/DEBIAN/$script"
done
if [ -n "$library" ]; then
    # Programs find it by the cache of ldconfig, and their packages by this file.
    echo 'activate-noawait ldconfig' >"$stage/DEBIAN/triggers"
    abi=$(sed -n 's/^#define WEIR_ABI \([0-9]*\)$/\1/p' "$stage/usr/include/weir.h")
    echo "libweir $abi weir (>= $version)" >"$stage/DEBIAN/shlibs"
fi
(cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"

mkdir -p "$out"
package=$out/weir_${version}_$architecture.deb
dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$stage" "$package" >"$work/said" \
    || fail "$(cat "$work/said")"
echo "$package"

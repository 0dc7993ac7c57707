#!/usr/bin/env bash
# Installs weir, or takes it away again: `install.sh install` and `install.sh uninstall`, as make
# calls it. PREFIX and DESTDIR are as everywhere; WEIR is the built program. With LIBWEIR, the built
# shared library, the header, the library (in LIBDIR) and the file for pkg-config are installed too.
# What was installed is listed in PREFIX/share/weir/installed, and that list is what is taken away.
set -euo pipefail
export LC_ALL=C

prefix=${PREFIX:-/usr/local}
destdir=${DESTDIR:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
umask 022

fail() {
    echo "install.sh: $*" >&2
    exit 2
}

[[ $prefix == /* ]] || fail "PREFIX=$prefix is no absolute path"
# It becomes part of a unit, in which other characters mean something.
[[ $prefix =~ ^[A-Za-z0-9/._+-]+$ && $prefix/ != */../* ]] \
    || fail "PREFIX=$prefix has more than letters, digits and / . _ + -, or has .. in it"
while [[ $prefix == */ ]]; do
    prefix=${prefix%/}
done
[[ -z $destdir || $destdir == /* ]] || fail "DESTDIR=$destdir is no absolute path"
list=$prefix/share/weir/installed
# Below PREFIX, as all that is taken away again.
libdir=${LIBDIR:-$prefix/lib}
[[ $libdir == "$prefix"/* && $libdir =~ ^[A-Za-z0-9/._+-]+$ && $libdir/ != */../* ]] \
    || fail "LIBDIR=$libdir is not below PREFIX=$prefix, or has other characters than letters," \
        "digits and / . _ + -"

# Units, users and folders are the machine's, and systemd looks for them below /usr and /usr/local.
warn_of_prefix() {
    case $prefix in
        /usr | /usr/local) ;;
        *) echo "install.sh: systemd does not look in $prefix/lib: link or copy systemd/system," \
            "sysusers.d and tmpfiles.d to /etc if the service is wanted" >&2 ;;
    esac
}

# put MODE SOURCE PATH: notes a file, and installs it. The list is ahead of what is there, so that an
# installation that is cut short can be taken away too.
put() {
    printf '%s\n' "$3" >>"$destdir$list"
    install -D -m "$1" "$2" "$destdir$3"
    installed+=("$3")
}

# put_link TARGET PATH: the same for a link.
put_link() {
    printf '%s\n' "$2" >>"$destdir$list"
    ln -sfn "$1" "$destdir$2"
    installed+=("$2")
}

# take_away LIST: removes the files that it names.
take_away() {
    local path
    while read -r path; do
        # A line that names another place was not written here.
        [[ $path == "$prefix"/* && $path != */../* && $path != /etc/* ]] \
            || fail "$destdir$list names $path"
        rm -f "$destdir$path"
    done <"$1"
}

# strip_into_work FILE NAME: FILE without its symbols, in the folder for work.
strip_into_work() {
    if command -v strip >/dev/null; then
        # What others link with keeps the names that they look for.
        strip --strip-unneeded -o "$work/$2" "$1"
    else
        echo "install.sh: there is no strip here (binutils): $2 is installed with its symbols" >&2
        cp "$1" "$work/$2"
    fi
}

# The library for C: a library of its version, links for its ABI and for the linker.
install_library() {
    local header=$here/../front/capi/include/weir.h version abi
    [[ -f $1 ]] || fail "LIBWEIR=$1 is no file"
    version=$(sed -n 's/^#define WEIR_VERSION "\(.*\)"$/\1/p' "$header")
    abi=$(sed -n 's/^#define WEIR_ABI \([0-9]*\)$/\1/p' "$header")
    strip_into_work "$1" libweir.so
    put 755 "$work/libweir.so" "$libdir/libweir.so.$version"
    put_link "libweir.so.$version" "$libdir/libweir.so.$abi"
    put_link "libweir.so.$abi" "$libdir/libweir.so"
    put 644 "$header" "$prefix/include/weir.h"
    sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" \
        "$here/pkgconfig/weir.pc.in" >"$work/weir.pc"
    put 644 "$work/weir.pc" "$libdir/pkgconfig/weir.pc"
    [[ -n $destdir ]] || echo "install.sh: programs find $libdir/libweir.so.$abi once ldconfig has run"
}

install_all() {
    local weir=${WEIR:?names the built program} file page section
    [[ $weir == */* ]] || weir=./$weir
    [[ -f $weir && -x $weir ]] || fail "WEIR=$weir is no program"
    command -v gzip >/dev/null || fail "there is no gzip here, for pages of the manual"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    installed=()
    mkdir -p "$destdir$(dirname "$list")"

    strip_into_work "$weir" weir
    put 755 "$work/weir" "$prefix/bin/weir"

    # No program is started in the folder for work: it may be mounted so that none can be.
    mkdir "$work/man"
    "$weir" man --dir "$work/man"
    for page in "$work"/man/*; do
        section=${page##*.}
        gzip -9n "$page"
        put 644 "$page.gz" "$prefix/share/man/man$section/$(basename "$page").gz"
    done

    # The functions ask `weir` of the path when a word is to be completed.
    for file in bash zsh fish; do
        (COMPLETE=$file exec -a weir "$weir") >"$work/$file"
    done
    # zsh loads the file when the first word is to be completed, which the function has to answer.
    cat >>"$work/zsh" <<'END'
if [ "${funcstack[1]-}" = _weir ]; then
    _clap_dynamic_completer_weir "$@"
fi
END
    put 644 "$work/bash" "$prefix/share/bash-completion/completions/weir"
    put 644 "$work/zsh" "$prefix/share/zsh/site-functions/_weir"
    put 644 "$work/fish" "$prefix/share/fish/vendor_completions.d/weir.fish"

    sed "s|/usr/local/bin/weir|$prefix/bin/weir|g" "$here/systemd/weir.service" >"$work/service"
    put 644 "$work/service" "$prefix/lib/systemd/system/weir.service"
    put 644 "$here/systemd/weir.socket" "$prefix/lib/systemd/system/weir.socket"
    put 644 "$here/systemd/sysusers.conf" "$prefix/lib/sysusers.d/weir.conf"
    put 644 "$here/systemd/tmpfiles.conf" "$prefix/lib/tmpfiles.d/weir.conf"

    put 644 "$here/../LICENSE-MIT" "$prefix/share/doc/weir/LICENSE-MIT"
    put 644 "$here/../LICENSE-APACHE" "$prefix/share/doc/weir/LICENSE-APACHE"

    [ -z "${LIBWEIR:-}" ] || install_library "$LIBWEIR"

    # What the operator has written stays, here and when weir is taken away.
    # A link to nothing is the operator's too.
    if [ ! -e "$destdir/etc/weir/weir.toml" ] && [ ! -L "$destdir/etc/weir/weir.toml" ]; then
        install -D -m 644 "$here/etc/weir.toml" "$destdir/etc/weir/weir.toml"
    fi
    # What an older version had installed and this one has not.
    printf '%s\n' "${installed[@]}" | sort >"$work/installed"
    sort -u "$destdir$list" | comm -23 - "$work/installed" >"$work/older"
    take_away "$work/older"
    install -m 644 "$work/installed" "$destdir$list"
    echo "installed ${#installed[@]} files below $destdir$prefix"
    warn_of_prefix
    if [ -z "$destdir" ] && [ -d /run/systemd/system ]; then
        echo "to have it run: systemd-sysusers && systemd-tmpfiles --create &&" \
            "systemctl daemon-reload && systemctl enable --now weir.socket"
    fi
}

uninstall_all() {
    local folder
    [ -e "$destdir$list" ] || fail "$destdir$list is not there: nothing is installed below $prefix"
    take_away "$destdir$list"
    rm -f "$destdir$list"
    for folder in "$destdir$prefix/share/weir" "$destdir$prefix/share/doc/weir"; do
        if [ -d "$folder" ]; then
            # Files of others keep it.
            rmdir --ignore-fail-on-non-empty "$folder"
        fi
    done
    echo "uninstalled; /etc/weir, /var/lib/weir and the account weir stay"
}

case ${1:-} in
    install) install_all ;;
    uninstall) uninstall_all ;;
    *) fail "install or uninstall, not '${1:-}'" ;;
esac

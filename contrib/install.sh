#!/usr/bin/env bash
# Installs weir, or takes it away again: `install.sh install` and `install.sh uninstall`, as make
# calls it. PREFIX and DESTDIR are as everywhere; WEIR is the built program. What was installed is
# listed in PREFIX/share/weir/installed, and that list is what is taken away.
set -euo pipefail

prefix=${PREFIX:-/usr/local}
destdir=${DESTDIR:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=$prefix/share/weir/installed
umask 022

fail() {
    echo "install.sh: $*" >&2
    exit 2
}

[[ $prefix == /* ]] || fail "PREFIX=$prefix is no absolute path"
[[ -z $destdir || $destdir == /* ]] || fail "DESTDIR=$destdir is no absolute path"

# Units, users and folders are the machine's, and systemd looks for them below /usr and /usr/local.
warn_of_prefix() {
    case $prefix in
        /usr | /usr/local) ;;
        *) echo "install.sh: systemd does not look in $prefix/lib: link or copy systemd/system," \
            "sysusers.d and tmpfiles.d to /etc if the service is wanted" >&2 ;;
    esac
}

# put MODE SOURCE PATH: installs a file, and notes it.
put() {
    install -D -m "$1" "$2" "$destdir$3"
    installed+=("$3")
}

install_all() {
    local weir=${WEIR:?names the built program} work file page section
    [ -x "$weir" ] || fail "WEIR=$weir is no program"
    work=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder of now
    trap "rm -rf '$work'" EXIT
    installed=()

    install -m 755 "$weir" "$work/weir"
    strip "$work/weir"
    put 755 "$work/weir" "$prefix/bin/weir"

    mkdir "$work/man"
    "$work/weir" man --dir "$work/man"
    for page in "$work"/man/*; do
        section=${page##*.}
        gzip -9n "$page"
        put 644 "$page.gz" "$prefix/share/man/man$section/$(basename "$page").gz"
    done

    # The functions ask `weir` of the path when a word is to be completed.
    for file in bash zsh fish; do
        PATH="$work:$PATH" COMPLETE=$file weir >"$work/$file"
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

    # What the operator has written stays, here and when weir is taken away.
    if [ ! -e "$destdir/etc/weir/weir.toml" ]; then
        install -D -m 644 "$here/etc/weir.toml" "$destdir/etc/weir/weir.toml"
    fi
    mkdir -p "$destdir$(dirname "$list")"
    printf '%s\n' "${installed[@]}" >"$destdir$list"
    echo "installed ${#installed[@]} files below $destdir$prefix"
    warn_of_prefix
    if [ -z "$destdir" ] && [ -d /run/systemd/system ]; then
        echo "to have it run: systemd-sysusers && systemd-tmpfiles --create &&" \
            "systemctl daemon-reload && systemctl enable --now weir.socket"
    fi
}

uninstall_all() {
    local path
    [ -e "$destdir$list" ] || fail "$destdir$list is not there: nothing is installed below $prefix"
    while read -r path; do
        # A line that names another place was not written here.
        [[ $path == "$prefix"/* && $path != */../* ]] || fail "$destdir$list names $path"
        rm -f "$destdir$path"
    done <"$destdir$list"
    rm -f "$destdir$list"
    rmdir "$destdir$prefix/share/weir" "$destdir$prefix/share/doc/weir"
    echo "uninstalled; /etc/weir, /var/lib/weir and the account weir stay"
}

case ${1:-} in
    install) install_all ;;
    uninstall) uninstall_all ;;
    *) fail "install or uninstall, not '${1:-}'" ;;
esac

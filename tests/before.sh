#!/usr/bin/env bash
# Says what `make test` is about to do, before it does it: which Debian packages it installs and how
# large they are, how long it takes, and how much disk it needs. It installs nothing. Called again with
# --ended, it says how long that was and notes it for the next time.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

# The last run here that came to its end: its minutes, and the KiB of target/. And when this began.
last=target/make-test.txt
began=target/make-test.began

mib() { echo "$((($1 + 1048575) / 1048576)) MiB"; }

# Sizes as apt knows them, with the packages that come along: to load, and unpacked.
sizes() {
    local names
    mapfile -t names < <(LC_ALL=C apt-get install --simulate --no-install-recommends "$@" \
        2>/dev/null | awk '/^Inst / { print $2 }')
    [ "${#names[@]}" -gt 0 ] || return 1
    LC_ALL=C apt-cache show --no-all-versions "${names[@]}" 2>/dev/null | awk -v wanted="$*" '
        BEGIN { split(wanted, list); for (place in list) asked[list[place]] = 1 }
        /^Package: / { name = $2 }
        /^Size: / { load += $2 }
        /^Installed-Size: / { unpacked += $2; if (name in asked) own[name] = $2 }
        END {
            if (!unpacked) exit 1
            for (place = 1; place in list; place++) {
                name = list[place]
                if (name in own) printf "  %-20s %6.1f MiB\n", name, own[name] / 1024
                else printf "  %-20s (apt does not know its size)\n", name
            }
            printf "  together with what they need: %.1f MiB to load, %.1f MiB on the disk\n", \
                load / 1048576, unpacked / 1024
        }'
}

if [ "${1:-}" = --ended ]; then
    [ -r "$began" ] || exit 0
    minutes=$((($(date +%s) - $(cat "$began")) / 60))
    kib=$(du -sk target | cut -f1)
    echo "$minutes $kib" >"$last"
    echo "make test took $minutes minutes, and target/ has $(mib $((kib * 1024)))"
    exit 0
fi
mkdir -p target
date +%s >"$began"

echo "make test installs what the tests need, builds everything and runs it."
mapfile -t missing < <(tests/packages.sh --missing)
if [ "${#missing[@]}" -eq 0 ]; then
    echo "packages: none is missing, nothing is installed"
elif ! command -v apt-get >/dev/null; then
    echo "packages: missing ${missing[*]}, and there is no apt-get here: it stops and says so"
else
    echo "packages: it installs ${#missing[@]} that are missing:"
    if ! sizes "${missing[@]}"; then
        printf '  %s\n' "${missing[@]}"
        echo "  apt knows no sizes before its lists are there (apt-get update)"
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        echo "  neither root nor sudo: it stops and says so"
    fi
fi

# As measured.
echo "time: 44 to 46 minutes from a clean clone, on a shared virtual machine with 2 processors that had"
echo "  the packages"
free_kib=$(df -Pk . | awk 'NR == 2 { print $4 }')
echo "disk: about 10 GB in target/, of which the 70 programs of the tests are 8; the end of this run says"
echo "  what it was. $(mib $((free_kib * 1024))) are free here"
if [ -r "$last" ]; then
    read -r minutes kib <"$last"
    echo "the last run here that came to its end took $minutes minutes, and left target/ with" \
        "$(mib $((kib * 1024)))"
fi

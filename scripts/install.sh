#!/bin/sh
# Fetches Strata's control package, checks it and hands over to the strata-setup in it. A shell script
# because it runs where nothing of Strata is yet: sh, curl or wget, tar, coreutils, and openssl 3 or
# minisign to check signatures. It stops at the first thing that it cannot check; it never goes on without.
#
#   sh install.sh [--release URL|DIR] [--key BASE64] [flags of strata-setup]
set -eu

# Address of the release and its root keys (minisign, base64, blanks between); a released copy carries both.
RELEASE=''
KEYS=''

say() { printf 'install.sh: %s\n' "$*" >&2; }
die() { say "$*"; say 'nothing was installed'; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

while [ $# -gt 0 ]; do
    case $1 in
    --release) [ $# -gt 1 ] || die '--release needs an address or a folder'; RELEASE=$2; shift 2 ;;
    --key) [ $# -gt 1 ] || die '--key needs a public key'; KEYS=$2; shift 2 ;;
    *) break ;;
    esac
done
[ -n "$RELEASE" ] || die 'no release is known to this copy: --release URL|DIR'
[ -n "$KEYS" ] || die 'no key is known to this copy, so nothing could be checked: --key BASE64'
for tool in tar sha256sum base64 awk; do has "$tool" || die "\`$tool\` is needed"; done
case $(uname -s)-$(uname -m) in
Linux-x86_64) system=linux-x86_64 ;;
*) die "there is no package for $(uname -s) on $(uname -m)" ;;
esac

umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

fetch() {
    case $RELEASE in
    https://* | http://127.0.0.1* | http://localhost*)
        if has curl; then
            curl --fail --silent --show-error --location --retry 5 --output "$work/$1" "${RELEASE%/}/$1"
        elif has wget; then
            wget --quiet --tries=5 --output-document="$work/$1" "${RELEASE%/}/$1"
        else
            die 'curl or wget is needed'
        fi ;;
    http://*) die 'an address without TLS is not taken' ;;
    *) cp -- "${RELEASE%/}/$1" "$work/$1" ;;
    esac || die "cannot fetch $1 from $RELEASE"
}

# signed FILE KEY: whether FILE.minisig is KEY's signature of FILE. Fails for anything else.
signed() {
    if has minisign; then
        minisign -Vq -P "$2" -m "$work/$1" >/dev/null 2>&1
        return
    fi
    s=$work/signature k=$work/key
    sed -n 2p "$work/$1.minisig" | base64 -d >"$s" 2>/dev/null && printf %s "$2" | base64 -d >"$k" 2>/dev/null || return 1
    [ "$(wc -c <"$s")" -eq 74 ] && [ "$(wc -c <"$k")" -eq 42 ] || return 1
    # Algorithm `ED` (of a BLAKE2b hash) made by an `Ed` key with the same number.
    [ "$(head -c 2 "$s")" = ED ] && [ "$(head -c 2 "$k")" = Ed ] || return 1
    head -c 10 "$s" | tail -c 8 >"$s.id"; head -c 10 "$k" | tail -c 8 >"$k.id"
    cmp -s "$s.id" "$k.id" || return 1
    tail -c 64 "$s" >"$s.raw"
    { printf '\060\052\060\005\006\003\053\145\160\003\041\000'; tail -c 32 "$k"; } >"$k.der"
    openssl dgst -blake2b512 -binary "$work/$1" >"$work/hash" 2>/dev/null || return 1
    openssl pkeyutl -verify -pubin -keyform DER -inkey "$k.der" -rawin -in "$work/hash" -sigfile "$s.raw" >/dev/null 2>&1
}
signed_by_one() {
    file=$1; shift
    for key in "$@"; do if signed "$file" "$key"; then return 0; fi; done
    return 1
}

if ! has minisign; then
    has openssl || die 'to check signatures, `minisign` or `openssl` 3 is needed: install one and run this again'
    case $(openssl version) in
    'OpenSSL '[3-9]*) ;;
    *) die "to check signatures, openssl 3 or minisign is needed; here is $(openssl version)" ;;
    esac
fi

say "release: $RELEASE"
for name in keys.json keys.json.minisig SHA256SUMS.txt SHA256SUMS.txt.minisig; do fetch "$name"; done
# Word splitting is meant: several keys with blanks between.
# shellcheck disable=SC2086
signed_by_one keys.json $KEYS || die 'the key list is not signed by a key that this copy knows'
# The list is signed, so it is ours: an object a key, `revoked` behind `public`.
release_keys=$(awk '/"public":/ { gsub(/[",]/, ""); key = $2 } /"revoked": *true/ { key = "" } /}/ { if (key) print key; key = "" }' "$work/keys.json")
[ -n "$release_keys" ] || die 'the key list names no key'
# shellcheck disable=SC2086
signed_by_one SHA256SUMS.txt $release_keys || die 'the checksum list is not signed by a key of the key list'

control=$(awk -v kind="$system" '{ sub(/^\*/, "", $2) } $2 ~ ("^strata-control-[0-9A-Za-z.+-]*-" kind "\\.tar\\.gz$") { print $2 }' "$work/SHA256SUMS.txt")
[ "$(printf '%s\n' "$control" | wc -l)" -eq 1 ] && [ -n "$control" ] || die "the release names no control package for $system"
fetch "$control"
(cd "$work" && awk -v name="$control" '{ plain = $2; sub(/^\*/, "", plain) } plain == name' SHA256SUMS.txt | sha256sum --check --status --strict -) ||
    die "$control is not the file that the signed list names"
tar -xzf "$work/$control" -C "$work" --no-same-owner || die "$control cannot be unpacked"
setup=$work/${control%.tar.gz}/bin/strata-setup
[ -x "$setup" ] || die "$control holds no strata-setup"
# strata-setup checks the index with the same keys.
for key in $KEYS; do printf '%s\n' "$key"; done >"$work/root.pub"
say "checked: $control"
if ! [ -t 0 ] && (: </dev/tty) 2>/dev/null; then
    # `curl … | sh`: the questions are for the person in front of the terminal.
    "$setup" --release "$RELEASE" --key "$work/root.pub" "$@" </dev/tty
else
    "$setup" --release "$RELEASE" --key "$work/root.pub" "$@"
fi

#!/usr/bin/env bash
# Installs a build, moves the installation, and uses it as a stranger would: the command, find_package and pkg-config from C and C++.
#   tests/install_test.sh SOURCE BUILD
set -euo pipefail
source=$1
build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "install_test: $*" >&2 && exit 1; }
# expect WORDS OUTPUT: the output has a line with these words.
expect() { grep -qE -- "$1" <<<"$2" || fail "no '$1' in: $2"; }

cmake --install "$build" --prefix "$folder/first" >/dev/null
mv "$folder/first" "$folder/prefix"
prefix=$folder/prefix
library=$(find "$prefix" -name libplimsoll.so)
[ -n "$library" ] || fail "no libplimsoll.so"
libdir=$(dirname "$library")

expect '^plimsoll 0\.1\.0$' "$("$prefix/bin/plimsoll" --version)"
[ -s "$prefix/share/plimsoll/schemas/estimate.json" ] || fail "no schemas"
others=$(nm -D --defined-only "$library" | awk '{ print $3 }' | grep -v '^plimsoll_' || true)
[ -z "$others" ] || fail "the library shows more than the C interface: $others"
expect 'SONAME.*\[libplimsoll\.so\.0\]' "$(readelf -d "$library")"

cmake -S "$source/examples/c" -B "$folder/c" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS=-Werror >/dev/null
cmake --build "$folder/c" >/dev/null
cmake -S "$source/examples/cpp" -B "$folder/cpp" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS=-Werror >/dev/null
cmake --build "$folder/cpp" >/dev/null

out=$("$folder/c/fits" gpt2 4 rtx-4090 24GiB)
expect '^GeForce RTX 4090 +fits +needs +[0-9.]+ GiB of +23\.64 GiB' "$out"
expect '^24GiB +fits ' "$out"
code=0 && out=$("$folder/c/fits" gpt2-xl 4 2GiB) || code=$?
[ $code -eq 3 ] || fail "fits gpt2-xl 4 2GiB exits with $code"
expect '^2GiB +does not fit' "$out"
code=0 && out=$("$folder/c/fits" gtp2 4 24GiB 2>&1) || code=$?
[ $code -eq 5 ] || fail "fits gtp2 exits with $code"
expect "did you mean 'gpt2'" "$out"

# The batch that the example finds fits by the command, too, and the next one does not.
out=$("$folder/cpp/largest_batch" gpt2 8GiB seq=256)
batch=$(sed -n 's/^without checkpointing: //p' <<<"$out")
[ "$batch" -gt 0 ] || fail "no batch in: $out"
"$prefix/bin/plimsoll" estimate gpt2 --seq 256 --gpu 8GiB --batch "$batch" >/dev/null || fail "batch $batch does not fit"
! "$prefix/bin/plimsoll" estimate gpt2 --seq 256 --gpu 8GiB --batch $((batch + 1)) >/dev/null || fail "batch $((batch + 1)) fits"
[ "$(sed -n 's/^with checkpointing: *//p' <<<"$out")" -gt "$batch" ] || fail "checkpointing does not help: $out"

export PKG_CONFIG_PATH=$libdir/pkgconfig
expect '^0\.1\.0$' "$(pkg-config --modversion plimsoll)"
read -r -a flags <<<"$(pkg-config --cflags --libs plimsoll)"
cc -std=c99 "$source/examples/c/fits.c" "${flags[@]}" -o "$folder/fits"
c++ -std=c++17 "$source/examples/cpp/largest_batch.cpp" "${flags[@]}" -o "$folder/largest_batch"
expect '^24GiB +fits ' "$(LD_LIBRARY_PATH=$libdir "$folder/fits" gpt2 4 24GiB)"
expect '^with checkpointing' "$(LD_LIBRARY_PATH=$libdir "$folder/largest_batch" gpt2 4GiB seq=128)"
echo "the installation works"

#!/usr/bin/env bash
# Tests of the binding: the header is that of the sources, the handles keep their promises, the example runs against an
# installed library, and the programs in `tests` call every function, also under the address sanitizer.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo run --quiet --package foreshore-header
cargo test --quiet --package foreshore-handles
make --no-print-directory install PROFILE=dev PREFIX="$work/installed"

# Every function of the header is called by a test.
for function in $(grep -oE '\bfs_[a-z_]+\(' include/foreshore.h | tr -d '(' | sort -u); do
    grep -qE "\b$function\(" tests/*.c || { echo "no test in C calls $function" >&2; exit 1; }
done

warnings=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror)
if command -v pkg-config >/dev/null; then
    read -ra flags < <(PKG_CONFIG_PATH="$work/installed/lib/pkgconfig" pkg-config --cflags --libs foreshore)
else
    flags=(-I"$work/installed/include" -L"$work/installed/lib" -lforeshore_c)
fi
cc "${warnings[@]}" examples/bank.c "${flags[@]}" -o "$work/bank"
LD_LIBRARY_PATH="$work/installed/lib" "$work/bank" "$work/bank.db" >"$work/first"
LD_LIBRARY_PATH="$work/installed/lib" "$work/bank" "$work/bank.db" >"$work/second"
diff "$work/first" - <<<$'ada: 90\nbob: 10'
diff "$work/second" - <<<$'ada: 80\nbob: 20'

# Linked into the program, without and with the address sanitizer, which also finds what is not freed.
static=("$work/installed/lib/libforeshore_c.a" -lpthread -lm -ldl)
for sanitize in '' '-fsanitize=address'; do
    if [ -n "$sanitize" ] && ! cc $sanitize -x c - -o "$work/probe" <<<'int main(void) { return 0; }' 2>/dev/null; then
        echo 'skipped: the compiler has no address sanitizer'
        continue
    fi
    cc -g $sanitize "${warnings[@]}" -I"$work/installed/include" tests/*.c "${static[@]}" -o "$work/tests"
    mkdir "$work/folder"
    timeout 300 "$work/tests" "$work/folder"
    rm -rf "$work/folder"
done
# The header is also one of C++.
if command -v c++ >/dev/null; then
    c++ -Wall -Wextra -Werror -fsyntax-only -x c++ -include include/foreshore.h - <<<'int main() { return 0; }'
fi
echo 'the binding to C is sound'

#!/bin/sh
# step.sh NAME COMMAND…: run it quietly and print one line; its output, all of it, only when it fails.
name=$1
shift
start=$(date +%s)
if output=$("$@" 2>&1); then
    printf '%-8s ok, %s s\n' "$name" "$(($(date +%s) - start))"
else
    code=$?
    printf '%s\n%-8s failed: %s\n' "$output" "$name" "$*"
    exit "$code"
fi

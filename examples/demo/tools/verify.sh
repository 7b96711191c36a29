#!/bin/sh
# The demo's verify command: every script parses.
set -eu
for script in bin/*.sh lib/*.sh tools/*.sh; do
  sh -n "$script"
done
echo "all scripts parse"

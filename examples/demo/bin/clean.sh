#!/bin/sh
# Removes old files from a folder.
. "$(dirname "$0")/../lib/log.sh"
dir=${1:-/nonexistent}
cd "$dir"
find . -name '*.bak' -mtime +30 -exec rm {} +
log "cleaned $dir"

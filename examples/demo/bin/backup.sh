#!/bin/sh
# Copies one file to a backup folder.
set -eu
. "$(dirname "$0")/../lib/log.sh"
source_file=$1
target_dir=$2
mkdir -p "$target_dir"
cp $source_file "$target_dir/"
log "copied $source_file"

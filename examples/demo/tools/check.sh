#!/bin/sh
# The demo's checker: prints SARIF for four patterns in the files it is given (or in all scripts).
[ "$#" -gt 0 ] || set -- bin/*.sh lib/*.sh
tab=$(printf '\t')

emit() { # rule, message, pattern, what a fixed line holds, file
  grep -nF -- "$3" "$5" 2>/dev/null | grep -vF -- "$4" | while IFS=: read -r line _; do
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "${5#./}" "$line"
  done
}

results=$(for file in "$@"; do
  emit DEMO001 'The path is split at blanks: replace `cp $source_file` with `cp -- "$source_file"`' \
    'cp $source_file' 'cp --' "$file"
  emit DEMO002 'A failed cd must stop the script: replace `cd "$dir"` with `cd "$dir" || exit 1`' \
    'cd "$dir"' 'exit 1' "$file"
  emit DEMO003 'echo interprets escapes: replace `echo "$now $*"` with `printf "%s %s\n" "$now" "$*"`' \
    'echo "$now' 'printf' "$file"
  emit DEMO004 'An empty count is a syntax error: replace `[ $n -lt 3 ]` with `[ "$n" -lt 3 ]`' \
    '[ $n -lt' '"$n"' "$file"
done)

first=yes
printf '{"version":"2.1.0","runs":[{"tool":{"driver":{"name":"demo-check"}},"results":['
printf '%s\n' "$results" | while IFS="$tab" read -r rule message path line; do
  [ -n "$rule" ] || continue
  [ "$first" = yes ] || printf ','
  first=no
  text=$(printf '%s' "$message" | sed 's/\\/\\\\/g; s/"/\\"/g')
  printf '{"ruleId":"%s","level":"warning","message":{"text":"%s"},' "$rule" "$text"
  printf '"locations":[{"physicalLocation":{"artifactLocation":{"uri":"%s"},' "$path"
  printf '"region":{"startLine":%s}}}]}' "$line"
done
printf ']}]}\n'

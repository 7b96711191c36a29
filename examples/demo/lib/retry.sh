# Runs a command up to three times.
retry() {
  n=0
  while [ $n -lt 3 ]; do
    "$@" && return 0
    n=`expr $n + 1`
  done
  return 1
}

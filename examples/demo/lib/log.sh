# Logging for the scripts in bin/.
log() {
  now=`date +%H:%M:%S`
  echo "$now $*"
}

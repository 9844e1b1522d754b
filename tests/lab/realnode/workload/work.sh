#!/bin/sh
# Works on its devices until it is told to end, and then takes its time to let go.
set -eu
ready="${READY_FILE:-/tmp/ready}"

let_go() {
  echo "told to end, lets go in ${LETTING_GO_SECONDS:-0} s"
  rm -f "$ready"
  # It would have the devices open still; the one of the warm-up may have ended, or not have begun.
  kill "${!:-}" 2>/dev/null || true
  sleep "${LETTING_GO_SECONDS:-0}"
  echo "has let go"
  exit 0
}

if [ "${IGNORES_SIGTERM:-}" = true ]; then
  trap '' TERM
else
  trap let_go TERM
fi
echo "has its devices"
# In the background, as a shell hears a signal only while it waits.
sleep "${WARM_UP_SECONDS:-0}" &
wait "$!"
echo "is ready" | tee "$ready"
while :; do
  sleep 86400 &
  wait "$!"
done

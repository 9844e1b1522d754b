#!/bin/sh
# Entry of the workload: becomes work.sh with a lock on every device that the container was given.
set -eu
set -- "${DEVICES:-/accelerators}"/*/*
if [ ! -e "$1" ]; then
  echo "no device was given to this container" >&2
  exit 78
fi
echo "takes $*"
exec take "$@" -- sh "${0%/*}/work.sh"

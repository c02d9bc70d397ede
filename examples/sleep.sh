#!/bin/sh
# A job that waits: the smallest thing to see on its way through the queue.
#
#   zen submit --gpus 1 --name nap --max-runtime 5m -- sh "$PWD/examples/sleep.sh" 20
set -eu
seconds=${1:-20}
echo "job $ZEN_JOB_ID, attempt $ZEN_ATTEMPT, in $ZEN_REGION, GPU $CUDA_VISIBLE_DEVICES"
trap 'echo "told to stop after $n s"; exit 143' TERM
n=0
while [ "$n" -lt "$seconds" ]; do
    n=$((n + 1))
    sleep 1
    printf '{"step": %d, "total": %d}\n' "$n" "$seconds" >>"$ZEN_STATUS_FILE"
done
echo "slept $seconds s"

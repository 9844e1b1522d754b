// A lock that outlives an exec, as busybox has none. Standard library only.
module accelerator-rollout/tests/lab/tools/take

go 1.26.0

"""A real node for tests: containerd, runc and the kubelet, on this machine, beside the test bed's control plane."""

"""The test bed: a real Kubernetes control plane, simulated accelerator nodes, and what watches over both."""

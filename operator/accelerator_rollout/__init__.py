"""Replace accelerator pods one at a time, each only after its predecessor's devices are proven free."""

__version__ = "0.1.0"

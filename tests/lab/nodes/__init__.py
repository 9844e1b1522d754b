"""Simulated accelerator nodes: a kubelet and a DRA driver that speak only the ordinary API.

The real scheduler and the real controllers do everything else. `SimulatedNodes` is the fleet, `SimulatedNode` one node
with its faults; what single pods do wrong is said by annotations, see `lab.nodes.faults`.
"""

from lab.nodes.faults import FOREVER, Behaviour, FaultError, StartFailure, annotations_of
from lab.nodes.fleet import DRIVER, SimulatedNodes
from lab.nodes.node import SimulatedNode
from lab.nodes.pool import TaintEffect
from lab.nodes.timing import Timing

__all__ = [
    "DRIVER",
    "FOREVER",
    "Behaviour",
    "FaultError",
    "SimulatedNode",
    "SimulatedNodes",
    "StartFailure",
    "TaintEffect",
    "Timing",
    "annotations_of",
]

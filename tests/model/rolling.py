"""The arithmetic of kube-controller-manager's rolling update with maxSurge 0, one sync at a time [deployment/rolling.go].

Written from the controller's own steps, not from the closed forms that the operator uses: what it predicts is held
against this.
"""

from dataclasses import dataclass


@dataclass
class RollingUpdate:
    """Replica counts as (asked for, available), the oldest old ReplicaSet first."""

    replicas: int
    max_unavailable: int
    new: tuple[int, int]
    old: list[tuple[int, int]]

    def sync(self) -> bool:
        """Do one reconciliation; return whether anything was scaled."""
        if self._scale_up_new():
            return True
        return self._scale_down_old()

    def run_gated(self) -> None:
        """Sync until nothing moves, while no pod that is made ever becomes available."""
        while self.sync():
            pass

    def _scale_up_new(self) -> bool:
        """NewRSNewReplicas: up to the allowed total, and never beyond what is asked for."""
        size, up = self.new
        total = size + sum(s for s, _ in self.old)
        if size >= self.replicas or total >= self.replicas:
            return False
        self.new = (size + min(self.replicas - total, self.replicas - size), up)
        return True

    def _scale_down_old(self) -> bool:
        """reconcileOldReplicaSets: unhealthy pods first, then healthy ones down to the floor."""
        total = self.new[0] + sum(s for s, _ in self.old)
        floor = self.replicas - self.max_unavailable
        allowed = total - floor - (self.new[0] - self.new[1])
        if allowed <= 0:
            return False
        cleaned = self._clean_unhealthy(allowed)
        available = self.new[1] + sum(up for _, up in self.old)
        scaled = 0
        if available > floor:
            scaled = self._scale_healthy(available - floor)
        return bool(cleaned + scaled)

    def _clean_unhealthy(self, allowed: int) -> int:
        done = 0
        for i, (size, up) in enumerate(self.old):
            count = min(allowed - done, size - up)
            if count > 0:
                self.old[i] = (size - count, up)
                done += count
        return done

    def _scale_healthy(self, spare: int) -> int:
        done = 0
        for i, (size, up) in enumerate(self.old):
            count = min(size, spare - done)
            if count > 0:
                self.old[i] = (size - count, min(up, size - count))
                done += count
        return done

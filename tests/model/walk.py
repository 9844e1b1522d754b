"""Random walks: who acts next is drawn from a table, then everything is healed and has to come to rest.

A step is a number below 1000, so that a failing walk shrinks towards 0: "everybody takes one step".
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from accelerator_rollout.api.conditions import ConditionType, is_true
from accelerator_rollout.api.models import ActionType
from accelerator_rollout.decide.holds import is_hold
from accelerator_rollout.decide.plan import plan
from accelerator_rollout.names import GATE
from accelerator_rollout.records import ClaimRecord, DeploymentRecord, PodRecord
from model.cluster import Cluster, Overlap
from model.edits import EDITS, HEALED, edit
from model.operator import KINDS, Operator

REST: Final = 400  # seconds within which a healed world must come to rest
QUIET: Final = 4  # seconds in a row: what the operator tells may be what it knew a moment ago
IDLE: Final = 15  # seconds at rest in which nothing may be written


@dataclass
class Walk:
    """A cluster, its operator, and what happened to them."""

    cluster: Cluster
    operator: Operator
    log: list[str] = field(default_factory=list)
    goods: int = 0

    @classmethod
    def start(
        cls,
        kind: str,
        *,
        replicas: int = 3,
        devices: int = 4,
        ordered: bool = True,
        gated: bool = True,
        hold: bool = False,
        guard: bool = False,
        soak: int = 0,
        unavailable: int = 1,
        seed: int = 0,
        decide: object = plan,
    ) -> "Walk":
        cluster = Cluster(
            kind,
            replicas,
            devices,
            ordered=ordered,
            gated=gated,
            hold=hold,
            guard=guard,
            soak=soak,
            unavailable=unavailable,
            random=Random(seed),
        )
        if not gated:  # it ran before anybody thought of us
            cluster.rollout = None
            for _ in range(12):
                cluster.run_all()
                cluster.tick()
        cluster.create_rollout()
        return cls(cluster, Operator(cluster, decide))

    # One step

    def step(self, number: int) -> None:
        self.take(_TABLE[number % len(_TABLE)])

    def take(self, title: str) -> None:
        self.log.append(title)
        _BY_TITLE[title](self)
        self.cluster.sweep_leftovers()
        self.check()

    def check(self) -> None:
        unexplained = [o for o in self.cluster.overlaps if not self.explained(o)]
        assert not unexplained, f"{unexplained[0]} after {self.log}"

    def explained(self, overlap: Overlap) -> bool:
        """Whether nothing but a hold could have prevented this double use.

        The old pod was deleted by force, so the scheduler could hand out its device at once; and the new one is a
        stranger's, or passed no gate of ours, or its gate was opened before the deletion was seen (it waited, open,
        or the event was still on its way), or without proof because our object was going or gone; or nobody watched
        when the old pod was deleted and no status tells of it.
        """
        if overlap.old_pod not in self.cluster.forced:
            return False
        if overlap.old_pod in self.cluster.forced_held - self.operator.freed_on_leaving:
            return False  # a hold was there, and nobody else may have got the device, a stranger neither
        if overlap.new_pod.startswith("stranger") or overlap.old_pod.startswith("stranger"):
            return True
        opening = self.operator.openings.get(overlap.new_pod)
        if opening is None or opening.without_proof:
            return True
        return (
            opening.pods_at <= self.cluster.forced[overlap.old_pod]
            or overlap.old_pod in self.operator.unwatched
        )

    # In company

    def round(self) -> None:
        self.cluster.run_all()
        for kind in KINDS:
            self.operator.see(kind)
        self.operator.run()
        self.cluster.tick()

    def all_see(self) -> None:
        for kind in KINDS:
            self.operator.see(kind)

    def operate(self, *, dies_before: int | None = None) -> None:
        self.operator.dies_before = dies_before
        self.operator.run()
        self.operator.dies_before = None

    def new_image(self) -> None:
        self.goods += 1
        self.cluster.change_template(f"good-{self.goods}")

    def bad_image(self) -> None:
        self.cluster.change_template("bad")

    def revert(self) -> None:
        self.cluster.change_template(f"good-{max(0, self.goods - 1)}")

    def abort(self) -> None:
        self.cluster.ask(ActionType.ABORT)

    def retry(self) -> None:
        self.cluster.ask(ActionType.RETRY)

    def undo(self) -> None:
        self.cluster.ask(ActionType.UNDO)

    def promote(self) -> None:
        self.cluster.ask(ActionType.PROMOTE)

    def promote_all(self) -> None:
        self.cluster.ask(ActionType.PROMOTE_ALL)

    def scale(self) -> None:
        self.cluster.scale(self.cluster.random.randint(0, self.cluster.devices))

    def delete_some_pod(self, *, force: bool) -> None:
        pod = self.cluster.some_pod(p for p in self.cluster.pods.values() if p.name.startswith("worker"))
        if pod is not None:
            self.cluster.delete_pod(pod, force=force)

    def some_node(self) -> str:
        return self.cluster.random.choice(sorted(self.cluster.nodes))

    def flip_node(self) -> None:
        name = self.some_node()
        self.cluster.set_node(name, ready=not self.cluster.nodes[name].ready)

    def cordon_some_node(self, *, on: bool) -> None:
        self.cluster.cordon(self.some_node(), on=on)

    def flip_taint(self) -> None:
        number = self.cluster.random.randrange(self.cluster.devices)
        published = self.cluster.slices.get(f"slice-{number}")
        if published is not None:
            self.cluster.taint(number, on=not published.devices[0].taints)

    def remove_node(self) -> None:
        if len(self.cluster.nodes) > 1:
            self.cluster.remove_node(self.some_node())

    def return_node(self) -> None:
        if self.cluster.away:
            name = self.cluster.random.choice(sorted(self.cluster.away))
            self.cluster.return_node(name, rebooted=self.cluster.random.random() < 0.5)

    def flip_pool(self) -> None:
        name = self.cluster.random.choice(sorted(self.cluster.slices))
        self.cluster.set_slice(name, slice_count=3 - self.cluster.slices[name].slice_count)

    def flip_driver(self) -> None:
        self.cluster.stuck_nodes ^= {self.some_node()}

    def flip_stale(self) -> None:
        self.operator.stale = not self.operator.stale

    def flip_checks(self) -> None:
        self.operator.unfit = not self.operator.unfit

    def flip_object(self) -> None:
        if self.cluster.rollout is None:
            self.cluster.create_rollout()
        else:
            self.cluster.delete_rollout()

    # To rest

    def come_to_rest(self) -> int:
        """Heal everything, return in how many seconds the world came to rest; fails if it does not."""
        self.log.append("heal")
        self.operator.stale = self.operator.unfit = False
        self.cluster.heal(HEALED)
        quiet = 0
        for second in range(REST):
            if self.cluster.rollout is None:
                self.cluster.create_rollout()
            self.want_an_end()
            self.round()
            self.cluster.sweep_leftovers()
            self.check()
            quiet = quiet + 1 if self.at_rest() else 0
            if quiet == QUIET:
                return second
        raise AssertionError(f"not at rest after {REST} s: {self.why_not()} after {self.log}")

    def want_an_end(self) -> None:
        """A person sees to it: a good image, also where an undo has brought a bad one back, and no halt."""
        rollout = self.cluster.rollout
        status = rollout.status if rollout is not None else None
        if status is not None and status.undo is None and self.cluster.workload.template.digest == "bad":
            self.new_image()
        asked = rollout.spec.action if rollout is not None else None
        seen = asked is None or status is None or asked.id == status.observed_action_id
        if status is not None and status.halt is not None and seen:
            self.retry()
        for pod in self.pinned_for_ever():
            self.cluster.delete_pod(pod)

    def pinned_for_ever(self) -> list[PodRecord]:
        """Pods that wait for the one node of their selector, whose device somebody else has."""
        cluster = self.cluster
        free = {d.pool for d in cluster.free_devices()}
        mine = {c.owner_pod_uid for c in cluster.claims.values() if c.uses is not None}
        return [
            p
            for p in cluster.live()
            if not p.bound and p.uid not in mine and cluster.pins.get(p.uid, next(iter(free), "")) not in free
        ]

    def at_rest(self) -> bool:
        return not self.why_not()

    def why_not(self) -> str:
        cluster = self.cluster
        spec, rollout = cluster.workload, cluster.rollout
        pods = [p for p in cluster.live() if p.name.startswith("worker")]
        if rollout is None or rollout.deletion is not None:
            return "our object is not there to stay"
        if rollout.spec.restarted_at is not None and rollout.spec.restarted_at > cluster.now:
            return "a restart is to come"
        if len(pods) != spec.replicas:
            return f"{len(pods)} of {spec.replicas} pods"
        wrong = [p.name for p in pods if not p.ready or GATE in p.gates]
        if GATE in spec.template.gates:  # without the gate we refuse, and the old revision stays
            wrong += [p.name for p in pods if p.revision != spec.template.digest]
        if wrong:
            told = [(e.pod_name, str(e.stage), e.reason, e.message) for e in rollout.status.replacements]
            told += [(c.type, str(c.status), c.reason, c.message) for c in rollout.status.conditions]
            return f"pods {wrong} are not well: {told}"
        if isinstance(spec, DeploymentRecord) and spec.paused:
            return f"the Deployment is paused ({spec.parked})"
        if GATE in spec.template.gates and not self.ready():
            return f"not Ready: {rollout.status.conditions}"
        alone = [
            c.name for c in cluster.claims.values() if any(map(is_hold, c.reserved_for)) and self.gone(c)
        ]
        if alone:
            return f"holds are left on {alone}"
        if rollout.status.replacements:
            return f"replacements are left: {rollout.status.replacements}"
        return ""

    def gone(self, claim: ClaimRecord) -> bool:
        pod = self.cluster.pods.get(claim.owner_pod_uid)
        return pod is None or not pod.live

    def ready(self) -> bool:
        rollout = self.cluster.rollout
        if rollout is None or rollout.status.observed_generation != rollout.generation:
            return False
        return is_true(rollout.status.conditions, ConditionType.READY)

    def stays_at_rest(self) -> None:
        """At rest nothing is written and nothing is done."""
        for _ in range(2):
            self.round()
        writes, done = self.operator.status_writes, len(self.operator.actions)
        for _ in range(IDLE):
            self.round()
        assert self.operator.status_writes == writes, "the status is written while nothing changes"
        assert len(self.operator.actions) == done, self.operator.actions[done:]


def _see(kind: str) -> Callable[[Walk], None]:
    return lambda walk: walk.operator.see(kind)


def _edits(title: str) -> Callable[[Walk], None]:
    return lambda walk: edit(walk.cluster, title)


def _kubelets(walk: Walk) -> None:
    walk.cluster.run_kubelet(walk.some_node())


_STEPS: Final[tuple[tuple[int, str, Callable[[Walk], None]], ...]] = (
    (16, "round", Walk.round),
    (10, "tick", lambda w: w.cluster.tick()),
    (4, "long tick", lambda w: w.cluster.tick(7)),
    *((3, f"see {kind}", _see(kind)) for kind in KINDS),
    (3, "see all", Walk.all_see),
    (14, "operator", Walk.operate),
    (2, "operator dies at once", lambda w: w.operate(dies_before=0)),
    (2, "operator dies after 1", lambda w: w.operate(dies_before=1)),
    (2, "operator dies after 2", lambda w: w.operate(dies_before=2)),
    (1, "operator restarts", lambda w: w.operator.start()),
    (3, "late evictions arrive", lambda w: w.operator.deliver()),
    (1, "stale", Walk.flip_stale),
    (8, "deployment", lambda w: w.cluster.run_deployment()),
    (8, "sets", lambda w: w.cluster.run_sets()),
    (8, "stateful set", lambda w: w.cluster.run_stateful_set()),
    (8, "daemon set", lambda w: w.cluster.run_daemon_set()),
    (4, "pod garbage", lambda w: w.cluster.run_pod_gc()),
    (8, "claims", lambda w: w.cluster.run_claims()),
    (8, "scheduler", lambda w: w.cluster.run_scheduler()),
    (12, "kubelet", _kubelets),
    (4, "new image", Walk.new_image),
    (2, "bad image", Walk.bad_image),
    (2, "revert", Walk.revert),
    (3, "scale", Walk.scale),
    (3, "delete pod", lambda w: w.delete_some_pod(force=False)),
    (2, "force", lambda w: w.delete_some_pod(force=True)),
    (2, "evict", lambda w: w.cluster.evict_by_kubelet()),
    (1, "pause", lambda w: w.cluster.pause_rollout(paused=True)),
    (2, "unpause", lambda w: w.cluster.pause_rollout(paused=False)),
    (1, "user pauses", lambda w: w.cluster.pause_by_hand()),
    (2, "user resumes", lambda w: w.cluster.resume_by_hand()),
    (2, "abort", Walk.abort),
    (2, "retry", Walk.retry),
    (2, "undo", Walk.undo),
    (2, "restart", lambda w: w.cluster.restart()),
    (1, "restart soon", lambda w: w.cluster.restart(5)),
    (1, "object", Walk.flip_object),
    (1, "stranger", lambda w: w.cluster.stranger_comes()),
    (2, "strangers leave", lambda w: w.cluster.strangers_leave()),
    (2, "node", Walk.flip_node),
    (1, "node goes", Walk.remove_node),
    (2, "node returns", Walk.return_node),
    (2, "taint", Walk.flip_taint),
    (2, "pool", Walk.flip_pool),
    (1, "driver", Walk.flip_driver),
    (2, "crash", lambda w: w.cluster.crash()),
    *((len(patches), title, _edits(title)) for title, patches in EDITS.items()),
    (2, "promote", Walk.promote),
    (1, "promote all", Walk.promote_all),
    (2, "checks fail", Walk.flip_checks),
    (1, "budget", lambda w: w.cluster.set_budget(1)),
    (1, "budget forbids", lambda w: w.cluster.set_budget(0)),
    (1, "no budget", lambda w: w.cluster.set_budget(None)),
    (1, "cordon", lambda w: w.cordon_some_node(on=True)),
    (3, "uncordon", lambda w: w.cordon_some_node(on=False)),
    (2, "drain", lambda w: w.cluster.drain(w.some_node())),
)
_BY_TITLE: Final = {title: act for _, title, act in _STEPS}
_TABLE: Final = tuple(title for weight, title, _ in _STEPS for _ in range(weight))
TITLES: Final = tuple(_BY_TITLE)
STEPS: Final = len(_TABLE)

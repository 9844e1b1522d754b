"""What a decision announces by Events."""

from accelerator_rollout.api.models import Replacement, RolloutStatus
from accelerator_rollout.decide.disruption import Step
from accelerator_rollout.decide.judgement import Judgement
from accelerator_rollout.decide.outcome import EventType, Notice, PodRef
from accelerator_rollout.decide.reasons import Announcement
from accelerator_rollout.decide.warnings import departed, opened, successor, troubles, turns
from accelerator_rollout.records import PodRecord


def announce(j: Judgement, finished: tuple[Replacement, ...], status: RolloutStatus) -> tuple[Notice, ...]:
    """Return the Events of what begins, is proven, goes wrong or ends with this decision."""
    notices: list[Notice] = [*j.intent.notices]
    stored = {e.id: e for e in j.snapshot.rollout.status.replacements}
    for victim in j.step.victims if isinstance(j.step, Step) else ():
        if victim.uid not in stored:
            text = f"replacing pod {victim.name} {_what_for(j, victim)}"
            about = PodRef(victim.name, victim.uid)
            notices.append(Notice(EventType.NORMAL, Announcement.REPLACING, text, "Replace", about))
    for a in j.appraisals:
        was = stored.get(a.entry.id)
        if a.entry.released_at is not None and (was is None or was.released_at is None):
            who = a.entry.pod_name or "an unknown predecessor"
            text = f"devices of pod {who} are free (proof: {a.entry.proof})"
            left = departed(a.entry)
            notices.append(Notice(EventType.NORMAL, Announcement.DEVICES_RELEASED, text, "Release", left))
        notices += troubles(a.entry, a.standing, was)
        if a.verdict is not None and a.verdict.exposed and (was is None or was.reason != a.standing.reason):
            left = departed(a.entry)
            exposed = Notice(EventType.WARNING, a.standing.reason, a.standing.message, "Release", left)
            notices.append(exposed)
    for entry in finished:
        if entry.replacement_pod_name:
            text = f"pod {entry.replacement_pod_name} has replaced pod {entry.pod_name} and is healthy"
            came = successor(entry)
            notices.append(Notice(EventType.NORMAL, Announcement.REPLACED, text, "Replace", came))
    notices += opened(j.openings.actions, (a.entry for a in j.appraisals))
    turned = turns(j.snapshot.rollout.status.conditions, status.conditions)
    said = {n.reason for n in notices}
    return (*notices, *(n for n in turned if n.reason not in said))


def _what_for(j: Judgement, victim: PodRecord) -> str:
    if j.driver is not None and not j.driver.updated(victim):
        return f"to bring it to revision {j.driver.revision()}"
    return f"that was created before spec.restartedAt ({j.snapshot.rollout.spec.restarted_at:%Y-%m-%d %H:%M:%S} UTC)"

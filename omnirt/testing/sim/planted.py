"""Faults planted into production code, each as one change of one behaviour: a world must find every one of them.

Where a second line of defence hides a fault from the client, the worlds look where the first line stands (a record that
leaves behind its fence is a finding though the gate would stop it), or both lines are taken away (`pair`).
"""

from __future__ import annotations

from omnirt.testing.sim import plants_life as life
from omnirt.testing.sim import plants_records as records
from omnirt.testing.sim.planting import Plant
from omnirt.testing.sim.world import run

PLANTED: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "no fence check at emit": (records.no_fence_at_emit, ("stale",)),
    "no fence check when joining a step": (records.no_fence_at_join, ("stepped",)),
    "no last gate (and slots do not wait)": (records.no_last_gate, ("gate",)),
    "slot used again while a node holds it": (records.slot_used_at_once, ("full",)),
    "retry without a new epoch": (records.retry_without_new_epoch, ("epoch",)),
    "slot freed without raising the epoch": (records.end_without_new_epoch, ("stale", "epoch")),
    "credit not returned": (records.credit_lost, ("failed",)),
    "credit returned twice": (records.credit_twice, ("credit",)),
    "row stepped without credit": (records.step_without_credit, ("bounds", "credit")),
    "answers wait behind questions": (records.answers_wait_for_questions, ("failed",)),
    "input after the last word is kept": (records.input_after_the_last_word_is_kept, ("failed",)),
    "lease not released on a stale drop": (records.lease_kept_on_stale_drop, ("leak",)),
    "lease not released by a dead row": (records.lease_kept_by_dead_rows, ("leak",)),
    "view emitted after its release": (records.view_emitted_after_release, ("overwritten", "client")),
    "unread outputs keep leases": (records.unread_outputs_keep_leases, ("lease",)),
    "late messages keep leases": (records.late_messages_keep_leases, ("leak",)),
    "End not sent on an untaken branch": (life.end_not_sent_on_untaken_branch, ("failed",)),
    "Close not sent": (life.close_not_sent, ("leak",)),
    "early records dropped by an old Close": (life.early_records_dropped_by_an_old_close, ("failed",)),
    "DOWN dropped": (life.down_dropped, ("failed",)),
    "load of the dead kept": (life.load_of_the_dead_kept, ("leak",)),
    "hang watch never armed": (life.hang_watch_never_armed, ("failed", "hung")),
    "deadline timer never armed": (life.deadline_never_armed, ("deadline",)),
    "deadline timer never cancelled": (life.deadline_never_cancelled, ("idle",)),
    "retry after output was sent": (life.retry_after_output, ("content", "client")),
    "killer requests never suspected": (life.killers_never_suspected, ("poison",)),
    "poison fails its batch mates": (life.poison_fails_its_batch, ("failed",)),
}
"""Name -> the plant, and the kinds of finding that show it (a side effect does not count)."""


def caught(name: str, seeds: int) -> tuple[int, str] | None:
    """The first seed whose world shows the fault, and how."""
    plant, kinds = PLANTED[name]
    with plant():
        for seed in range(seeds):
            for finding in run(seed).findings:
                if finding.partition(":")[0] in kinds:
                    return seed, finding
    return None

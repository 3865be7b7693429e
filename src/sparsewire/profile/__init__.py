"""Records of what trainings send, step by step: written during a training, and read back."""

import os
from functools import cache


@cache
def attach() -> None:
    """Have the model recorded that this process trains, if `SPARSEWIRE_PROFILE` is set.

    Raises InputError where settings make no sense. Once is enough.
    """
    if not os.environ.get("SPARSEWIRE_PROFILE"):
        return
    from sparsewire.profile.attaching import attach as attach_to_ddp
    from sparsewire.profile.records.plan import Plan

    plan = Plan.of_settings(os.environ)
    assert plan is not None, "the variable is set"
    attach_to_ddp(plan)

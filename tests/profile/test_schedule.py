"""Which steps are sampled: what it costs stays below its share, whatever a sample takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.errors import InputError
from sparsewire.profile.records.plan import Plan
from sparsewire.profile.schedule import Phase, Schedule

pytestmark = pytest.mark.timeout(60)

LIMIT = 0.1


def simulate(plan: Plan, step_s: float, sample_s: float) -> list[Phase]:
    """The phases of all steps up to the first that is over."""
    schedule, phases, costs, durations = Schedule(plan), [], [], []
    while not phases or phases[-1] is not Phase.over:
        phases.append(schedule.phase(len(phases)))
        if phases[-1] is Phase.timed:
            durations.append(step_s)
        if phases[-1] is Phase.sampled:
            costs.append(sample_s)
            schedule.sampled(len(phases) - 1, schedule.interval(costs, durations))
    return phases


@given(steps=st.integers(1, 200), warmup=st.integers(2, 9), sample_s=st.floats(1e-4, 1e3))
def test_samples_cost_little(steps: int, warmup: int, sample_s: float) -> None:
    phases = simulate(Plan(Path(), steps, warmup), 1.0, sample_s)
    assert len(phases) == warmup + steps + 1
    assert all((phase is Phase.warmup) == (step < warmup) for step, phase in enumerate(phases))
    samples = phases.count(Phase.sampled)
    assert samples >= 1
    assert samples == 1 or samples * sample_s <= LIMIT * steps


@given(steps=st.integers(1, 50), every=st.integers(1, 60))
def test_every(steps: int, every: int) -> None:
    phases = simulate(Plan(Path(), steps, 3, every), 1.0, 100.0)
    sampled = [step for step, phase in enumerate(phases) if phase is Phase.sampled]
    assert sampled == list(range(3, 3 + steps, every))


@given(
    st.builds(
        Plan,
        st.just(Path("/some/where")),
        steps=st.integers(1, 99),
        warmup=st.integers(2, 99),
        every=st.none() | st.integers(1, 99),
        trace=st.booleans(),
    )
)
def test_settings_say_all_of_a_plan(plan: Plan) -> None:
    assert Plan.of_settings(plan.settings()) == plan


@pytest.mark.parametrize(
    "settings",
    [{"SPARSEWIRE_PROFILE_STEPS": "many"}, {"SPARSEWIRE_PROFILE_EVERY": "0"}],
)
def test_settings_that_make_no_sense(settings: dict[str, str]) -> None:
    with pytest.raises(InputError):
        Plan.of_settings({"SPARSEWIRE_PROFILE": "somewhere", **settings})


def test_nothing_is_set() -> None:
    assert Plan.of_settings({"SPARSEWIRE_PROFILE_STEPS": "3"}) is None

"""The answer in words: what it is about, whether it pays, and what to change in the script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparsewire.tools.advise.answer import LOSS_PAYS, PAYS, Answer, Curve, Gain, OnLink, Row, gain
from sparsewire.tools.advise.prediction.costs import UPDATE_BYTE_S as SPARSE_OPTIMIZERS
from sparsewire.tools.advise.prediction.parameters import Seen
from sparsewire.tools.measure.sizes import seconds_text, speed_text, traffic_text

_DENSE = 0.5


def about(answer: Answer) -> Iterator[str]:
    """Lines on the recording, and on the question."""
    model, ranks = answer.model, answer.recorded.ranks
    first, gradients = ranks[0], model.timeline.gradients
    payload = sum(gradient.payload for gradient in gradients)
    yield (
        f"Recorded: {_counted(len(ranks), 'rank')} over {first.backend}, "
        f"{len(model.timeline.passes)} steps; {traffic_text(8 * payload)} of gradients in "
        f"{_counted(len(gradients), 'bucket')}. {_density_text(answer)}"
    )
    network = model.network
    shared = f", on {network.cores} processors in all" if network.cores else ""
    yield (
        f"Asked for: {network.hosts} hosts with {_counted(network.ranks, 'rank')} each{shared}. "
        f"Computing takes {seconds_text(model.computed_s)} of a step: no network makes it shorter."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _density_text(answer: Answer) -> str:
    gradients, ranks = answer.model.timeline.gradients, answer.model.network.all_ranks
    total = sum(gradient.payload for gradient in gradients)
    one, joined = (
        sum(gradient.payload * gradient.blocks.union(n) for gradient in gradients) / total
        for n in (1, ranks)
    )
    return f"Of the blocks, {one:.1%} are not zero on a rank, and {joined:.1%} on any of {ranks}."


def verdict(on_link: OnLink, answer: Answer) -> str:
    """The best methods on a link: with sparsewire, without it, and with loss."""
    parts = [f"At {speed_text(on_link.link_bits_s)} {_ours_text(on_link, answer)}"]
    without, plain = on_link.without, on_link.plain
    if without is not plain:
        parts.append(_without_text(without, plain))
    lossy = on_link.lossy
    if lossy is not None:
        parts.append(
            f"With loss, {lossy.method.title} would make it {lossy.speedup:.2g} times as fast as "
            f"{plain.method.title}."
        )
    elif on_link.gain in (Gain.alike, Gain.loses) and without is plain:
        parts.append("Nothing else pays for certain either.")
    return " ".join([*parts, *_hosts_texts(on_link, answer)])


def _ours_text(on_link: OnLink, answer: Answer) -> str:
    """The gain of sparsewire over the best method that needs no sparsewire."""
    ours, without = on_link.ours, on_link.without
    title, found = ours.method.title, on_link.gain
    if found in (Gain.alike, Gain.loses):
        said = _GAINS[found].format(title=title)
        return f"{said}: {_why_not(on_link, answer)}."
    if answer.model.network.on_device and found is Gain.pays:
        said = f"{title} would pay by this model, but never ran on a GPU: measure it"
    else:
        said = _GAINS[found].format(title=title)
    times = f"{without.step_s / ours.step_s:.2g} times as fast as {without.method.title}"
    apart = "" if found is Gain.pays else ", but the ranges of both meet"
    # Another optimizer may have to take the sparse gradients, and then trains otherwise.
    promise = f" {ours.method.promise}" if ours.method.splits else ""
    return f"{said}. It makes a step {times}, and loses nothing of a gradient{apart}.{promise}"


_GAINS = {
    Gain.pays: "it pays: {title}",
    Gain.may_pay: "it may pay: {title}",
    Gain.alike: "{title} makes no difference that this can tell",
    Gain.loses: "it does not pay: {title} gains nothing",
}


def _without_text(without: Row, plain: Row) -> str:
    """The gain of another backend, without sparsewire."""
    may = "" if gain(without, plain) is Gain.pays else "may "
    makes = "make" if may else "makes"
    return (
        f"Without sparsewire, {without.method.title} {may}{makes} a step {without.speedup:.2g} "
        f"times as fast as {plain.method.title}."
    )


def _hosts_texts(on_link: OnLink, answer: Answer) -> Iterator[str]:
    """Lines on numbers of hosts with another best method."""
    exact = [row for row in on_link.rows if row.method.is_lossless]
    for hosts in on_link.lossless.more_hosts:
        least_s = min(row.more_hosts[hosts] for row in exact)
        best = next(row for row in exact if row.more_hosts[hosts] <= PAYS * least_s)
        if best is not on_link.lossless:
            title = best.method.title
            yield f"With {hosts} hosts {title} is the best that loses nothing of a gradient."


def _why_not(on_link: OnLink, answer: Answer) -> str:
    """The reason why no exact method pays."""
    computed = answer.model.computed_s
    if answer.model.network.all_ranks == 1:
        return "one rank has nobody to send to"
    without = on_link.without
    if without is not on_link.plain or without.step_s < PAYS * computed:
        title = without.method.title
        return f"over {title} a step takes {seconds_text(without.step_s)} as it is"
    ranks = answer.model.network.all_ranks
    gradients = answer.model.timeline.gradients
    sent = sum(g.payload * g.sent_share(ranks, by_element=True) for g in gradients)
    if sent > _DENSE * sum(g.payload for g in gradients):
        return "the gradients have too few zeros"
    return "what it saves on the link is less than what it takes of the processors"


def chosen(answer: Answer) -> list[Row]:
    """The best on the links that were asked for, and the best that lose something.

    Each method at most once, and none where nothing pays.
    """
    rows = [row for link in answer.links for row in (link.lossless, link.lossy) if row]
    named = {row.method.name: row for row in rows}
    return [named[method.name] for method in answer.model.methods[1:] if method.name in named]


def lines(row: Row, answer: Answer) -> list[str]:
    """The lines of a script to change for a method."""
    method, tables = row.method, answer.model.tables
    on_device = answer.model.network.on_device and method.needs_sparsewire
    found = ["SPARSEWIRE_CUDA=engine  # in the environment of all ranks"] if on_device else []
    for line in method.lines:
        if "{class}" in line:
            found += _table_lines(line, tables)
        elif line == "{optimizer}":
            found += dict.fromkeys(_optimizer_line(table.optimizer) for table in tables)
        else:
            found.append(line)
    return found


def _table_lines(line: str, tables: Sequence[Seen]) -> Iterator[str]:
    """A line for each class that looks rows up."""
    for kind in dict.fromkeys(table.table or "Embedding" for table in tables):
        names = (table.name for table in tables if (table.table or "Embedding") == kind)
        yield line.replace("{class}", kind).replace("{tables}", ", ".join(names))


def _optimizer_line(name: str | None) -> str:
    """The line that an optimizer needs for sparse gradients."""
    if name is None:
        return "optimizer: SparseAdam, Adagrad or SGD for these tables: others take no sparse ones"
    if name == "SGD":
        return "optimizer: SGD takes sparse gradients, without momentum and weight decay"
    if name in SPARSE_OPTIMIZERS:
        return f"optimizer: {name} takes sparse gradients as it is, without weight decay"
    return f"optimizer: torch.optim.SparseAdam for these tables, as {name} takes no sparse ones"


def break_even_text(curve: Curve) -> str:
    """The bandwidth up to which a method pays."""
    title, gain = curve.method.title, f"{PAYS - 1:.0%}"
    if curve.break_even == 0:
        return f"{title}: gains less than {gain} on every link up to 100 Gbit/s."
    if curve.break_even is None:
        return f"{title}: gains {gain} or more on every link up to 100 Gbit/s."
    return f"{title}: gains {gain} or more up to about {speed_text(_round(curve.break_even))}."


def _round(bits_s: float) -> float:
    return float(f"{bits_s:.2g}")


def limits(answer: Answer) -> Iterator[str]:
    """Caveats: the figures that rest on little."""
    model = answer.model
    recorded, asked = len(answer.recorded.ranks), model.network.all_ranks
    yield (
        "What processors take to send was measured on one machine: it matters most on fast links. "
        "Each method's range is as wide as it was found to be wrong: docs/advise.md."
    )
    if model.computing != 1:
        yield (
            f"Computing is taken to last {model.computing:.2g} times as long as recorded, as ranks "
            "share processors otherwise."
        )
    else:
        yield "Forward and backward pass are taken to be as long as recorded."
    yield from _recorded_limits(answer, recorded, asked)
    if model.tables:
        yield from _table_limits(answer)
    if model.network.on_device:
        yield (
            "Gradients are on GPUs: SPARSEWIRE_CUDA=engine has sparsewire serve them. That never "
            "ran on a GPU; the figures assume 20 GB/s between device and host, and hooks compress "
            "on the CPU."
        )
    if any(link.lossy for link in answer.links):
        yield (
            f"What loses something is named where it is {LOSS_PAYS} times as fast as the best that "
            "does not. Nothing here says how your loss will be: try it."
        )


def _recorded_limits(answer: Answer, recorded: int, asked: int) -> Iterator[str]:
    per_host = answer.recorded.ranks[0].local_world_size
    if recorded == 1:
        yield (
            "One rank was recorded, so how much ranks overlap is not known: it is taken that they "
            "do not, which sends most. The range goes to full overlap."
        )
    elif recorded != asked:
        yield f"Densities of {asked} ranks are extrapolated from {recorded}."
    if per_host > 1 and answer.model.network.ranks != per_host:
        yield (
            f"{per_host} ranks were recorded on a host, and {answer.model.network.ranks} asked "
            f"for: --ranks {per_host} asks for as many."
        )


def _table_limits(answer: Answer) -> Iterator[str]:
    ranks = answer.recorded.ranks
    if not any(step.tables for rank in ranks for step in rank.steps):
        yield (
            "What backward passes spend on tables was not recorded: what sparse=True saves there "
            "is guessed."
        )
    if all(step.optimizer_s is None for rank in ranks for step in rank.steps):
        yield "No optimizer's step was recorded: what sparse=True saves there is not counted."
    if not any(rank.rehearsals for rank in ranks):
        yield (
            "What rows take was not rehearsed, for the training ended before the profile did: it "
            "is taken from another machine."
        )

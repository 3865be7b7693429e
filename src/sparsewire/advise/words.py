"""The answer in words: what it is about, whether it pays, and what to change in the script."""

from __future__ import annotations

from collections.abc import Iterator

from sparsewire.advise.answer import LOSS_PAYS, PAYS, Answer, Curve, OnLink, Row
from sparsewire.measure.sizes import seconds_text, speed_text, traffic_text

_DENSE = 0.5


def about(answer: Answer) -> Iterator[str]:
    """What was recorded, and what it is asked for."""
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
    """Whether it pays on a link, and with what."""
    head = f"At {speed_text(on_link.link_bits_s)}"
    best, lossy = on_link.lossless, on_link.lossy
    if best is on_link.plain:
        said = f"{head} it does not pay without loss: {_why_not(on_link, answer)}."
    else:
        said = (
            f"{head} it pays: {best.method.title} makes a step {best.speedup:.2g} times as fast, "
            "and loses nothing."
        )
    if lossy is None:
        return said if best is not on_link.plain else f"{said} Nothing else pays either."
    return (
        f"{said} With loss, {lossy.method.title} would make it {lossy.speedup:.2g} times as fast."
    )


def _why_not(on_link: OnLink, answer: Answer) -> str:
    """The reason why no exact method pays."""
    computed = answer.model.computed_s
    if answer.model.network.all_ranks == 1:
        return "one rank has nobody to send to"
    if on_link.plain.step_s < PAYS * computed:
        plain = on_link.plain.method.title
        return f"over {plain} a step takes {seconds_text(on_link.plain.step_s)} as it is"
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
    """What to change in the script for a method."""
    tables = ", ".join(table.name for table in answer.model.tables)
    return [line.replace("{tables}", tables) for line in row.method.lines]


def break_even_text(curve: Curve) -> str:
    """Up to which bandwidth a method pays."""
    title, gain = curve.method.title, f"{PAYS - 1:.0%}"
    if curve.break_even == 0:
        return f"{title}: gains less than {gain} on every link up to 100 Gbit/s."
    if curve.break_even is None:
        return f"{title}: gains {gain} or more on every link up to 100 Gbit/s."
    return f"{title}: gains {gain} or more up to about {speed_text(_round(curve.break_even))}."


def _round(bits_s: float) -> float:
    return float(f"{bits_s:.2g}")


def limits(answer: Answer) -> Iterator[str]:
    """What the figures rest on, where it is not much."""
    yield (
        "What processors take was measured on one machine: it matters most on fast links, and the "
        "range has 15% for it. Forward and backward pass are taken to be as long as recorded."
    )
    recorded, asked = len(answer.recorded.ranks), answer.model.network.all_ranks
    if recorded == 1:
        yield (
            "One rank was recorded, so how much ranks overlap is not known: it is taken that they "
            "do not, which sends most. The range goes to full overlap."
        )
    elif recorded != asked:
        yield f"Densities of {asked} ranks are extrapolated from {recorded}."
    if answer.model.network.on_device:
        yield (
            "Gradients are on GPUs: SPARSEWIRE_CUDA=engine has sparsewire serve them. It was never "
            "measured; the figures assume 20 GB/s between device and host, and hooks compress on "
            "the CPU."
        )
    if any(link.lossy for link in answer.links):
        yield (
            f"What loses something is named where it is {LOSS_PAYS} times as fast as the best that "
            "does not. Nothing here says how your loss will be: try it."
        )

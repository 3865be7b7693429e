"""The options of `sparsewire optimize`; an option that is None has the default of the job."""

from __future__ import annotations

from functools import partial

import click

from sparsewire.tools.cli.command import OfSection
from sparsewire.tools.cli.options import COUNT, SEED, json_file, plot_file, together

TRAINING = "Training: sgd, bcd"
COMPARISON = "Comparison of methods"


_training = partial(click.option, cls=OfSection, section=TRAINING)
_comparison = partial(click.option, cls=OfSection, section=COMPARISON)

common = together(
    click.option(
        "--method",
        metavar="NAMES",
        multiple=True,
        help="sgd or bcd to train over the collectives (default: sgd); or methods to compare, "
        "with commas between: METHOD, METHOD/OPERATOR, METHOD:OPTION=VALUE/OPERATOR, like "
        "gd,diana:momentum=0.9/rand-k:0.05.",
    ),
    click.option(
        "--workers",
        type=COUNT,
        help="Where no launcher starts ranks: ranks to start (default: 1, at most 64); "
        "in a comparison, workers to simulate (default: 20).",
    ),
    click.option(
        "--model",
        type=click.Choice(["logistic", "svm", "least-squares"]),
        help="Logistic regression (default), a linear SVM with squared hinge loss, or linear "
        "regression (comparison).",
    ),
    click.option(
        "--epochs",
        type=COUNT,
        help="Passes over the data. Default: 10; comparison: at most 1000, or with --rounds any.",
    ),
    click.option(
        "--l2",
        type=click.FloatRange(0),
        help="Weight of the l2 term. Default: 1 / training rows.",
    ),
    click.option("--seed", type=SEED, help="Seed of every choice that is random. Default: 0."),
    click.option(
        "--positive",
        metavar="CLASSES",
        help="Classes that count as +1, like 1,2,5. Default: the upper half of the classes.",
    ),
    click.option(
        "--normalize/--no-normalize",
        default=None,
        help="Scale every row to length 1. Default: in a comparison only.",
    ),
    click.option(
        "--step",
        "--step-size",
        type=float,
        help="SGD: first step size. Default: from the smoothness of the data. "
        "Comparison: step size of all methods. Default: from the theory of each.",
    ),
    click.option(
        "--batch",
        type=COUNT,
        help="Rows per rank and step, where they are drawn. Default for SGD: 64; comparison: 1.",
    ),
    json_file,
    plot_file("Draw the progress into this file, like run.png."),
)

training = together(
    _training("--test-share", type=float, help="Share of the rows to hold out. Default: 0.2."),
    _training("--algorithm", help="SGD: algorithm of the sparse all_reduce. Default: auto."),
    _training(
        "--precision",
        help="SGD: bfloat16, float16, int8, int4 or int2 on the wire; two with a comma between "
        "for the two phases. Default: float32.",
    ),
    _training("--block", type=COUNT, help="BCD: coordinates per rank and step. Default: 64."),
)

comparison = together(
    _comparison(
        "--compressor",
        help="Operator of the methods that name none, like rand-k:0.05 or ternary:inf:128. "
        "Methods with error feedback scale unbiased ones down, and refuse what is no contraction.",
    ),
    _comparison(
        "--split",
        type=click.Choice(["shuffled", "label", "index"]),
        help="Divide rows among workers shuffled (default), sorted by label, or in their order.",
    ),
    _comparison("--l1", type=click.FloatRange(0), help="Weight of an l1 term. Default: 0."),
    _comparison(
        "--rounds",
        type=COUNT,
        help="End after so many rounds. Default: 20,000, or with --epochs any; --choose: 100,000.",
    ),
    _comparison(
        "--accuracy",
        type=float,
        help="End before, where |x - x*|² is so small a part of what it is at the start. "
        "Default: 1e-12, and 1e-6 with --choose.",
    ),
    _comparison(
        "--link",
        help="Model the time on a link of this speed per worker, like 10mbit. Default: 1gbit.",
    ),
    _comparison("--downlink", help="Speed from the server to a worker. Default: as --link."),
    _comparison("--latency", help="Of a message in one direction, like 100us (default) or 5ms."),
    _comparison(
        "--choose",
        is_flag=True,
        default=None,
        help="Rank methods, operators and step sizes by predicted time, and run the best.",
    ),
    _comparison("--top", type=COUNT, help="With --choose: how many to run. Default: 4."),
)

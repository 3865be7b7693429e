"""The options of `sparsewire optimize`, as their help says; None leaves the default to the job."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

_training = partial(typer.Option, rich_help_panel="Training: sgd, bcd")
COMPARISON = "Comparison of methods"
_comparison = partial(typer.Option, rich_help_panel=COMPARISON)

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="LIBSVM file, also .gz, .bz2; or breast_cancer, diabetes, digits, iris, wine.",
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="NAMES",
        help="sgd or bcd to train over the collectives (default: sgd); or methods to compare, "
        "with commas between: METHOD, METHOD/OPERATOR, METHOD:OPTION=VALUE/OPERATOR, like "
        "gd,diana:momentum=0.9/rand-k:0.05.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Where no launcher starts ranks: ranks to start (default: 1, at most 64); "
        "in a comparison, workers to simulate (default: 20).",
    ),
]
Model = Annotated[
    Literal["logistic", "svm", "least-squares"] | None,
    typer.Option(
        help="Logistic regression (default), a linear SVM with squared hinge loss, or linear "
        "regression (comparison)."
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Passes over the data. Default: 10; comparison: at most 1000, or with --rounds any.",
    ),
]
L2 = Annotated[
    float | None, typer.Option(min=0, help="Weight of the l2 term. Default: 1 / training rows.")
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of every choice that is random. Default: 0.")
]
Positive = Annotated[
    str | None,
    typer.Option(
        metavar="CLASSES",
        help="Classes that count as +1, like 1,2,5. Default: the upper half of the classes.",
    ),
]
Normalize = Annotated[
    bool | None,
    typer.Option(
        "--normalize/--no-normalize",
        help="Scale every row to length 1. Default: in a comparison only.",
    ),
]
Step = Annotated[
    float | None,
    typer.Option(
        "--step",
        "--step-size",
        help="SGD: first step size. Default: from the smoothness of the data. "
        "Comparison: step size of all methods. Default: from the theory of each.",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Rows per rank and step, where they are drawn. Default for SGD: 64; comparison: 1.",
    ),
]
TestShare = Annotated[float | None, _training(help="Share of the rows to hold out. Default: 0.2.")]
Algorithm = Annotated[
    str | None, _training(help="SGD: algorithm of the sparse all_reduce. Default: auto.")
]
Precision = Annotated[
    str | None,
    _training(
        help="SGD: bfloat16, float16, int8, int4 or int2 on the wire; two with a comma between "
        "for the two phases. Default: float32."
    ),
]
Block = Annotated[
    int | None, _training(min=1, help="BCD: coordinates per rank and step. Default: 64.")
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write all numbers and conditions here.")
]
Plot = Annotated[Path | None, typer.Option(help="Draw the progress into this file, like run.png.")]

Compressor = Annotated[
    str | None,
    _comparison(
        help="Operator of the methods that name none, like rand-k:0.05 or ternary:inf:128. "
        "Methods with error feedback scale unbiased ones down, and refuse what is no contraction."
    ),
]
Split = Annotated[
    Literal["shuffled", "label", "index"] | None,
    _comparison(
        help="Divide rows among workers shuffled (default), sorted by label, or in their order."
    ),
]
L1 = Annotated[float | None, _comparison(min=0, help="Weight of an l1 term. Default: 0.")]
Rounds = Annotated[
    int | None,
    _comparison(
        min=1,
        help="End after so many rounds. Default: 20,000, or with --epochs any; --choose: 100,000.",
    ),
]
Accuracy = Annotated[
    float | None,
    _comparison(
        help="End before, where |x - x*|² is so small a part of what it is at the start. "
        "Default: 1e-12, and 1e-6 with --choose."
    ),
]
LinkSpeed = Annotated[
    str | None,
    _comparison(
        "--link",
        help="Model the time on a link of this speed per worker, like 10mbit. Default: 1gbit.",
    ),
]
Downlink = Annotated[
    str | None, _comparison(help="Speed from the server to a worker. Default: as --link.")
]
Latency = Annotated[
    str | None, _comparison(help="Of a message in one direction, like 100us (default) or 5ms.")
]
Choose = Annotated[
    bool | None,
    _comparison(
        "--choose",
        help="Rank methods, operators and step sizes by predicted time, and run the best.",
    ),
]
Top = Annotated[int | None, _comparison(min=1, help="With --choose: how many to run. Default: 4.")]

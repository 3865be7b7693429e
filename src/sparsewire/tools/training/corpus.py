"""Turns text files into one array of token numbers, which all workers read."""

import random
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparsewire.errors import ExperimentError

MAX_TEXT_BYTES = 64 * 2**20
MIN_TOKENS_PER_WORKER = 20_000
UNKNOWN = "<unknown>"

_TOKEN = re.compile(r"\w+|[^\w\s]|\n")
_SKIPPED_FOLDERS = {"__pycache__", "site-packages", "dist-packages", "node_modules"}


@dataclass(frozen=True)
class Corpus:
    """A tokenised text: numbers from 0, the most frequent token first."""

    source: str
    files: int
    tokens: npt.NDArray[np.int32]
    vocabulary: int

    def __str__(self) -> str:
        counts = f"{len(self.tokens):,} tokens, {self.vocabulary:,} different ones"
        return f"{self.source}, {self.files} files: {counts}"


def save_corpus(path: Path | None, vocabulary: int, workers: int, file: Path) -> Corpus:
    """Read a corpus, and leave its tokens where workers find them."""
    corpus = read_corpus(path, vocabulary, workers)
    np.save(file, corpus.tokens)
    return corpus


def read_corpus(path: Path | None, vocabulary: int, workers: int) -> Corpus:
    """Tokenise a file, a folder, or, where `path` is None, the source of the standard library.

    At most `vocabulary` different tokens are kept; the rarest others become one, the unknown token.
    Text beyond 64 MiB is left out. Raises ExperimentError if the text is missing, or too
    short for so many workers.
    """
    files = _files(path)
    texts = [_TOKEN.findall(text) for text in _read(files)]
    words = Counter[str]()
    for text in texts:
        words.update(text)
    source = "Python's standard library" if path is None else str(path)
    needed = MIN_TOKENS_PER_WORKER * workers
    if words.total() < needed:
        raise ExperimentError(
            f"{source} has {words.total()} tokens, but {workers} workers need {needed}: "
            "give a longer text as the corpus"
        )
    numbers = _number(words, vocabulary)
    return Corpus(source, len(texts), _encode(texts, words.total(), numbers), len(numbers))


def texts_of(path: Path | None) -> Iterator[str]:
    """The texts of a file, a folder or the standard library, as `read_corpus` finds them.

    Raises ExperimentError where there are none.
    """
    return _read(_files(path))


def _files(path: Path | None) -> list[Path]:
    if path is None:
        found = sorted(_walk(Path(sysconfig.get_path("stdlib")), "*.py"))
    elif path.is_dir():
        found = sorted(_walk(path, "*"))
    elif path.is_file():
        found = [path]
    else:
        raise ExperimentError(
            f"there is no file or folder {path}: give the corpus as a path to text"
        )
    # A fixed random order makes the end of the text, which is held out, like the rest.
    random.Random(0).shuffle(found)
    return found


def _walk(folder: Path, pattern: str) -> Iterator[Path]:
    for file in folder.rglob(pattern):
        parts = file.relative_to(folder).parts
        hidden = any(part.startswith(".") for part in parts)
        if not hidden and _SKIPPED_FOLDERS.isdisjoint(parts) and file.is_file():
            yield file


def _read(files: Iterable[Path]) -> Iterator[str]:
    left = MAX_TEXT_BYTES
    for file in files:
        content = file.read_bytes()[:left]
        if b"\0" not in content:
            left -= len(content)
            yield content.decode(errors="replace")
        if left == 0:
            return


def _number(words: Counter[str], vocabulary: int) -> dict[str, int]:
    """Number the words by falling frequency; ties go by name, so every run numbers alike."""
    ranked = sorted(words, key=lambda word: (-words[word], word))
    kept = ranked[: vocabulary - 1] if len(ranked) > vocabulary else ranked
    counts = {word: words[word] for word in kept}
    if rest := words.total() - sum(counts.values()):
        counts[UNKNOWN] = rest
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ordered)}


def _encode(texts: list[list[str]], total: int, numbers: dict[str, int]) -> npt.NDArray[np.int32]:
    unknown = numbers.get(UNKNOWN, 0)
    words = (word for text in texts for word in text)
    return np.fromiter((numbers.get(word, unknown) for word in words), np.int32, total)

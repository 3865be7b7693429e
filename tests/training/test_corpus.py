"""The demo's corpus: tokens, numbering by frequency, and what it says about unusable input."""

from pathlib import Path

import numpy as np
import pytest

from sparsewire.errors import ExperimentError
from sparsewire.tools.training import corpus
from sparsewire.tools.training.corpus import UNKNOWN, read_corpus


@pytest.fixture(autouse=True)
def _short_texts_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MIN_TOKENS_PER_WORKER", 1)


def test_tokens_are_words_punctuation_and_line_ends(tmp_path: Path) -> None:
    text = tmp_path / "text.py"
    text.write_text("x1 = f(x1)\nx1\n")
    found = read_corpus(text, 100, workers=2)
    assert found.tokens.dtype == np.int32
    assert len(found.tokens) == 9
    assert found.vocabulary == 6
    # x1 is the most frequent token, the end of line the next.
    assert list(found.tokens[[0, 4, 7]]) == [0, 0, 0]
    assert list(found.tokens[[6, 8]]) == [1, 1]


def test_rare_tokens_become_one(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a a a b b c d e f")
    found = read_corpus(text, 3, workers=2)
    assert found.vocabulary == 3
    # The four rare ones together are the most frequent token.
    assert list(found.tokens) == [1, 1, 1, 2, 2, 0, 0, 0, 0]


def test_vocabulary_of_exactly_the_limit_has_no_unknown_token(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a a b")
    assert read_corpus(text, 2, workers=2).vocabulary == 2


def test_unknown_token_in_the_text_is_no_trap(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text(f"{UNKNOWN} a b c d e")
    found = read_corpus(text, 3, workers=2)
    assert found.tokens.max() < found.vocabulary == 3


def test_folder_without_binary_hidden_and_cached_files(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a a a")
    (tmp_path / "image").write_bytes(b"a\0b")
    (tmp_path / ".hidden").write_text("b")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x").write_text("c")
    found = read_corpus(tmp_path, 10, workers=2)
    assert (found.files, len(found.tokens), found.vocabulary) == (1, 3, 1)


def test_text_beyond_the_limit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_TEXT_BYTES", 6)
    for name in "ab":
        (tmp_path / name).write_text("x x x x x x")
    assert len(read_corpus(tmp_path, 10, workers=2).tokens) == 3


def test_same_text_gives_same_tokens(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(f"{name} x {name} y")
    first, second = read_corpus(tmp_path, 4, workers=2), read_corpus(tmp_path, 4, workers=2)
    assert np.array_equal(first.tokens, second.tokens)


def test_missing_path_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="no file or folder"):
        read_corpus(tmp_path / "nothing", 10, workers=2)


def test_short_text_says_how_much_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "MIN_TOKENS_PER_WORKER", 3)
    (tmp_path / "text").write_text("a b c d")
    with pytest.raises(ExperimentError, match=r"has 4 tokens, but 2 workers need 6"):
        read_corpus(tmp_path, 10, workers=2)

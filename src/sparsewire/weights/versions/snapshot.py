"""One version of a model on disk: a file of safetensors, or a directory of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sparsewire.errors import DataError
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.safetensors import Mode, SafetensorsFile
from sparsewire.weights.versions.tensors import Tensor

SUFFIX = ".safetensors"

MARK = ".weight_sync"
"""The folder in a copy of a model that says which version it has, which no other copy has."""

CONDITION = "sparsewire.json"
"""The file in a directory that a reader keeps at the newest version: which one, and if it is whole.
It is of that directory alone, too."""


class Snapshot:
    """The files of one version, by name, and all of their tensors."""

    def __init__(self, path: Path, mode: Mode = "r") -> None:
        """Open `path`; raises DataError for what is no such version, and OSError.

        Of mode "c" tensors can be written to, and the files stay; of mode "r+" these change.
        """
        self.path = path
        self.is_directory = path.is_dir()
        found = sorted(path.glob(f"*{SUFFIX}")) if self.is_directory else [path]
        if not found:
            raise DataError(f"{shown(path)} has no files that end in {SUFFIX}")
        self.files = {each.name: SafetensorsFile(each, mode) for each in found}
        self.tensors: dict[str, Tensor] = {}
        for name, file in self.files.items():
            for tensor in file.tensors.keys() & self.tensors.keys():
                raise DataError(
                    f"{shown(path)}: {shown(tensor)} is in {shown(name)} and in another file"
                )
            self.tensors |= file.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def get(self, name: str) -> Tensor | None:
        """The tensor of this name; None if there is none."""
        return self.tensors.get(name)

    def check_target(self, target: Path) -> None:
        """Raise DataError where the next version of this directory cannot appear at `target`."""
        if not self.is_directory:
            return
        check_absent(target)
        if target.resolve().is_relative_to(self.path.resolve()):
            raise DataError(f"{shown(target)} is inside of the base: name a directory elsewhere")

    def texts_beside(self, old: Snapshot) -> dict[str, bytes]:
        """The JSON files of this directory that differ from the old version's, by name."""
        before = old.texts()
        return {name: text for name, text in self.texts().items() if before.get(name) != text}

    def texts(self) -> dict[str, bytes]:
        """The JSON files of this directory, by name."""
        return {each.name: each.read_bytes() for each in self._json_files()}

    def _json_files(self) -> list[Path]:
        return [each for each in self.others() if each.suffix == ".json" and each.is_file()]

    def others(self) -> list[Path]:
        """Files of a directory beside the tensors: the configuration, the tokenizer and so on."""
        if not self.is_directory:
            return []
        left_out = {MARK, CONDITION, *self.files}
        return [each for each in sorted(self.path.iterdir()) if each.name not in left_out]


def check_absent(target: Path) -> None:
    """Raise DataError for a directory to write that is there already."""
    if os.path.lexists(target):
        raise DataError(f"{shown(target)} is there already: name a directory that is not")

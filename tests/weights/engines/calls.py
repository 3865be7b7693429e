"""Calls to an object in another process: what an engine's worker serves, and tests ask of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Process:
    """A process that runs a script of this folder. It ends when its input does."""

    def __init__(self, script: str, *arguments: str, **environment: str) -> None:

        self._process = subprocess.Popen(
            [sys.executable, HERE / script, *arguments],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, method: str, *arguments: Any) -> Any:
        """What the method returns there. Raises RuntimeError for what it raises."""
        self.begin(method, *arguments)
        return self.end()

    def begin(self, method: str, *arguments: Any) -> None:
        """Call, and do not wait."""
        assert self._process.stdin
        print(json.dumps([method, *arguments]), file=self._process.stdin, flush=True)

    def end(self) -> Any:
        """What the call that was begun returns."""
        assert self._process.stdout
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def close(self) -> None:
        self._process.communicate(timeout=30)


def serve(make: Callable[..., Any]) -> None:
    """Answer calls in this process; `new` makes the object that gets the others."""
    served: Any = None
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            if method == "new":
                served, result = make(*arguments), None
            else:
                result = getattr(served, method)(*arguments)
            answer = {"result": result}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)

"""Versions of weights through kills, damage and a full disk: all that readers apply is checked.

    python tests/weights/chaos_weights.py --versions 1000 --kills 100 --seed 1

The weights are a function of the version's number, so that each reader knows what it has to find.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire.errors import Error, MismatchError
from sparsewire.tools.lab.site import free_ports
from sparsewire.weights import Publisher, Receiver
from sparsewire.weights.readers.checkout import Checkout
from sparsewire.weights.versions.named import tensor_of
from sparsewire.weights.versions.snapshot import Snapshot
from sparsewire.weights.versions.tensors import Tensor

KEEP = 6
STAGE_S = 5.0
# Beyond its time-out a call may take what a stop of the process or a busy machine costs.
SLACK_S = 20.0
STUCK_S = 90.0
DISK = "48m"
_PERIOD, _ROWS = 97, 128
_FLIP, _CUT, _STALL = 0.004, 0.004, 0.004

_context = multiprocessing.get_context("forkserver")


@cache
def _first() -> NDArray[np.uint16]:
    return np.random.default_rng(7).integers(0, 2**16, 150_000, dtype=np.uint16)


def _steps(count: int, period: int, version: int) -> NDArray[np.int64]:
    """How many of the versions up to this one changed each element: one of `period` each time."""
    return (version + period - 1 - np.arange(count) % period) // period


def bits(version: int) -> dict[str, Tensor]:
    """All tensors of a version. One comes and goes."""
    large = (_first() + _steps(len(_first()), _PERIOD, version)).astype(np.uint16)
    table = _steps(_ROWS, _ROWS, version).astype(np.float32).repeat(16).reshape(_ROWS, 16)
    window = version // 40
    arrays = {
        "table": table,
        f"adapter.{window}": np.full(3000, window % 100, np.int8),
        "step": np.array(version),
    }
    found = {name: tensor_of(name, array) for name, array in arrays.items()}
    return {"large": Tensor("BF16", large.shape, large.view(np.uint8)), **found}


def differences(found: Any, version: int) -> list[str]:
    """The names of tensors that are not those of the version."""
    wanted = bits(version)
    names = found.keys() | wanted.keys()
    return sorted(
        name
        for name in names
        if name not in found
        or name not in wanted
        or found[name].data.tobytes() != wanted[name].data.tobytes()
    )


@dataclass(frozen=True)
class Log:
    """Lines of JSON in a file, which outlive the process that writes them."""

    path: Path

    def say(self, what: str, **facts: Any) -> None:
        line = json.dumps({"what": what, "at": round(time.monotonic(), 3), **facts})
        with self.path.open("a") as file:
            file.write(line + "\n")

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        # The last one may be cut off by a kill.
        return [json.loads(line) for line in self.path.read_text().splitlines() if line[-1:] == "}"]


def publish(place: Path, port: int, last: int, pause: float) -> None:
    """Be the publisher, from where the one before ended, up to version `last`."""
    log = Log(place / "publisher.log")
    with Publisher(f"127.0.0.1:{port}", directory=place / "disk", keep=KEEP, threads=1) as made:
        log.say("came", version=made.version)
        number = -1 if made.version is None else made.version
        while number < last:
            number = published(made, number + 1, log)
            time.sleep(pause)
        while True:
            time.sleep(1)


def published(publisher: Publisher, number: int, log: Log) -> int:
    """Publish this version, or the first one that is allowed; returns its number."""
    while True:
        try:
            publisher.publish(bits(number), version=number)
        except MismatchError as error:
            log.say("refused", version=number, why=str(error))
            number += 1
        except OSError as error:
            log.say("full", version=number, why=str(error))
            time.sleep(0.1)
        else:
            log.say("published", version=number)
            return number


def follow(place: Path, name: str, port: int, relays: bool, has_files: bool, seed: int) -> None:
    """Be a reader, from an old version, others' weights, files, or nothing."""
    chance = random.Random(seed)
    log = Log(place / f"{name}.log")
    base = Checkout(place / name) if has_files else old_weights(chance)
    address = f"127.0.0.1:{port}"
    relay = "127.0.0.1:0" if relays else None
    log.say("came")
    with Receiver(address, base, name=name, relay=relay, threads=1) as receiver:
        while True:
            begin = time.monotonic()
            try:
                version = one(receiver, chance, log)
            except (Error, OSError) as error:
                log.say("failed", kind=type(error).__name__, why=str(error))
                version = None
            except BaseException:
                log.say("wrong", why=traceback.format_exc())
                raise
            if time.monotonic() - begin > STAGE_S + SLACK_S:
                log.say("wrong", why=f"a call took {time.monotonic() - begin:.1f} s")
            if version is not None and has_files:
                check(Snapshot(place / name).tensors, version, log)


def old_weights(chance: random.Random) -> dict[str, Tensor] | None:
    """What a reader begins with: nothing, or weights of a version that is long gone, or none."""
    old = chance.choice([None, bits(0), bits(chance.randrange(300)), bits(10**6)])
    # Names that a publisher never told of would stay.
    return old and {name: each for name, each in old.items() if name[:7] != "adapter"}


def one(receiver: Receiver, chance: random.Random, log: Log) -> int | None:
    """Stage a version, and apply it, or leave it now and then."""
    before = receiver.version
    staged = receiver.stage(timeout=STAGE_S)
    if chance.random() < 0.5:
        staged.verify()
    if chance.random() < 0.05:
        return None
    staged.apply()
    if before is not None and staged.version <= before:
        log.say("wrong", why=f"version {staged.version} came after {before}")
    check(receiver.tensors, staged.version, log)
    log.say("applied", version=staged.version, **staged.way._asdict())
    return staged.version


def check(found: Any, version: int, log: Log) -> None:
    if wrong := differences(found, version):
        log.say("wrong", why=f"version {version} has other bits: {', '.join(wrong)}")


class Middle:
    """Hands bytes on between readers and the publisher; flips bits, cuts and stalls."""

    def __init__(self, place: Path, target: int, seed: int) -> None:
        self._log = Log(place / "middle.log")
        self._target = target
        self._chance = random.Random(seed)

    async def serve(self, port: int) -> None:
        async with await asyncio.start_server(self._meet, "127.0.0.1", port) as server:
            await server.serve_forever()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            upstream, up = await asyncio.open_connection("127.0.0.1", self._target)
            with contextlib.closing(up):
                pumps = [self._pump(reader, up), self._pump(upstream, writer)]
                tasks = [asyncio.ensure_future(each) for each in pumps]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            chance = self._chance.random()
            if chance < _FLIP:
                self._log.say("flipped")
                data = flipped(data, self._chance)
            elif chance < _FLIP + _CUT:
                self._log.say("cut")
                return
            elif chance < _FLIP + _CUT + _STALL:
                self._log.say("stalled")
                await asyncio.sleep(self._chance.choice([0.2, 1, 6]))
            writer.write(data)
            await writer.drain()


def flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def stand_between(place: Path, port: int, target: int, seed: int) -> None:
    asyncio.run(Middle(place, target, seed).serve(port))


@dataclass
class Role:
    """A process that is started anew whenever it was killed."""

    work: Callable[..., None]
    arguments: tuple[Any, ...]
    lives: int = 0
    process: Any = None

    def start(self, *more: Any) -> None:
        self.lives += 1
        self.process = _context.Process(target=self.work, args=(*self.arguments, *more))
        self.process.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@dataclass
class Chaos:
    """One run: the processes, and what has been done to them."""

    place: Path
    versions: int
    kills: int
    seed: int
    readers: int = 4
    pause: float = 0.05
    stops: tuple[float, ...] = (0.05, 0.2, 1)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.disk = self.place / "disk"
        port, middle = free_ports(2)
        self.middle = Role(stand_between, (self.place, middle, port, self.seed))
        last = self.versions - 1
        self.publisher = Role(publish, (self.place, port, last, self.pause))
        self.names = [f"reader-{number}" for number in range(self.readers)]
        # Two of four are relays, two call through what stands between, one keeps files.
        self.following = {
            name: Role(
                follow,
                (self.place, name, [port, middle][number % 2], number in (1, 2), number == 3),
            )
            for number, name in enumerate(self.names)
        }

    def run(self) -> None:
        """Raises AssertionError where a reader has other bits, a version comes twice, or a process
        hangs."""
        points = sorted(self.chance.choices(range(1, self.versions), k=self.kills))
        try:
            self.middle.start()
            self.publisher.start()
            for name in self.names:
                self._come(name)
            for point in points:
                self._await(lambda point=point: self.newest() >= point, f"version {point}")
                self._strike()
            self._await(self._is_over, "the last version at all readers")
        finally:
            for role in (*self.following.values(), self.publisher, self.middle):
                if role.process:
                    role.kill()
        self._check()

    def _come(self, name: str) -> None:
        self.following[name].start(self.chance.randrange(2**30))

    def _await(self, is_there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STUCK_S
        while not is_there():
            assert time.monotonic() < deadline, f"{what} did not come: {self.report()}"
            dead = [r for r in (self.publisher, *self.following.values()) if r.process.exitcode]
            assert not dead, f"{dead} ended: {self.report()}"
            time.sleep(0.01)

    def newest(self) -> int:
        return max((each["version"] for each in self.said("publisher", "published")), default=-1)

    def said(self, name: str, what: str) -> list[dict[str, Any]]:
        lines = Log(self.place / f"{name}.log").lines()
        return [each for each in lines if each["what"] == what]

    def _is_over(self) -> bool:
        newest = self.newest()
        return newest >= self.versions - 1 and all(
            self.version_of(name) == newest for name in self.names
        )

    def version_of(self, name: str) -> int | None:
        """The version that a reader applied last."""
        lines = self.said(name, "applied")
        return lines[-1]["version"] if lines else None

    def _strike(self) -> None:
        """Kill one, at times with damage beside."""
        if self.chance.random() < 0.3:
            self._stop()
        if self.chance.random() < 0.08:
            self._fill()
        if self.chance.random() < 0.4:
            self.publisher.kill()
            self.done["kills of the publisher"] += 1
            if self.chance.random() < 0.3:
                self._damage()
            self.publisher.start()
            return
        name = self.chance.choice(self.names)
        self.following[name].kill()
        self.done["kills of relays" if name in self.names[1:3] else "kills of readers"] += 1
        self._come(name)

    def _stop(self) -> None:
        role = self.chance.choice([self.publisher, *self.following.values()])
        os.kill(role.process.pid, signal.SIGSTOP)
        time.sleep(self.chance.choice(self.stops))
        os.kill(role.process.pid, signal.SIGCONT)
        self.done["stops"] += 1

    def _damage(self) -> None:
        """Flip a bit of a message on the disk, or cut it off."""
        found = sorted(self.disk.glob("*.delta"))
        if not found:
            return
        path = self.chance.choice([found[-1], self.chance.choice(found)])
        raw = path.read_bytes()
        is_cut = self.chance.random() < 0.5
        path.write_bytes(raw[: len(raw) // 2] if is_cut else flipped(raw, self.chance))
        self.done["damaged files"] += 1

    def _fill(self) -> None:
        """Leave no room on the disk for a while, if it is one of its own."""
        if not os.path.ismount(self.disk):
            return
        ballast = self.disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        time.sleep(0.4)
        ballast.unlink()
        self.done["full disks"] += 1

    def _check(self) -> None:
        wrong = [each for name in self.names for each in self.said(name, "wrong")]
        assert not wrong, f"{wrong[0]['why']} ({len(wrong)} such): {self.report()}"
        numbers = [each["version"] for each in self.said("publisher", "published")]
        assert numbers == sorted(set(numbers)), f"a version came twice: {self.report()}"

    def report(self) -> dict[str, Any]:
        """What happened, as counts."""
        applied = [each for name in self.names for each in self.said(name, "applied")]
        failed = [each for name in self.names for each in self.said(name, "failed")]
        middle = Log(self.place / "middle.log").lines()
        return {
            "seed": self.seed,
            "newest": self.newest(),
            "published": len(self.said("publisher", "published")),
            "refused": len(self.said("publisher", "refused")),
            "publishes without room": len(self.said("publisher", "full")),
            **self.done,
            "on the way": dict(Counter(each["what"] for each in middle)),
            "applied": {name: len(self.said(name, "applied")) for name in self.names},
            "applied as a whole": sum(each["is_whole"] for each in applied),
            "most messages at once": max((each["messages"] for each in applied), default=0),
            "bytes": sum(each["nbytes"] for each in applied),
            "bytes from relays": sum(each["nbytes_from_relays"] for each in applied),
            "errors told": dict(Counter(each["kind"] for each in failed)),
            "such as": {each["kind"]: each["why"] for each in failed},
        }


@contextmanager
def disk_of_its_own(place: str) -> Iterator[None]:
    """A small file system where this process may mount one, else a folder."""
    disk = Path(place, "disk")
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(disk)]
    is_mounted = (
        shutil.which("mount") and not subprocess.run(command, capture_output=True).returncode
    )
    try:
        yield
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(disk)], check=True)


def run(versions: int, kills: int, seed: int, **settings: Any) -> dict[str, Any]:
    """Run it; returns the report. Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="sparsewire-chaos-") as place, disk_of_its_own(place):
        chaos = Chaos(Path(place), versions, kills, seed, **settings)
        begin = time.monotonic()
        chaos.run()
        return chaos.report() | {"seconds": round(time.monotonic() - begin, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between versions")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    # The longest is beyond what a reader waits for a relay that says nothing.
    stops = (0.05, 0.2, 1, 6)
    report = run(options.versions, options.kills, options.seed, pause=options.pause, stops=stops)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()

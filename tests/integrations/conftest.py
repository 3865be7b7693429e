"""These tests need the trainers: `make test-integrations` runs them where those are installed."""

from importlib.util import find_spec

TRAINERS = ("accelerate", "lightning", "ray", "torchft", "transformers")

if not all(map(find_spec, TRAINERS)):
    collect_ignore_glob = ["test_*.py"]

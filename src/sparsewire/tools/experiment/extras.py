"""Names the extra of sparsewire that brings a package which a command needs, and does not find."""

from importlib.util import find_spec

from sparsewire.errors import ExperimentError


def require(package: str, *, extra: str) -> None:
    """Raise ExperimentError, which says what to install, where `package` is missing."""
    if find_spec(package) is None:
        raise ExperimentError(f'{package} is missing: pip install "sparsewire[{extra}]"')

"""Directories in which others store what changed in a version: read, written and applied.

A directory has `model.safetensors.index.json`, whose `metadata` tells of the version, and files of
safetensors. These hold a tensor U8 of one dimension for each tensor that changed, under its name:
its change, byte by byte, as one frame of zstd; `__metadata__` has a checksum of the tensor's new
state, in hexadecimal digits, under the same name. Names, shapes and dtypes of a model stay.

- `xor`: the old bytes XOR the new ones. Applied twice it takes the change back.
- `overwrite`: a count, as many positions (32-bit integers, little-endian), and as many new bytes.

Followed from public sources, as they were in autumn 2026:

- slime, commits 06236d0 (writer) and 1a7ef65 (`slime/utils/disk_delta.py`): directories
  `weight_v000001`; versions are numbers of six digits; checksums xxh3-128 (default), blake3 or
  adler32; zstd level 1; files `model-00000-of-00001.safetensors`; tensors that did not change are
  not there. miles (pull request 1235) writes the same, versions also as JSON numbers.
- SGLang, pull requests 30366 and 30367 (`/pull_weights`): the receiver. A copy of a model notes the
  version that it has in `.weight_sync/state.json`; versions are compared as numbers.
- ModelExpress 0.5.1, `docs/S3_DELTA_WEIGHT_REFIT.md` at 0441baa and its receiver: versions have any
  names; `xor` and adler32 only; no other fields in the metadata; a zstd frame begins each change.
"""

"""The processor's time for communication: the constants of the model, and their sources.

Fitted to benchmarks/records (all_reduce of 100 MB on an Intel Xeon with AVX-512, 2 cores, 4 and 8
hosts at 100 Mbit/s and 1 Gbit/s, loopback); `benchmarks/advise_costs.py` compares them with these
records. Where a processor is another one, they are that much off: they matter where links are fast.
"""

HEADERS = 1.045
"""Bytes on the wire per byte of payload: 1514 for 1448, with acknowledgements' share."""

SCAN_BYTE_S = 0.036e-9
"""Scanning a byte of the tensor for non-zeros."""

PICK_BYTE_S = 0.22e-9
"""Picking single elements out of a byte of non-zero blocks."""

CHUNK_S = 23e-6
"""The work of every rank for a chunk, whatever it holds."""

SENT_BYTE_S = 1.0e-9
"""A byte that sparsewire sends over TCP, while it receives and adds another."""

NEAR_BYTE_S = 0.4e-9
"""A byte that sparsewire sends through a host's memory, likewise."""

GLOO_BYTE_S = 1.0e-9
"""A byte that gloo sends over TCP, likewise."""

CALL_S = 0.2e-3
"""A call of sparsewire that moves next to nothing."""

GLOO_PAUSES = 1.025
"""Gloo's ring waits between its steps: of the record `workload-training-100mbit`, where links are
busy nearly all the time."""

GLOO_HOP_S = 60e-6
"""A step of gloo's ring that moves next to nothing; there are 2 (n - 1)."""

RING_NEAR_BYTE_S = 0.63e-9
"""A byte of gloo's ring if all ranks are on one host."""

NCCL_HOP_S = 15e-6
"""A step of NCCL's ring; its bytes cost the processor nothing. Not measured here."""

COPY_BYTE_S = 0.05e-9
"""A byte copied between a GPU and pinned memory, 20 GB/s: PCIe 4.0 x16. Not measured here."""

FEEDBACK_BITS = 0.321
"""Bits of block-top-k:0.01 for each element of a parameter, from the record `operators`."""

FEEDBACK_ENCODE_BYTE_S = 0.45e-9
"""Error feedback, per byte of gradient: add what is owed, and choose blocks. The times of both
hooks are a thread's processor time in a training by 4 ranks."""

FEEDBACK_SETTLE_BYTE_S = 0.75e-9
"""Put the mean in place of the gradient, and remember what was not sent."""

BUFFERED_BYTES = 7e5
"""A message up to this size, given by each of 4 ranks to all others at 100 Mbit/s, takes 1.1 times
what the links need,"""

HALF_BUFFERED_BYTES = 2e6
"""up to this one twice, and a larger one four times."""

DIANA_BITS = 1.1
"""Bits of qsgd:7 for each normally distributed element: an entropy code of 15 levels."""

DIANA_ENCODE_BYTE_S = 1.0e-9
"""DIANA, per byte of gradient: subtract the shift, quantise, code."""

DIANA_SETTLE_BYTE_S = 0.5e-9
"""Add the mean to the shifts, and move these,"""

DIANA_DECODE_BYTE_S = 0.5e-9
"""and this for what each rank has sent."""

EXACT_ELEMENTS = 4096
"""Smaller parameters are sent as they are by both hooks."""

EXACT_ITEM_BYTES = 4
"""Bytes of an element: hooks work in float32."""

INDEX_BYTES = 8
"""Bytes of a row's position in a sparse tensor of torch, as gloo sends it."""

ROW_BYTES = 4
"""Bytes of a row's position as sparsewire sends it, at most."""

FILL_BYTE_S = 0.7e-9
"""New memory for a byte of a gradient, with zeros, where a profile does not tell."""

MOVE_BYTE_S = 0.2e-9
"""Copying a byte of a gradient, if a profile does not tell."""

COALESCE_BASE_S = 0.05e-3
"""Sorting the rows of a sparse tensor and adding up equal ones, if a profile does not tell,"""

COALESCE_ROW_S = 0.1e-6
"""for each row,"""

COALESCE_BYTE_S = 0.4e-9
"""and for each byte of it."""

UPDATE_BASE_S = 0.3e-3
"""An optimizer's step over rows, the same."""

UPDATE_BYTE_S = {"SGD": 1.5e-9, "Adagrad": 6e-9, "SparseAdam": 12e-9}
"""Updating a byte of a sparse gradient's rows, by the optimizer."""

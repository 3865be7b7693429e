"""Compression operators as torch operations, on whatever device a vector is: the same codes, to the
last bit, as those of `sparsewire.compress`. Thresholds wait for the device, and where the host has
chosen, the copy of its choice may; nothing else does."""

from sparsewire.torch.operators.forms import tensor_form
from sparsewire.torch.operators.tensor_operator import TensorCode, TensorOperator

__all__ = ["TensorCode", "TensorOperator", "tensor_form"]

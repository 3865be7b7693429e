"""Compression operators as torch operations, on the device of the vector. Codes are the same, to
the last bit, as those of `sparsewire.compress`. Only thresholds wait for the device, and maybe the
copy of a choice that the host made."""

from sparsewire.torch.operators.forms import tensor_form
from sparsewire.torch.operators.tensor_operator import TensorCode, TensorOperator

__all__ = ["TensorCode", "TensorOperator", "tensor_form"]

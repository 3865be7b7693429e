"""torchft's own tests of its LocalSGD and DiLoCo, which its wheel ships, as a program.

    python tests/torch/torchft_suite.py sparsewire -v LocalSGDIntegTest.test_diloco_recovery_0

The replicas are threads, which fail, come back and join late. They ask for gloo and get sparsewire,
unless the first argument is gloo. They listen on free ports, in place of fixed ones.
"""

import sys
import unittest
from typing import Any

import torchft._test.diloco_trainer as trainer
import torchft.local_sgd_integ_test as suite
from torchft.manager import Manager

from sparsewire.torch.torchft import ProcessGroupSparsewire


def manager_at_a_free_port(**settings: Any) -> Manager:
    return Manager(**{**settings, "port": 0})


if __name__ == "__main__":
    _, backend, *arguments = sys.argv
    if backend == "sparsewire":
        suite.ProcessGroupGloo = trainer.ProcessGroupGloo = ProcessGroupSparsewire
    suite.Manager = trainer.Manager = manager_at_a_free_port
    unittest.main(module=suite, argv=[__file__, *arguments])

"""Prepare the server from which the ranks of tests are forked: import torch, and build a model, which imports more."""

import torch

from studies.multi_gpu import measure_check
from tests import rank_work as rank_work  # its functions are what ranks run

torch.set_num_threads(1)  # a process with threads must not be forked
measure_check.whole(
    measure_check.build_model(measure_check.random_weights(measure_check.SMALL)), torch.zeros(1, 2, dtype=torch.int64)
)

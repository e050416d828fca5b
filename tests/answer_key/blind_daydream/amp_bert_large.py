"""BERT large on questions. a: FP32, b: automatic mixed precision."""

import torch
import transformers.models.bert.modeling_bert  # noqa: F401  before the GPU is asked for
from networks import bert, made, questions, trained

B, T = 6, 384


def build(form):
    return trained(form, made(lambda: bert(24, 1024, 16)), questions(B, T), torch.optim.Adam)

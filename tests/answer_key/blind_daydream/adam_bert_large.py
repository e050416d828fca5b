"""BERT large on questions. a: Adam tensor by tensor, b: the fused Adam."""

import transformers.models.bert.modeling_bert  # noqa: F401  before the GPU is asked for
from networks import bert, made, questions, updated

B, T = 2, 384


def build(form):
    return updated(form, made(lambda: bert(24, 1024, 16)), questions(B, T))

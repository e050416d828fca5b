"""The networks of Daydream's evaluation, with random weights and inputs: what the programs of blind_daydream/ train."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # the paper's GPUs have no TF32


class Bottleneck(nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        out = 4 * width
        shapes = ((into, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in shapes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in shapes)
        self.beside = None
        if stride > 1 or into != out:
            self.beside = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            y = F.relu(y, inplace=True) if number < 2 else y
        return F.relu(y + (x if self.beside is None else self.beside(x)), inplace=True)


def resnet50(classes=1000):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    into = 64
    for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for number in range(count):
            layers.append(Bottleneck(into, width, 2 if number == 0 and width > 64 else 1))
            into = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes))


class Dense(nn.Module):
    """A layer of DenseNet; `norm(C)` makes a batch norm with its ReLU."""

    def __init__(self, into, growth, norm):
        super().__init__()
        self.norms = nn.ModuleList([norm(into), norm(4 * growth)])
        self.convs = nn.ModuleList(
            [nn.Conv2d(into, 4 * growth, 1, bias=False), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)]
        )

    def forward(self, x):
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = conv(norm(y))
        return torch.cat([x, y], 1)


def densenet121(norm, growth=32, blocks=(6, 12, 24, 16), classes=1000):
    into = 2 * growth
    layers = [nn.Conv2d(3, into, 7, 2, 3, bias=False), norm(into), nn.MaxPool2d(3, 2, 1)]
    for number, count in enumerate(blocks):
        for _ in range(count):
            layers.append(Dense(into, growth, norm))
            into += growth
        layers.append(norm(into))
        if number < len(blocks) - 1:
            layers += [nn.Conv2d(into, into // 2, 1, bias=False), nn.AvgPool2d(2)]
            into //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes))


class GNMT(nn.Module):
    """Four LSTM layers (the first in both directions), four more that attend by tanh, as NVIDIA's GNMT v2."""

    def __init__(self, words=32320, width=1024):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.both = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.encoder = nn.ModuleList(
            nn.LSTM(2 * width if number == 0 else width, width, batch_first=True) for number in range(3)
        )
        self.first = nn.LSTM(width, width, batch_first=True)
        self.query, self.key = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.score = nn.Linear(width, 1, bias=False)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in range(3))
        self.words = nn.Linear(width, words)

    def stacked(self, layers, x, context=None):
        for number, layer in enumerate(layers):
            x = F.dropout(x, 0.2, self.training)
            y = layer(x if context is None else torch.cat([x, context], -1))[0]
            x = y + x if number else y
        return x

    def forward(self, source, target):
        memory = self.stacked(self.encoder, self.both(F.dropout(self.embed(source), 0.2, self.training))[0])
        x = self.first(F.dropout(self.embed(target), 0.2, self.training))[0]
        met = torch.tanh(self.query(x).unsqueeze(2) + self.key(memory).unsqueeze(1))
        context = self.score(met).squeeze(-1).softmax(-1) @ memory
        return self.words(self.stacked(self.decoder, x, context))


def bert(layers, width, heads):
    from transformers import BertConfig, BertForQuestionAnswering

    kept = {"num_attention_heads": heads, "intermediate_size": 4 * width}
    return BertForQuestionAnswering(BertConfig(hidden_size=width, num_hidden_layers=layers, **kept))


def translation(batch, length, words=32320):
    """Return the inputs of a step of GNMT, and its loss of a model."""
    source, target = (torch.randint(words, (batch, length), device=DEVICE) for _ in range(2))
    return lambda model: F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())


def questions(batch, length, words=30522):
    """Return the loss of BERT on a batch of questions."""
    ids, starts = torch.randint(words, (batch, length), device=DEVICE), torch.randint(length, (batch,), device=DEVICE)
    return lambda model: model(ids, start_positions=starts, end_positions=starts).loss


def pictures(batch, side=224, classes=1000):
    """Return the loss of a classifier on a batch of pictures."""
    x, y = torch.randn(batch, 3, side, side, device=DEVICE), torch.randint(classes, (batch,), device=DEVICE)
    return lambda model: F.cross_entropy(model(x), y)


def made(build):
    """Return a model whose weights are made on the GPU."""
    with torch.device(DEVICE):
        return build().train()


def trained(form, model, loss, kind):
    """Return a step of training. a: FP32, b: automatic mixed precision with scaled gradients."""
    optimizer = kind(model.parameters(), lr=1e-5, fused=True)
    scaler = torch.amp.GradScaler(DEVICE, enabled=form == "b")

    def step(i):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.float16, enabled=form == "b"):
            value = loss(model)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def updated(form, model, loss):
    """Return a step of training in FP32. a: Adam tensor by tensor, b: the fused Adam."""
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-5, **({"foreach": False} if form == "a" else {"fused": True})
    )

    def step(i):
        optimizer.zero_grad()
        loss(model).backward()
        with torch.cuda.nvtx.range("optimizer"):
            optimizer.step()

    return step

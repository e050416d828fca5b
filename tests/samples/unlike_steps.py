"""Run steps of three programs that are unlike those of gpt_steps.py: CuPy, FP8 products, decoding as a CUDA graph.

usage: python tests/samples/unlike_steps.py cupy|fp8|graph [STEPS]

The window (cudaProfilerStart) holds STEPS steps, after five others.
"""

import sys

import nvtx

FORM, STEPS = sys.argv[1], int([*sys.argv[2:], "100"][0])


def cupy_step():
    """Return a step of a wave on a grid, a filter by Fourier transform, sums and a sort; and a wait for the GPU."""
    import cupy

    wave = cupy.ElementwiseKernel(
        "raw float32 u, float32 before, int32 n", "float32 after",
        """int x = i % n, y = i / n;
        float sides = u[y * n + (x + 1) % n] + u[y * n + (x + n - 1) % n] + u[(y + 1) % n * n + x] + u[(y + n - 1) % n * n + x];
        after = 2 * u[i] - before + 0.1f * (sides - 4 * u[i]);""",
        "wave",
    )  # fmt: skip
    size = 4096
    state = [cupy.random.rand(size, size, dtype=cupy.float32) for _ in range(2)]
    keep = cupy.exp(-cupy.arange(size // 2 + 1, dtype=cupy.float32) / 500)

    def step():
        with nvtx.annotate("stencil"):
            for _ in range(4):
                state[:] = state[1], wave(state[1], state[0], size)
        with nvtx.annotate("filter"):
            state[1] = cupy.fft.irfft(cupy.fft.rfft(state[1]) * keep, size).astype(cupy.float32)
        with nvtx.annotate("energy"):
            rows = cupy.sqrt((state[1] ** 2).sum(axis=1)) / size
        with nvtx.annotate("rank"):
            cupy.sort(state[1][:1024].ravel())
        state[1] /= rows.mean()

    return step, cupy.cuda.Device().synchronize


def fp8_step():
    """Return a step of six layers whose products are of FP8, with casts of their inputs; and a wait for the GPU."""
    import torch

    most, layers, width = 448.0, 6, 4096
    device = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(width, width, **device)

    def cast(wide):
        scale = wide.abs().amax().float().clamp(min=1e-6) / most
        return (wide.float() / scale).clamp(-most, most).to(torch.float8_e4m3fn), scale

    weights = [
        [cast(torch.randn(*shape, **device) / 64) for shape in ((2 * width, width), (width, 2 * width))]
        for _ in range(layers)
    ]

    def product(wide, weight):
        with nvtx.annotate("cast"):
            narrow, scale = cast(wide)
        with nvtx.annotate("product"):
            return torch._scaled_mm(narrow, weight[0].t(), scale_a=scale, scale_b=weight[1], out_dtype=torch.bfloat16)

    def step():
        y = x
        for number, (up, down) in enumerate(weights):
            with nvtx.annotate(f"layer.{number}"):
                y = product(torch.nn.functional.gelu(product(y, up)), down)

    return step, torch.cuda.synchronize


def graph_step():
    """Return the replay of a graph that decodes a token in six layers; and a wait for the GPU."""
    import torch

    layers, width, heads, tokens, batch = 6, 1024, 16, 512, 32
    new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / 32  # noqa: E731
    weights = [
        [new(*shape) for shape in ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))]
        for _ in range(layers)
    ]
    caches = [[new(batch, heads, tokens, width // heads) for _ in range(2)] for _ in range(layers)]
    x = new(batch, width)
    norm, linear, attend = (
        torch.nn.functional.layer_norm,
        torch.nn.functional.linear,
        torch.nn.functional.scaled_dot_product_attention,
    )

    def decode(y):
        for number, ((qkv, out, up, down), (keys, values)) in enumerate(zip(weights, caches, strict=True)):
            with nvtx.annotate(f"h.{number}"):
                q, k, v = linear(norm(y, (width,)), qkv).view(batch, 3, heads, 1, -1).unbind(1)
                seen = torch.cat([keys, k], 2), torch.cat([values, v], 2)
                y = y + linear(attend(q, *seen).reshape(batch, width), out)
                y = y + linear(torch.nn.functional.gelu(linear(norm(y, (width,)), up)), down)
        return y

    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            decode(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            decode(x)
    return graph.replay, torch.cuda.synchronize


def main():
    """Run the steps."""
    from cuda.bindings import runtime

    step, wait = {"cupy": cupy_step, "fp8": fp8_step, "graph": graph_step}[FORM]()
    for _ in range(5):
        step()
    wait()
    runtime.cudaProfilerStart()
    for _ in range(STEPS):
        with nvtx.annotate("step"):
            step()
    wait()
    runtime.cudaProfilerStop()


main()

"""Masks on spectra of speech. a: real and imaginary parts come first for each mask and go last again, b: they stay last."""

import torch

B, T, WINDOW = 64, 512, 1024


def build(form):
    audio = torch.randn(B, T, WINDOW, device="cuda")
    gains = [torch.rand(WINDOW // 2 + 1, 2, device="cuda") for _ in range(5)]

    @torch.no_grad()
    def step(i):
        spectra = torch.view_as_real(torch.fft.rfft(audio))
        for gain in gains:
            if form == "a":
                parts = spectra.permute(3, 0, 1, 2).contiguous()
                parts = parts * gain.t()[:, None, None]
                spectra = parts.permute(1, 2, 3, 0).contiguous()
            else:
                spectra = spectra * gain
        return torch.fft.irfft(torch.view_as_complex(spectra), WINDOW)

    return step

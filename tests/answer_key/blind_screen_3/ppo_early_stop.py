"""PPO over four minibatches. a: the host reads the divergence after each of them to stop early, b: after the last one."""

import torch
from torch import nn

N, D, H, ACTIONS = 131072, 64, 256, 8


def build(form):
    def net(outs):
        return nn.Sequential(nn.Linear(D, H), nn.Tanh(), nn.Linear(H, H), nn.Tanh(), nn.Linear(H, outs))

    policy, critic = net(ACTIONS).cuda().bfloat16(), net(1).cuda().bfloat16()
    optimizer = torch.optim.AdamW([*policy.parameters(), *critic.parameters()], lr=1e-6, fused=True)
    seen = torch.randn(4, N, D, device="cuda", dtype=torch.bfloat16)
    actions = torch.randint(ACTIONS, (4, N, 1), device="cuda")
    before = torch.full((4, N), -2.0, device="cuda")
    gains, returns = torch.randn(2, 4, N, device="cuda").unbind()

    def step(i):
        for part in range(4):
            logs = policy(seen[part]).float().log_softmax(-1).gather(1, actions[part])[:, 0]
            change = logs - before[part]
            ratio = change.exp()
            surrogate = torch.minimum(ratio * gains[part], ratio.clamp(0.8, 1.2) * gains[part])
            value = critic(seen[part])[:, 0].float()
            loss = -surrogate.mean() + 0.5 * (value - returns[part]).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5, foreach=True)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                divergence = (ratio - 1 - change).mean()
            if form == "a" and divergence.item() > 1e6:
                break
        return divergence.item()

    return step

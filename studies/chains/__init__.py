"""Compare chains of kernels with ready-made fused kernels: do they gain what the fusion plan predicts?"""

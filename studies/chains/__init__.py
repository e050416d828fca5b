"""Chains of kernels as a program writes them, beside what is ready-made: does the fusion plan promise what comes?"""

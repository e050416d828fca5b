"""Delay parts of a running program, and measure how much its step grows."""

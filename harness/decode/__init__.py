"""Decode GPT-2 one token at a time: four engines, each with less work for the host than the one before (engines.py)."""

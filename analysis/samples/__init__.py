"""Attribute counters that were sampled while the program ran to its launches.

overlap    how much of each sample each group of launches ran
fit        rates of groups from samples: nonnegative least squares, with intervals
neighbours groups of launches that the samples cannot tell apart
attribute  all of it, for one GPU
"""

"""The rules for kernels with counters: one module a family. To add a rule, add a module here with `RULES`."""

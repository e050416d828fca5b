"""Hold the answer key of timelines: small programs, each slow by one defect, their fixed twins, and all captures."""

"""The answer key of timelines: small programs, slow by one defect, their fixed twins, and the captures of all."""

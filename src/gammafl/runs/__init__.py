"""Run directories, checkpoints and resuming; `gf.simulate`."""

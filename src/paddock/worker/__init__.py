"""Claims jobs and runs them: a supervisor that never runs user code, and runners that do nothing else."""

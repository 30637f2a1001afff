"""Events on their way to addresses outside: keys, signed deliveries, and connections that reach nothing of ours."""

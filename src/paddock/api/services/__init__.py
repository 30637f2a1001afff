"""The rules of the core's own things: what a caller may do, whoever asks. Routes, pages and commands only translate."""

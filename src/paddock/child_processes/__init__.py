"""Child processes, written once: `spawning` is the parent's side, `beginning` is what a child does to itself.

What they promise together:

- A child does not outlive its parent, SIGKILL of the parent included. The kernel kills it when the thread that
  started it ends (Linux only); a child that comes too late for that finds another parent and ends.
- A child leads a session and a process group of its own unless it is told to stay in the group of its parent. Where
  it has one, all of the group is killed with it, and also what is left of the group when it ends by itself.
- A child sees the environment that it was given and nothing else. `inherited` makes it from a list of names.
- A program gets its resource limits before its first instruction (`launched`); a child of our own lowers its limits
  itself, when it has loaded what it needs (`beginning.limit`).
- The end of what a child says on standard error is kept, in bounded memory. A child that says more is never held up.
- `end` returns, or raises, when the process is gone and reaped, however often the caller is cancelled meanwhile. A
  child that ends by itself is reaped by the loop, whether somebody waits for it or not.

What they do not promise:

- A process that leaves its group (`setsid`) and is not told to die with its parent lives on. Only a container or a
  sub-reaper ends those.
- Nothing here keeps hostile code in: see `engines.children.sandbox` for that.
- A limit holds for one process and not for the sum over its group.
- Output other than standard error is the caller's to read: a child whose pipe is full waits.
"""

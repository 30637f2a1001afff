"""What the control plane does by itself: six background jobs that compare the database with what is really there, end what
is over and finish what a crash left half done.

- background job: one of the six, an internal, serial kind and a schedule of the same name
- pass: one execution of a background job
- tick: what a pass is given; a pass is a function of it
- budget: how long one pass may take; where it ends, a cursor tells the next pass where to begin
- found: what the pass counted, by name
- trigger: a pass that a person asked for, with a reason
"""

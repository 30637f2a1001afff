"""Where instances run: on this machine as processes (`local`), elsewhere as pods.

- runtime: starts, finds and ends what runs one instance, by name; it knows nothing of snapshots, tokens or Cypher.
- name: `{wrapper_type}-wrapper-{instance}-{n}`, of one start of one instance; never used twice.
- generation: the uuid of that start; whatever names another one changes nothing.
- keeper: the process whose end ends what the local runtime started.
"""

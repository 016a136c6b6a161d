"""The messages between agents, gateways and the control plane, and the limits of their fields.

Compatibility: `contract` is the version of these messages. Both sides ignore unknown fields and fill in defaults of
missing ones, so a field may be added at any time, always with a default; either side may be one version ahead. A field
never changes its meaning: a new meaning gets a new field. Words in a field (health, stage, reason, handover) are open:
an unknown word is kept and shown, and treated like the more careful of the known ones. A message without a version is
of version 1, forever; only fields have been added since, so the version is still 1.

Values of a minute are aggregates since the minute began. So a later report of the same minute contains everything of
an earlier one, and reports may be lost, doubled or reordered without harm.

The structs are hidden from the garbage collector (`gc=False`, tuples, no empty dicts): they hold no cycles, and at a
thousand reports a second collecting them would take longer than reading them.
"""

"""Where the words of rings and slabs lie.

Layout of a ring's control lines (each word on its own pair of cache lines): HEAD written by the producer only, TAIL by
the consumer only, WAITING set by the consumer and taken by the producer.

Record: tag | kind, head length | body length | slot | head bytes | (aligned to 64) body. `tag = generation ^ position`
is unique for every place and lap, so memory of an older generation or lap is recognised. Records never wrap: PAD fills
the end of the ring.
"""

from __future__ import annotations

LINE = 128
HEAD, TAIL, WAITING, CONTROL_BYTES = 0, LINE, 2 * LINE, 3 * LINE
ALIGN = 64
HEADER = 32
PAD, PLAIN, INLINE, SLOT = 1, 2, 3, 4
FIELDS = 6  # words `scan` writes for a record: head at, head length, body at, body length, slot, next tail
STALE = -1

# Private words of one end of a ring (producer or consumer), as byte offsets.
S_CONTROL, S_DATA, S_CAPACITY, S_AT, S_SEEN, S_GENERATION, S_START, S_NEXT = range(0, 64, 8)
STATE_WORDS = 8
# Private words of one end of a slab: address of the shared return list, its slots, returns seen or made, free slots.
B_LIST, B_SLOTS, B_COUNT, B_FREE, B_STACK = 0, 8, 16, 24, 32

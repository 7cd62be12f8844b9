"""The hibari family: a small English voice in two halves, both fast on one CPU core.

    text -> phonemes -> ids -> [acoustic network] -> frames, 80 a second -> [decoder] -> samples, 24,000 a second

Weights and the reading of words come from the package `hibari-tts` 0.2.1 (Apache-2.0), pinned by version and SHA-256
in `weights`; licences.md beside this file lists origin, licences and hashes. The decoder is ours.
"""

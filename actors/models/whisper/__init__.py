"""Whisper: up to half a minute of sound in, text with timestamps out.

    samples -> log mel spectrum -> [encoder] -> states -> [decoder] -> tokens -> stretches of text

`model` is the foreign library (CTranslate2 through faster-whisper), `stretches` and `words` read what it gives,
`hearing` decides which attempt at an utterance is good enough. Weights: a folder in CTranslate2's layout.
"""

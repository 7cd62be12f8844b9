"""silero: is somebody speaking? A small recurrent network that judges 32 ms of sound at a time, in any language.

MIT licence. Its weights come inside the package faster-whisper.
"""

"""Written English made ready to be spoken: clauses cut from running text, and everything in them spelled as words."""

"""The page: its endpoints and their messages, what each view shows, streams of events, and work in the background."""

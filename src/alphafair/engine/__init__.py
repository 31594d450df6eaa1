"""Decide and learn durably: an append-only log in SQLite, and policies whose state is a fold over it."""

from alphafair.engine.engine import Engine as Engine
from alphafair.engine.engine import restore as restore
from alphafair.engine.errors import Mismatch as Mismatch
from alphafair.engine.errors import PolicyFailed as PolicyFailed
from alphafair.engine.errors import Refused as Refused
from alphafair.engine.errors import Unavailable as Unavailable
from alphafair.engine.requests import Activate as Activate
from alphafair.engine.requests import Decide as Decide
from alphafair.engine.requests import Outcome as Outcome
from alphafair.engine.requests import Receipt as Receipt
from alphafair.engine.requests import Reward as Reward
from alphafair.engine.requests import Status as Status
